"""The C library's heaps: how many there are, and that what is free in them goes back to the system.

A daemon that lives for weeks makes and drops texts of all sizes. What lies between two that stay is free,
but stays with the process: it looks as if it grew, by some megabytes an hour. Where the C library is another
than glibc, or an older one, nothing happens.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

GIVE_BACK_EVERY_S: Final = 60.0
"""How often. A look at forty megabytes takes a few milliseconds, of which others wait for memory."""

_LARGE_BYTES: Final = 128 * 1024
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""Of glibc's malloc.h."""


def share_heaps() -> None:
    """Have all threads use one heap, whose gaps anybody fills, and keep what is large out of it.

    Large texts have pages of their own, which go back when they go. By itself glibc moves that limit up to
    the largest it ever freed, so that one long list has all later ones tear holes into the heap.
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, 1)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def give_back() -> None:
    """Return to the system what is free in the heaps, in whole pages. For a worker thread."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
