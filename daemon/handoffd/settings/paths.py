"""Where handoffd keeps its files, where the daemon's socket is, and where the shipped files are.

The settings use it, and so do hooks, `status` and every other command that asks the daemon. These must
answer in a fraction of the time that reading the settings takes, so this imports only quick modules of the
standard library, and paths are plain strings. systemd's own variables come first, then the XDG base
directories; a relative XDG path is ignored, as the specification demands.
"""

from __future__ import annotations

import json
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "handoffd"
SYSTEM_FILE = "/etc/handoffd/handoffd.yaml"
SOCKET = "control.sock"
KEYS = ("state_dir", "runtime_dir")
_MAX_BYTES = 64 * 1024
_LINE = re.compile(
    r"""^(?P<key>state_dir|runtime_dir):[ \t]+(?P<path>/[^\s#'"]*)[ \t]*(?:#.*)?$""", re.MULTILINE
)


# --- without settings --------------------------------------------------------------------------------
def default_state_dir(environ: Mapping[str, str]) -> str:
    """Return `$STATE_DIRECTORY`, else `$XDG_STATE_HOME/handoffd`, else `~/.local/state/handoffd`."""
    given = _by_systemd(environ, "STATE_DIRECTORY")
    folder = _absolute(environ, "XDG_STATE_HOME") or os.path.join(home(environ), ".local", "state")
    return given or os.path.join(folder, NAME)


def default_runtime_dir(environ: Mapping[str, str], state_dir: str) -> str:
    """Return `$RUNTIME_DIRECTORY`, else `$XDG_RUNTIME_DIR/handoffd`, else `run` in the state directory."""
    given = _by_systemd(environ, "RUNTIME_DIRECTORY")
    runtime = _absolute(environ, "XDG_RUNTIME_DIR")
    return given or (os.path.join(runtime, NAME) if runtime else os.path.join(state_dir, "run"))


def default_files(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return where the settings are looked for; the first file that exists is the one that counts."""
    folder = _absolute(environ, "XDG_CONFIG_HOME") or os.path.join(home(environ), ".config")
    return os.path.join(folder, NAME, "handoffd.yaml"), SYSTEM_FILE


def home(environ: Mapping[str, str]) -> str:
    """Return the home of the account that runs this."""
    return _absolute(environ, "HOME") or os.path.expanduser("~")


def _by_systemd(environ: Mapping[str, str], name: str) -> str | None:
    """Return the first path of a variable that may list several, separated by colons."""
    first = environ.get(name, "").partition(":")[0]
    return first if first.startswith("/") else None


def _absolute(environ: Mapping[str, str], name: str) -> str | None:
    value = environ.get(name, "")
    return value if value.startswith("/") else None


# --- with the settings, without reading them ---------------------------------------------------------
def folders(config: str | None, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the state and the runtime directory; None when only the settings' own reader can tell.

    `config` is the settings file, if it was named. It is understood as far as one absolute path on a line of
    its own; one that says more is for its reader.
    """
    given = {key: _variable(environ, key) for key in KEYS}
    if None in given.values():
        written = _in_file(config, environ)
        if written is None:
            return None
        given = {key: path or written.get(key) for key, path in given.items()}
    if not all(path is None or path.startswith("/") for path in given.values()):
        return None
    state = given["state_dir"] or default_state_dir(environ)
    return state, given["runtime_dir"] or default_runtime_dir(environ, state)


def socket_path(config: str | None, environ: Mapping[str, str]) -> str | None:
    """Return where the daemon would answer; None when only the settings' own reader can tell."""
    runtime = _variable(environ, "runtime_dir")
    if runtime is None or not runtime.startswith("/"):
        found = folders(config, environ)
        if found is None:
            return None
        runtime = found[1]
    return os.path.join(runtime, SOCKET)


def _variable(environ: Mapping[str, str], key: str) -> str | None:
    wanted = f"HANDOFFD_{key.upper()}"
    return next((value for name, value in environ.items() if name.upper() == wanted and value), None)


def _in_file(config: str | None, environ: Mapping[str, str]) -> dict[str, str] | None:
    """Return what the settings file says of either directory; None if that is not plain to see."""
    path = config or next((file for file in default_files(environ) if os.path.lexists(file)), None)
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_BYTES + 1).decode("utf-8")
    except (OSError, ValueError):
        return None
    if len(text) > _MAX_BYTES:
        return None
    mentioned = [key for key in KEYS if key in text]
    if not mentioned:
        return {}
    found = _from_json(text) if text.lstrip().startswith("{") else _from_lines(text)
    return found if found is not None and set(mentioned) == set(found) else None


def _from_json(text: str) -> dict[str, str] | None:
    """Return what a settings file in JSON says, which is YAML, too."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    found = {key: data[key] for key in KEYS if key in data}
    return found if all(isinstance(path, str) for path in found.values()) else None


def _from_lines(text: str) -> dict[str, str] | None:
    found = {match["key"]: match["path"] for match in _LINE.finditer(text)}
    # A second mention may be a comment, or another document: not for us to tell.
    return found if all(text.count(key) == 1 for key in found) else None


# --- what ships --------------------------------------------------------------------------------------
def shared(*parts: str) -> Path:
    """Return the path of a shipped file or folder, such as `shared("config", "step-rules.yaml")`.

    In a wheel these are in `share/` below the package; in a checkout at the top of the tree.
    """
    from pathlib import Path  # noqa: PLC0415  (hooks are answered before it is imported)

    package = Path(__file__).resolve().parents[1]
    for base in (package / "share", package.parents[1]):
        if (base / "config").is_dir():
            return base.joinpath(*parts)
    raise FileNotFoundError(f"the files shipped with handoffd are missing beside {package}")
