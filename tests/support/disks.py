"""Disks of a test's own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size_mb: int, files: int = 0) -> Iterator[None]:
    """Mount an empty disk of this size and number of files (0: the default); else skip the test."""
    options = f"size={size_mb}m" + (f",nr_inodes={files}" if files else "")
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """Refuse every change below a folder (EROFS), where this account may mount; else the test is skipped.

    A disk cannot be made read-only while a process has a file open for writing, so the folder is mounted
    onto itself: files that are already open can be written as before.
    """
    if subprocess.run(["mount", "--bind", place, place], check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)
