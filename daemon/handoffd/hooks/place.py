"""Where the daemon keeps its things, found in a fraction of the time the settings take to be read.

The same rules as `handoffd.settings.paths`, in plain strings; the tests hold the two together. A settings
file is understood as far as one absolute path on a line of its own; one that says more is for its reader.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping

NAME = "handoffd"
SYSTEM_FILE = "/etc/handoffd/handoffd.yaml"
KEYS = ("state_dir", "runtime_dir")
_MAX_BYTES = 64 * 1024
_LINE = re.compile(
    r"""^(?P<key>state_dir|runtime_dir):[ \t]+(?P<path>/[^\s#'"]*)[ \t]*(?:#.*)?$""", re.MULTILINE
)


def folders(config: str | None, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the state and the runtime directory; None when only the settings' own reader can tell.

    `config` is the settings file, if it was named.
    """
    given = {key: _variable(environ, key) for key in KEYS}
    if None in given.values():
        written = _in_file(config, environ)
        if written is None:
            return None
        given = {key: path or written.get(key) for key, path in given.items()}
    if not all(path is None or path.startswith("/") for path in given.values()):
        return None
    state = given["state_dir"] or _default_state(environ)
    return state, given["runtime_dir"] or _default_runtime(environ, state)


def _variable(environ: Mapping[str, str], key: str) -> str | None:
    wanted = f"HANDOFFD_{key.upper()}"
    return next((value for name, value in environ.items() if name.upper() == wanted and value), None)


def _in_file(config: str | None, environ: Mapping[str, str]) -> dict[str, str] | None:
    """Return what the settings file says of either directory; None if that is not plain to see."""
    path = config or next((file for file in _files(environ) if os.path.lexists(file)), None)
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


def _files(environ: Mapping[str, str]) -> tuple[str, str]:
    folder = _absolute(environ, "XDG_CONFIG_HOME") or os.path.join(home(environ), ".config")
    return os.path.join(folder, NAME, "handoffd.yaml"), SYSTEM_FILE


def _default_state(environ: Mapping[str, str]) -> str:
    if given := _by_systemd(environ, "STATE_DIRECTORY"):
        return given
    folder = _absolute(environ, "XDG_STATE_HOME") or os.path.join(home(environ), ".local", "state")
    return os.path.join(folder, NAME)


def _default_runtime(environ: Mapping[str, str], state_dir: str) -> str:
    if given := _by_systemd(environ, "RUNTIME_DIRECTORY"):
        return given
    runtime = _absolute(environ, "XDG_RUNTIME_DIR")
    return os.path.join(runtime, NAME) if runtime else os.path.join(state_dir, "run")


def home(environ: Mapping[str, str]) -> str:
    """Return the home of whoever runs this."""
    return _absolute(environ, "HOME") or os.path.expanduser("~")


def _by_systemd(environ: Mapping[str, str], name: str) -> str | None:
    first = environ.get(name, "").partition(":")[0]
    return first if first.startswith("/") else None


def _absolute(environ: Mapping[str, str], name: str) -> str | None:
    value = environ.get(name, "")
    return value if value.startswith("/") else None
