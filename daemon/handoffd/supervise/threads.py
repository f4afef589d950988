"""How many threads of one kind there may be: few, and more while some of them hang.

Threads that work share one interpreter with the event loop, which then gets its turn less often: with forty
of them it was late by four times as much as with eight, and nothing was done sooner. A thread that waits
for a disk that does not answer takes nothing from anybody but its place. So it is given another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import anyio

FEW: Final = 8
MOST: Final = 200
LOOK_S: Final = 0.5
LOOKS: Final = 4
"""Who had a place at so many looks in a row hangs: whoever comes and goes had it at all of them by chance."""


def allowed(looks: Iterable[int]) -> int:
    """Return how many places there may be. `looks`: at how many in a row each that has one had one."""
    return min(MOST, FEW + sum(count >= LOOKS for count in looks))


async def follow(places: anyio.CapacityLimiter, look_s: float = LOOK_S) -> None:
    """Keep the limit at what is allowed, until cancelled."""
    looks: dict[object, int] = {}
    while True:
        looks = {one: looks.get(one, 0) + 1 for one in places.statistics().borrowers}
        places.total_tokens = allowed(looks.values())
        await anyio.sleep(look_s)
