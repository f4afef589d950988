"""What wakes a loop that has nothing to do."""

from __future__ import annotations

import asyncio


class Bell:
    """Rung by whoever has work, waited for by the one loop that does it, and hushed before it looks.

    anyio's events cannot be cleared, and each brings a queue of half a kilobyte for those who wait. Thousands
    of loops that take a new one for every fact leave gaps all over the heap.
    """

    __slots__ = ("_rung",)

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    @property
    def rung(self) -> bool:
        """Whether it was rung since it was hushed."""
        return self._rung.is_set()

    def ring(self) -> None:
        """Wake the loop, or have it not wait next time."""
        self._rung.set()

    def hush(self) -> None:
        """Have the next wait wait."""
        self._rung.clear()

    async def wait(self) -> None:
        """Return once it is rung. No limit: not rung means nothing to do."""
        await self._rung.wait()
