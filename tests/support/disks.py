"""Disks of a test's own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size_mb: int, files: int = 0) -> Iterator[None]:
    """Mount an empty disk of so many MiB and files (0: any number); without the right to, skip the test."""
    options = f"size={size_mb}m,nr_inodes={files}"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
