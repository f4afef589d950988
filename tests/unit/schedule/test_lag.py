"""How late the loop is."""

from __future__ import annotations

import time

import anyio
from tests.support.eventually import eventually

from handoffd.schedule.poller import follow_lag


async def test_what_blocks_the_loop_is_told() -> None:
    """By how much a sleep was too long, once for each."""
    told: list[float] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow_lag, told.append, 0.01)
        await eventually(lambda: len(told) >= 2)
        before = len(told)
        time.sleep(0.1)  # noqa: ASYNC251  (this is what is looked for)
        await eventually(lambda: len(told) > before)
        tasks.cancel_scope.cancel()

    assert max(told[before:]) >= 0.05
    assert min(told) >= 0
