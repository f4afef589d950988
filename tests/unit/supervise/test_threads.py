"""Worker threads: few, and as many more as hang."""

from __future__ import annotations

import threading

import anyio
from anyio import to_thread
from tests.support.eventually import eventually

from handoffd.supervise.threads import FEW, MOST, allowed, follow


def test_a_few_are_enough_while_all_of_them_come_to_an_end() -> None:
    """However busy they are."""
    assert FEW == allowed((), ())
    assert FEW == allowed(range(8), range(8, 16))


def test_who_hangs_is_replaced() -> None:
    """Up to a limit: a process has only so many threads."""
    assert FEW + 3 == allowed(range(8), range(5, 13))
    assert MOST == allowed(range(1000), range(1000))


async def test_a_disk_that_hangs_keeps_nobody_else_waiting() -> None:
    """Twice as many as there are places hang; what comes after them has its turn all the same."""
    limiter, hung = anyio.CapacityLimiter(1), threading.Event()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, limiter)
            for _ in range(2 * FEW):
                tasks.start_soon(lambda: to_thread.run_sync(hung.wait, 60, limiter=limiter))
            await eventually(lambda: 2 * FEW == limiter.borrowed_tokens)
            assert "done" == await to_thread.run_sync(lambda: "done", limiter=limiter)
            hung.set()
            await eventually(lambda: FEW == limiter.total_tokens)
            tasks.cancel_scope.cancel()
