"""Threads: few, and as many more as hang."""

from __future__ import annotations

import threading
import time
from statistics import median

import anyio
from anyio import to_thread
from tests.support.eventually import eventually

from handoffd.track.reach import FEW, LOOKS, MOST, allowed, follow

LOOK_S = 0.01


def test_a_few_are_enough_while_all_of_them_come_to_an_end() -> None:
    """However many come and go between two looks."""
    assert FEW == allowed(())
    assert FEW == allowed([1] * 8 + [LOOKS - 1] * 8)


def test_who_hangs_is_replaced() -> None:
    """Up to a limit: a process has only so many threads."""
    assert FEW + 3 == allowed([1, LOOKS, LOOKS + 1, LOOKS, 2])
    assert MOST == allowed([LOOKS] * 1000)


async def test_a_disk_that_hangs_keeps_nobody_else_waiting() -> None:
    """Twice as many as there are places hang; what comes after them has its turn all the same."""
    limiter, hung = anyio.CapacityLimiter(1), threading.Event()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, limiter, LOOK_S)
            for _ in range(2 * FEW):
                tasks.start_soon(lambda: to_thread.run_sync(hung.wait, 60, limiter=limiter))
            await eventually(lambda: 2 * FEW == limiter.borrowed_tokens)
            assert "done" == await to_thread.run_sync(lambda: "done", limiter=limiter)
            hung.set()
            await eventually(lambda: FEW == limiter.total_tokens)
            tasks.cancel_scope.cancel()


async def test_who_is_busy_does_not_hang() -> None:
    """A hundred who make one short visit after the other leave the limit about where it was."""
    limiter, limits = anyio.CapacityLimiter(FEW), list[float]()

    async def visits() -> None:
        while True:
            await to_thread.run_sync(time.sleep, 0.001, limiter=limiter)

    async def note() -> None:
        while len(limits) < 200:
            await anyio.sleep(LOOK_S)
            limits.append(limiter.total_tokens)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, limiter, LOOK_S)
            for _ in range(100):
                tasks.start_soon(visits)
            await note()
            tasks.cancel_scope.cancel()

    assert median(limits) < 2 * FEW  # on a busy machine a visit may last for some looks
