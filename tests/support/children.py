"""Processes that end with the test that started them.

A `with` block of `subprocess.Popen` waits for the process, also when the block ended by an assertion that
failed: a test whose process waits for something of it would hang for ever, and never say what failed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr


@contextmanager
def ending(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Yield a process that is killed where the block around it fails, and waited for in any case."""
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
