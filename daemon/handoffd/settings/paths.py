"""Where the daemon is: the folders in which handoffd keeps its things, and where what ships with it is.

Standard library only: the verbs that must start fast look here for the socket, without reading the settings.
systemd's own variables come first, then the XDG base directories; a relative path in one of those is ignored,
as their specification asks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

NAME = "handoffd"
SYSTEM_FILE = Path("/etc/handoffd/handoffd.yaml")


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """Return `$STATE_DIRECTORY`, else `$XDG_STATE_HOME/handoffd`, else `~/.local/state/handoffd`."""
    given = _by_systemd(environ, "STATE_DIRECTORY")
    return given or (_absolute(environ, "XDG_STATE_HOME") or home(environ) / ".local" / "state") / NAME


def default_runtime_dir(environ: Mapping[str, str], state_dir: Path) -> Path:
    """Return `$RUNTIME_DIRECTORY`, else `$XDG_RUNTIME_DIR/handoffd`, else `run` in the state directory."""
    given = _by_systemd(environ, "RUNTIME_DIRECTORY")
    runtime = _absolute(environ, "XDG_RUNTIME_DIR")
    return given or (runtime / NAME if runtime else state_dir / "run")


def default_files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where the settings are looked for; the first file that exists is the one that counts."""
    user = (_absolute(environ, "XDG_CONFIG_HOME") or home(environ) / ".config") / NAME / "handoffd.yaml"
    return (user, SYSTEM_FILE)


def home(environ: Mapping[str, str]) -> Path:
    """Return the home of whoever runs this."""
    return _absolute(environ, "HOME") or Path(os.path.expanduser("~"))


def _by_systemd(environ: Mapping[str, str], name: str) -> Path | None:
    """Return the first path of a variable that may list several, separated by colons."""
    first = environ.get(name, "").partition(":")[0]
    return Path(first) if first.startswith("/") else None


def _absolute(environ: Mapping[str, str], name: str) -> Path | None:
    value = environ.get(name, "")
    return Path(value) if value.startswith("/") else None


# --- what ships --------------------------------------------------------------------------------------
_PACKAGE = Path(__file__).resolve().parents[1]
"""In a wheel `config/` and `systemd/` are in `share/` below it; in a checkout at the top of the tree."""


def shared(*parts: str) -> Path:
    """Return the path of a shipped file or folder, such as `shared("config", "step-rules.yaml")`."""
    for base in (_PACKAGE / "share", _PACKAGE.parents[1]):
        if (base / "config").is_dir():
            return base.joinpath(*parts)
    raise FileNotFoundError(f"the files shipped with handoffd are missing beside {_PACKAGE}")
