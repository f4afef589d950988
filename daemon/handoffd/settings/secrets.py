"""Secrets outside the settings file, which has `{credential: NAME}` or `{file: PATH}` in their place.

systemd hands credentials to the daemon alone (LoadCredential=, a file below
$CREDENTIALS_DIRECTORY). A verb in a terminal reads the settings without them: a stand-in takes
the place of each, and nothing is ever sent to it.

The values are of the type SecretStr, so a key that is not for secrets refuses them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from pydantic import SecretStr

DIRECTORY = "CREDENTIALS_DIRECTORY"
STAND_IN = "https://credential.invalid/"
"""A name that never resolves (RFC 2606); a whole address, because some secrets must be one."""

_MOST_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_OTHERS = frozenset({"executors", "prices"})
"""Sections whose keys we do not define."""


class Vault(Struct, frozen=True, kw_only=True):
    """Where secrets come from. `base`: the folder of relative paths; `required`: no stand-ins."""

    environ: Mapping[str, str]
    base: Path
    required: bool = False


Report = Callable[[str, str, tuple[str, ...]], None]
"""Takes the dotted key, the problem, and the allowed values."""


def fetched(values: Mapping[str, Any], vault: Vault, report: Report) -> dict[str, Any]:
    """Return `values` with secrets in place of the references to them; missing ones are reported."""
    return {
        name: value if name in _OTHERS else _fetched(value, name, vault, report)
        for name, value in values.items()
    }


def named_files(values: Mapping[str, Any], base: Path) -> tuple[Path, ...]:
    """Return the files that `{file: PATH}` names, in reading order, whether they exist or not."""
    wanted = (value for name, value in values.items() if name not in _OTHERS)
    return tuple(dict.fromkeys(file for value in wanted for file in _named_files(value, base)))


def _named_files(value: Any, base: Path) -> Iterator[Path]:
    inner: Iterable[Any] = ()
    if isinstance(value, list):
        inner = value
    elif isinstance(value, Mapping):
        match list(value.items()):
            case [("file", str(path))]:
                yield _path(path, base)
            case _:
                inner = value.values()
    for item in inner:
        yield from _named_files(item, base)


def opened(keys: Mapping[str, SecretStr]) -> dict[str, str]:
    """Return the texts of secrets by name, without stand-ins."""
    texts = {name: key.get_secret_value() for name, key in keys.items()}
    return {name: text for name, text in texts.items() if not text.startswith(STAND_IN)}


def _fetched(value: Any, key: str, vault: Vault, report: Report) -> Any:
    if isinstance(value, list):
        return [_fetched(item, f"{key}.{index}", vault, report) for index, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    match list(value.items()):
        case [("credential", str(name))]:
            return _credential(name, key, vault, report)
        case [("file", str(path))]:
            return _file(_path(path, vault.base), key, report)
    return {str(name): _fetched(inner, f"{key}.{name}", vault, report) for name, inner in value.items()}


def _path(text: str, base: Path) -> Path:
    return base / os.path.expanduser(text)


def _credential(name: str, key: str, vault: Vault, report: Report) -> SecretStr:
    folder = vault.environ.get(DIRECTORY)
    if not _NAME.fullmatch(name):
        report(key, f"{name[:64]!r} is not the name of a credential", ())
    elif not folder:
        if vault.required:
            report(key, f"the credential {name} is for the service, and this daemon is not run by it", ())
    elif isinstance(given := _names(folder), OSError):
        report(key, f"the folder of credentials, {folder}, cannot be read ({given.strerror})", ())
    elif name not in given:
        report(key, f"the service was not given the credential {name}", given)
    else:
        return _file(Path(folder, name), key, report)
    return SecretStr(STAND_IN + name)


def _names(folder: str) -> tuple[str, ...] | OSError:
    try:
        return tuple(sorted(os.listdir(folder)))
    except FileNotFoundError:  # a service without credentials has no folder
        return ()
    except OSError as error:
        return error


def _file(path: Path, key: str, report: Report) -> SecretStr:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1).decode("utf-8").strip()
    except OSError as error:
        report(key, f"{path} cannot be read ({error.strerror})", ())
    except UnicodeDecodeError:
        report(key, f"{path} is not text", ())
    else:
        if 0 < len(text) <= _MOST_BYTES:
            return SecretStr(text)
        report(key, f"{path} {'is too long to be a secret' if text else 'is empty'}", ())
    return SecretStr(STAND_IN)
