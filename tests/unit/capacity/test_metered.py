"""Work that may take only so much of a processor."""

from __future__ import annotations

import threading
import time

import pytest

from handoffd.capacity.meters import CpuClock, within_cpu


async def test_what_is_done_in_time_is_returned_or_raised_as_it_is() -> None:
    """An error is the work's own, in no group of errors."""
    assert 7 == await within_cpu(lambda _: 7, 60)
    with pytest.raises(ZeroDivisionError):
        await within_cpu(lambda _: 1 // 0, 60)


async def test_work_that_calculates_for_too_long_is_given_up() -> None:
    """By the time it has used itself; a slow machine only makes it later."""
    enough = threading.Event()

    def calculate(meter: CpuClock) -> None:
        meter.limit(0.05)
        while not enough.is_set():
            pass

    with pytest.raises(TimeoutError, match="processor time"):
        await within_cpu(calculate, 600)
    enough.set()


async def test_work_that_only_waits_is_held_to_the_wall_clock() -> None:
    """It uses no processor, and would hold up its caller for ever."""
    enough = threading.Event()

    with pytest.raises(TimeoutError):
        await within_cpu(lambda _: enough.wait(60), 0.05)
    enough.set()


async def test_what_the_thread_has_used_before_the_limit_does_not_count() -> None:
    """Threads come from a pool; and work may begin with what needs no limit."""
    await within_cpu(lambda _: _burn(0.2), 60)

    assert 7 == await within_cpu(_rested, 60)


def _rested(meter: CpuClock) -> int:
    _burn(0.15)
    meter.limit(0.1)
    threading.Event().wait(0.15)
    return 7


def _burn(seconds: float) -> None:
    limit = time.thread_time() + seconds
    while time.thread_time() < limit:
        pass
