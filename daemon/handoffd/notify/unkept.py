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

_OVER = "its sink is not in the settings any more, or the daemon ends"


class Unkept:
    """What one sink is told from memory, also when its settings change."""

    def __init__(self, sink: Sink, terms: Terms) -> None:
        self._sink = sink
        self.terms = terms
        self._waiting: deque[Notice] = deque(maxlen=MOST)
        self._filled = anyio.Event()
        self._changed = anyio.Event()
        self._finishing = False
        self.begun = False
        """Whether it runs, or has run; whoever starts it says so."""
        self.ended = anyio.Event()
        """Set when it has run."""

    def put(self, notice: Notice) -> None:
        """Take a notice; never blocks."""
        if self._finishing:
            self._lose(notice, _OVER)
        else:
            self._waiting.append(notice)
            self._filled.set()

    def go_by(self, sink: Sink) -> None:
        """Tell by another sink from now on: what waits, and the one in hand if it is not taken."""
        self._sink = sink
        self._changed.set()

    def finish(self) -> None:
        """Begin nothing more. What is being sent goes on to its end, and is not tried again."""
        self._finishing = True
        self._changed.set()
        self._filled.set()

    async def run(self) -> None:
        """Deliver until cancelled, or told to finish; what is lost with that is logged."""
        try:
            while not self._finishing:
                self._filled = anyio.Event()
                while self._waiting and not self._finishing:
                    await self._deliver(self._waiting.popleft())
                if not self._finishing:
                    await self._filled.wait()  # no limit: as a rule there is nothing here
        finally:
            while self._waiting:
                self._lose(self._waiting.popleft(), _OVER)
            self._sink.close()
            self.ended.set()

    async def _deliver(self, notice: Notice) -> None:
        while True:
            sink, self._changed = self._sink, anyio.Event()
            why = await self._try(sink, notice)
            if sink is not self._sink:
                sink.close()  # its line may have let go of it before
            if why is None or self._finishing or not self._changed.is_set():
                break
        if why is None:
            log.info("notice delivered that could not be recorded", **self._about(notice))
        else:
            self._lose(notice, why)

    async def _try(self, sink: Sink, notice: Notice) -> str | None:
        """Try a few times, or until something has changed; return why it failed, None when it did not."""
        why = ""
        for tries in range(1, TRIES + 1):
            failure = await attempt(sink, notice)
            if failure is None:
                return None
            why = failure.why
            if not failure.worth_retrying or tries == TRIES:
                break
            with anyio.move_on_after(self.terms.pauses.after(tries, self.terms.jitter())):
                await self._changed.wait()
                break
        return why

    def _lose(self, notice: Notice, why: str) -> None:
        log.error("notice given up that could not be recorded", why=why, **self._about(notice))

    def _about(self, notice: Notice) -> dict[str, str]:
        return {"sink": self._sink.name, "id": notice.id, "project": notice.project}
