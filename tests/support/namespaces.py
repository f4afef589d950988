"""Programs in namespaces of their own: like the daemon in a person's hardened unit, or in a container."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

_ENTER = ("unshare", "--user", "--map-current-user")
_MOUNT = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'


def in_user_namespace(code: str, *arguments: str) -> str:
    """Return what `code` prints, run from inside a user namespace; skips the test where there is none."""
    _require(_ENTER)
    argv = [*_ENTER, sys.executable, "-c", code, *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout


def reading_boot_id(file: Path) -> tuple[str, ...]:
    """Return what to put before a command that shall read its boot id from `file`, as in a container.

    Skips the test if that is impossible.
    """
    enter = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _MOUNT, str(file))
    _require(enter)
    return enter


@cache
def _possible(enter: tuple[str, ...]) -> bool:
    return subprocess.run([*enter, "true"], check=False, capture_output=True, timeout=60).returncode == 0


def _require(enter: tuple[str, ...]) -> None:
    if not _possible(enter):
        pytest.skip("this account may not make user namespaces here (sysctl user.max_user_namespaces)")
