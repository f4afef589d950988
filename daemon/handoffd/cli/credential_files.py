"""The drop-in that has systemd hand secrets to the daemon: `LoadCredential=`, one line each.

It is a file of its own beside the unit, so that installing again keeps what was given before. What it
holds is where a secret is, never the secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from handoffd.cli import unitfiles
from handoffd.cli.service_files import is_ours
from handoffd.cli.service_scope import Scope
from handoffd.errors import NotFound, Refused

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_LINE = re.compile(r"(LoadCredential(?:Encrypted)?)=([^:]+):(.*)")
_PLAIN, _ENCRYPTED = "LoadCredential", "LoadCredentialEncrypted"

Given = Mapping[str, tuple[str, str]]
"""By name of the credential: the unit's key, and the file."""


def path_of(scope: Scope) -> Path:
    """Return where the drop-in of the daemon's unit is."""
    return scope.folder / f"{scope.names[1]}.d" / "credentials.conf"


def drop_in(scope: Scope, plain: Iterable[str], encrypted: Iterable[str]) -> unitfiles.UnitFile | None:
    """Return the drop-in with what is there and what is given now, None when there is nothing to it.

    Each is NAME=FILE; NAME= takes one away. Raises Refused and NotFound.
    """
    path = path_of(scope)
    given = dict(_there(path))
    for key, texts in ((_PLAIN, plain), (_ENCRYPTED, encrypted)):
        for text in texts:
            name, file = _parsed(text)
            given.pop(name, None)
            if file is not None:
                given[name] = (key, str(file))
    if not given and not path.exists():
        return None
    return unitfiles.UnitFile(name=scope.names[1], path=path, text=_text(given))


def _there(path: Path) -> Given:
    if not is_ours(path):
        return {}
    found = (_LINE.fullmatch(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {match[2]: (match[1], match[3].replace("%%", "%")) for match in found if match}


def _parsed(text: str) -> tuple[str, Path | None]:
    name, equals, file = text.partition("=")
    if not equals or not _NAME.fullmatch(name) or not file.isprintable() or file != file.strip():
        raise Refused(f"{text[:80]!r} is not of the form NAME=FILE", hint="handoffd service install --help")
    if not file:
        return name, None
    path = Path(file).expanduser().absolute()
    if not path.is_file():
        raise NotFound(f"the credential {name}: there is no file {path}", hint=f"ls -l {path.parent}")
    return name, path


def _text(given: Given) -> str:
    lines = [unitfiles.MARK, "[Service]"]
    lines += [f"{key}={name}:{file.replace('%', '%%')}" for name, (key, file) in sorted(given.items())]
    return "\n".join(lines) + "\n"


def readable_by_others(file: unitfiles.UnitFile | None) -> list[str]:
    """Return a caution for each plain secret of a drop-in that other accounts can read."""
    if file is None:
        return []
    found = (_LINE.fullmatch(line) for line in file.text.splitlines())
    paths = [Path(match[3].replace("%%", "%")) for match in found if match and match[1] == _PLAIN]
    return [
        f"{path} can be read by other accounts: chmod 600 {path}"
        for path in paths
        if path.is_file() and path.stat().st_mode & 0o077
    ]
