"""The pace at which one project is told to look again.

A file that is written to without a pause sends an event each time, and a look costs more than the
write. The first event counts at once; what follows within a moment becomes one hint at its end.
And what goes may be on its way with all around it (`rm -r`, a change of branches): whoever mended that at
once would be in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import anyio


class Pace:
    """Passes first hints on at once, and those that follow them at the next tick, `rest_s` seconds later.

    While nothing is hinted there are no ticks.
    """

    def __init__(self, rest_s: float) -> None:
        self._rest_s = rest_s
        self._deliver: Callable[[Iterable[str]], None] = _to_nobody
        self._told: set[str] = set()
        self._owed: set[str] = set()
        self._later: set[str] = set()
        self._wake = anyio.Event()

    def hint(self, roots: Iterable[str]) -> None:
        """Take news of these; of each, it is delivered now or with the next tick."""
        roots = set(roots)
        self._owed |= roots & self._told
        if first := roots - self._told:
            self._told |= first
            self._wake.set()
            self._deliver(first)

    def hint_later(self, roots: Iterable[str]) -> None:
        """Take news of these that can wait; of each, it is delivered after `rest_s` at the least."""
        self._later.update(roots)
        self._wake.set()

    async def run(self, deliver: Callable[[Iterable[str]], None]) -> None:
        """Deliver until cancelled; what was hinted before is forgotten."""
        self._deliver = deliver
        self._told, self._owed, self._later, self._wake = set(), set(), set(), anyio.Event()
        while True:
            await self._wake.wait()  # no limit: without a hint there is nothing to do
            await anyio.sleep(self._rest_s)
            self._told, self._owed, self._later = self._owed, self._later, set()
            if self._told:
                self._deliver(frozenset(self._told))
            elif not self._owed:
                self._wake = anyio.Event()


def _to_nobody(roots: Iterable[str]) -> None:
    """Nobody listens yet."""
