"""Sends each notice to every sink, and lets none of them hold up anything else.

Whoever decides that a person must be told only appends to a queue. Each sink works its own queue
off, so a webhook that hangs delays neither the command nor the daemon. What cannot be delivered
is logged and given up: the notice is in the journal, and `handoffd status` shows what waits.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence

import anyio
import structlog

from handoffd.clock import Clock
from handoffd.notify.command import CommandSink
from handoffd.notify.notice import Notice
from handoffd.notify.sink import Sink, Undelivered
from handoffd.notify.webhook import WebhookSink
from handoffd.settings import NotifySettings

log = structlog.get_logger(__name__)

QUEUE_LIMIT = 1000


class Notifier:
    """Accepts notices at any time and delivers them while `run` runs."""

    def __init__(
        self,
        settings: NotifySettings,
        clock: Clock,
        *,
        environ: Mapping[str, str] = os.environ,
        sinks: Sequence[Sink] | None = None,
    ) -> None:
        self._events = frozenset[str](settings.events)
        wanted = _sinks(settings, environ) if sinks is None else sinks
        self._lines = [_Line(sink, settings, clock) for sink in wanted]

    def send(self, notice: Notice) -> None:
        """Queue `notice` for every sink if its kind is wanted; never blocks, never raises."""
        if notice.kind in self._events:
            for line in self._lines:
                line.put(notice)

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with anyio.create_task_group() as group:
            for line in self._lines:
                group.start_soon(line.run, name=f"notify by {line.sink.name}")

    async def drain(self, timeout_s: float) -> int:
        """Wait until all that is queued is delivered or given up; return how many are left at the limit.

        `run` must be running meanwhile.
        """
        with anyio.move_on_after(timeout_s):
            for line in self._lines:
                await line.idle.wait()
        left = sum(line.left for line in self._lines)
        if left:
            log.warning("notices left undelivered", count=left)
        return left


def _sinks(settings: NotifySettings, environ: Mapping[str, str]) -> list[Sink]:
    sinks: list[Sink] = []
    if settings.command:
        sinks.append(CommandSink(settings, environ))
    if settings.webhook:
        sinks.append(WebhookSink(settings.webhook))
    return sinks


class _Line:
    """One sink and the notices that wait for it."""

    def __init__(self, sink: Sink, settings: NotifySettings, clock: Clock) -> None:
        self.sink = sink
        self.idle = anyio.Event()
        self.idle.set()
        self._settings = settings
        self._clock = clock
        self._queue: deque[Notice] = deque()
        self._filled = anyio.Event()
        self._in_hand = 0
        self._dropped = 0

    @property
    def left(self) -> int:
        """How many notices are neither delivered nor given up."""
        return len(self._queue) + self._in_hand

    def put(self, notice: Notice) -> None:
        """Append `notice`; the oldest one makes room when there are too many."""
        if len(self._queue) >= QUEUE_LIMIT:
            oldest = self._queue.popleft()
            self._dropped += 1
            log.warning(
                "notice dropped, too many wait", sink=self.sink.name, id=oldest.id, dropped=self._dropped
            )
        self._queue.append(notice)
        if self.idle.is_set():
            self.idle = anyio.Event()
        self._filled.set()

    async def run(self) -> None:
        """Deliver one notice after the other until cancelled."""
        while True:
            while self._queue:
                self._in_hand = 1
                await self._deliver(self._queue.popleft())
                self._in_hand = 0
            self.idle.set()
            self._filled = anyio.Event()
            await self._filled.wait()  # without a limit: there may be nothing to tell for days

    async def _deliver(self, notice: Notice) -> None:
        started = self._clock.monotonic()
        about = {"sink": self.sink.name, "id": notice.id, "kind": notice.kind, "project": notice.project}
        for attempt in range(1, self._settings.tries + 1):
            failure = await self._try(notice)
            if failure is None:
                log.debug("notice delivered", attempt=attempt, **about)
                return
            seconds = round(self._clock.monotonic() - started, 1)
            if not failure.worth_retrying or attempt == self._settings.tries:
                log.error("notice given up", attempts=attempt, seconds=seconds, why=failure.why, **about)
                return
            log.warning("notice not delivered, trying again", attempt=attempt, why=failure.why, **about)
            await anyio.sleep(self._settings.backoff_s * 4 ** (attempt - 1))

    async def _try(self, notice: Notice) -> Undelivered | None:
        try:
            await self.sink.deliver(notice)
        except Undelivered as failure:
            return failure
        except Exception:
            log.exception("notification sink crashed", sink=self.sink.name, id=notice.id)
            return Undelivered("the sink crashed")
        return None
