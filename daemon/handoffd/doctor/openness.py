"""Files with secrets that more people may read than should."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from handoffd.doctor.finding import Finding, warning


def open_to_others(files: Iterable[Path]) -> tuple[str, ...]:
    """Return those of some files that other accounts may read. Blocks on the disk."""
    return tuple(str(file) for file in files if _is_open(file))


def too_open(check: str, file: str) -> Finding:
    """Return what is to be said of such a file."""
    why = "it holds a secret, and other accounts may read it"
    return warning(check, f"{file} is open to others", why, f"chmod 600 {quote(file)}")


def _is_open(file: Path) -> bool:
    try:
        return bool(stat.S_IMODE(file.stat().st_mode) & 0o044)
    except OSError:
        return False
