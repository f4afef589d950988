"""Where the files that ship with handoffd are.

In a wheel `config/` and `systemd/` lie inside the package under `share/`; in a checkout and in an
editable install they lie at the top of the repository.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shared(*parts: str) -> Path:
    """Return the path of a shipped file or folder, such as `shared("config", "step-rules.yaml")`."""
    for base in (_PACKAGE / "share", _PACKAGE.parents[1]):
        if (base / "config").is_dir():
            return base.joinpath(*parts)
    raise FileNotFoundError(f"the files shipped with handoffd are missing beside {_PACKAGE}")
