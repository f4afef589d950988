"""How many worker threads there may be: few, and more while some of them hang.

Threads that work share one interpreter with the event loop, which then gets its turn less often: with forty
of them it was late by four times as much as with eight, and nothing was done sooner. A thread that waits
for a disk that does not answer takes nothing from anybody but its place. So it is given another one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import anyio
from anyio import to_thread

FEW: Final = 8
MOST: Final = 200
LOOK_S: Final = 0.5


def allowed(before: Collection[int], now: Collection[int]) -> int:
    """Return how many threads there may be: a few, beside those that were busy at the last look already.

    `before` and `now` are who had a thread then and has one now.
    """
    return min(MOST, FEW + len(set(before).intersection(now)))


async def follow(limiter: anyio.CapacityLimiter | None = None) -> None:
    """Keep the limit of the threads in common (or `limiter`) at what is allowed, until cancelled."""
    threads = limiter or to_thread.current_default_thread_limiter()
    before: frozenset[int] = frozenset()
    while True:
        now = frozenset(map(id, threads.statistics().borrowers))
        threads.total_tokens = allowed(before, now)
        before = now
        await anyio.sleep(LOOK_S)
