"""Python run in a user namespace of its own, as the hardened unit of a person runs the daemon."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

_ENTER = ("unshare", "--user", "--map-current-user")


def in_user_namespace(code: str, *arguments: str) -> str:
    """Return what `code` prints, run from inside a user namespace; skips the test where there is none."""
    if not _possible():
        pytest.skip("this account may not make user namespaces here (sysctl user.max_user_namespaces)")
    argv = [*_ENTER, sys.executable, "-c", code, *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout


@cache
def _possible() -> bool:
    return subprocess.run([*_ENTER, "true"], check=False, capture_output=True, timeout=60).returncode == 0
