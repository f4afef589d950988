"""Notices that could not be recorded: those that tell of a full disk, above all.

They are sent from memory, a few times, in the order in which they came, and are lost with the process.
"""

from __future__ import annotations

from collections import deque

import anyio
import structlog

from handoffd.notify.line import Terms, attempt
from handoffd.notify.notice import Notice
from handoffd.notify.sink import Sink

log = structlog.get_logger(__name__)

MOST = 100
"""How many wait at once; the oldest makes room."""
TRIES = 6


class Unkept:
    """What one sink is told from memory."""

    def __init__(self, sink: Sink, terms: Terms) -> None:
        self._sink = sink
        self.terms = terms
        self._waiting: deque[Notice] = deque(maxlen=MOST)
        self._filled = anyio.Event()

    def put(self, notice: Notice) -> None:
        """Take a notice; never blocks."""
        self._waiting.append(notice)
        self._filled.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            while self._waiting:
                await self._deliver(self._waiting.popleft())
            self._filled = anyio.Event()
            await self._filled.wait()  # no limit: as a rule there is nothing here

    async def _deliver(self, notice: Notice) -> None:
        about = {"sink": self._sink.name, "id": notice.id, "project": notice.project}
        why = ""
        for tries in range(1, TRIES + 1):
            failure = await attempt(self._sink, notice)
            if failure is None:
                log.info("notice delivered that could not be recorded", **about)
                return
            why = failure.why
            if not failure.worth_retrying or tries == TRIES:
                break
            await anyio.sleep(self.terms.pauses.after(tries, self.terms.jitter()))
        log.error("notice given up that could not be recorded", why=why, **about)
