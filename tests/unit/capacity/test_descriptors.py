"""Descriptors to spare: measured by opening them, with a reserve for when there are none."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from handoffd.capacity.machine import HEADROOM, Descriptors, at_limit, passes_by_itself
from handoffd.errors import HandoffdError


@contextmanager
def room_for(count: int) -> Iterator[None]:
    """Let this process open `count` more files, and fill up what lies below."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = os.open(os.devnull, os.O_RDONLY)
    os.close(last)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, before[1]))
    fill: list[int] = []
    try:
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        while not fill or fill[-1] <= highest:
            fill.append(os.open(os.devnull, os.O_RDONLY))
        resource.setrlimit(resource.RLIMIT_NOFILE, (fill[-1] + 1 + count, before[1]))
        yield
    finally:
        for descriptor in fill:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_with_enough_to_spare_nothing_waits() -> None:
    """And the reserve is whole."""
    descriptors = Descriptors(8)
    assert (False, 8) == (descriptors.short(), descriptors.held)
    descriptors.close()


def test_at_the_limit_the_reserve_is_given_up_and_had_again() -> None:
    """What is free by that alone does not count as enough."""
    descriptors = Descriptors(HEADROOM)
    with room_for(HEADROOM - 1):
        assert (True, 0) == (descriptors.short(), descriptors.held)
        assert descriptors.short()
        os.close(os.open(os.devnull, os.O_RDONLY))  # somebody else's now
    assert (False, HEADROOM) == (descriptors.short(), descriptors.held)
    descriptors.close()


@pytest.mark.parametrize(
    ("number", "limit", "passing"),
    [
        (errno.EMFILE, True, True),
        (errno.ENFILE, True, True),
        (errno.ENOSPC, False, True),
        (errno.EDQUOT, False, True),
        (errno.EROFS, False, True),
        (errno.ENOENT, False, False),
    ],
)
def test_an_error_is_known_by_its_cause(number: int, limit: bool, passing: bool) -> None:
    """However it was put into words."""
    error = HandoffdError("no process could be started")
    error.__cause__ = OSError(number, "why")
    assert (limit, passing) == (at_limit(error), passes_by_itself(error))
