"""Freed memory returns to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
from pathlib import Path
from handoffd.app.daemon import give_back, share_heaps

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

share_heaps()
texts = [bytes(3000) for _ in range(20_000)]  # from the C library's heap
last = bytes(3000)
before = resident()
texts.clear()
gaps = resident()
give_back()
print(before, gaps, resident(), len(last))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library knows no such calls")
def test_gaps_return_to_the_system() -> None:
    """Freed texts leave sixty megabytes of gaps below the remaining one, which alone is kept."""
    command = [sys.executable, "-c", PROGRAM]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    before, gaps, after, _ = map(int, output.split())

    assert gaps > 0.9 * before
    assert after < before - 0.8 * 20_000 * 3000 / 4096
