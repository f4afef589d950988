"""What those wait with who have nothing to do, or whose turn it is not: light while nobody waits.

The events and locks of asyncio and anyio have a queue each, of three quarters of a kilobyte, for those that
wait. Thousands of loops that take new ones, or meet at one now and then, leave gaps all over the heap.
"""

from __future__ import annotations

import asyncio


class Bell:
    """Rung by whoever has work, waited for by those that do it, and hushed before they look."""

    __slots__ = ("_rung", "_waiting")

    def __init__(self) -> None:
        self._rung = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def rung(self) -> bool:
        """Whether it was rung since it was hushed."""
        return self._rung

    def ring(self) -> None:
        """Wake those that wait, or have nobody wait next time."""
        self._rung = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    def hush(self) -> None:
        """Have the next wait wait."""
        self._rung = False

    async def wait(self) -> None:
        """Return once it is rung. No limit: not rung means nothing to do."""
        if self._rung:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            self._waiting.remove(waiter)


class Lock(asyncio.Lock):
    """A lock that lets go of its queue when it is released and nobody waits in it."""

    def release(self) -> None:
        """Have the next one go on, if there is one."""
        super().release()
        if not getattr(self, "_waiters", True):  # CPython's own name for it: None until somebody waits
            self._waiters = None
