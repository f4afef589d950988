"""Sends each notice to every sink, and lets none of them hold up anything else.

Whoever decides that a person must be told only hands the notice in. It is recorded first, for each
sink apart, and then each sink's own line sends it: at least once, under an id that stays the same.
So a webhook that hangs delays neither the command nor the daemon, and a crash loses nothing.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import anyio
import structlog

from handoffd.clock import Clock
from handoffd.errors import StoreError
from handoffd.notify.box import Box, Parcel
from handoffd.notify.line import GivenUp, Line, Terms
from handoffd.notify.notice import Notice
from handoffd.notify.outbox import Pauses
from handoffd.notify.sink import Sink
from handoffd.notify.sinks import sinks_of
from handoffd.notify.unkept import Unkept
from handoffd.settings_notify import NotifySettings

log = structlog.get_logger(__name__)

_BATCH = 200
"""How many notices are recorded at once."""


class Notifier:
    """Accepts notices at any time; records and delivers them while `run` runs."""

    def __init__(
        self,
        settings: NotifySettings,
        clock: Clock,
        box: Box,
        *,
        environ: Mapping[str, str] = os.environ,
        sinks: Sequence[Sink] | None = None,
        terms: Terms | None = None,
    ) -> None:
        self._events = frozenset[str](settings.events)
        self._clock = clock
        self._box = box
        wanted = sinks_of(settings, environ) if sinks is None else sinks
        self._terms = terms = terms or terms_of(settings)
        self._lines = [Line(sink, box, clock, terms, self._lived_s) for sink in wanted]
        self._unkept = [Unkept(sink, terms) for sink in wanted]
        self._names = tuple(sink.name for sink in wanted)
        self._intake: deque[Parcel] = deque()
        self._filled = anyio.Event()
        self._recorded = anyio.Event()
        self._recorded.set()
        self._ahead_s = -clock.monotonic()

    def send(self, notice: Notice, order: int | None = None) -> None:
        """Take a notice in; never blocks, never raises.

        `order` is the number of the order that it comes from: it is done when the notice is recorded,
        and given again after a crash before that.
        """
        sinks = self._names if notice.kind in self._events else ()
        if order is None and not sinks:
            return
        self._intake.append(Parcel(notice=notice, sinks=sinks, order=order))
        self._recorded = anyio.Event()
        self._filled.set()

    def next_tries(self) -> dict[str, float]:
        """Return in how many seconds each sink that rests is tried again."""
        now_s = self._clock.monotonic()
        return {
            line.sink.name: max(0.0, line.next_s - now_s) for line in self._lines if line.next_s is not None
        }

    async def run(self, given_up: Callable[[GivenUp], None] = lambda _: None) -> None:
        """Record and deliver until cancelled; `given_up` hears of what will not be delivered."""
        async with anyio.create_task_group() as group:
            for unkept, name in zip(self._unkept, self._names, strict=True):
                group.start_soon(unkept.run, name=f"notify by {name} from memory")
            await self._open()
            for line in self._lines:
                group.start_soon(line.run, given_up, name=f"notify by {line.sink.name}")
            await self._record()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until all is recorded and nothing is due; return whether that was reached within the limit.

        `run` must be running meanwhile. What rests after a failure is not waited for.
        """
        with anyio.move_on_after(timeout_s) as limit:
            await self._recorded.wait()
            for line in self._lines:
                await line.idle.wait()
        return not limit.cancelled_caught

    def _lived_s(self) -> float:
        """Return how long daemons have lived on this journal, as far as it knows."""
        return self._ahead_s + self._clock.monotonic()

    async def _open(self) -> None:
        while True:
            try:
                opened = await self._box.open(self._names)
            except StoreError as error:
                log.warning("notices cannot be looked up, trying again", error=error.message)
                self._tell_from_memory()
                await anyio.sleep(self._terms.box_retry_s)
                continue
            self._ahead_s += opened.lived_s
            for sink, count in opened.dropped.items():
                log.warning("notices dropped, their sink is not in the settings", sink=sink, count=count)
            return

    async def _record(self) -> None:
        """Record what is handed in, in its order, until cancelled."""
        while True:
            while self._intake:
                batch = [self._intake[number] for number in range(min(_BATCH, len(self._intake)))]
                try:
                    await self._box.keep(batch, self._lived_s())
                except StoreError as error:
                    log.warning("notices not recorded, trying again", count=len(batch), error=error.message)
                    self._tell_from_memory()
                    await anyio.sleep(self._terms.box_retry_s)
                    continue
                for _ in batch:
                    self._intake.popleft()
                for line in self._lines:
                    line.hint()
            self._recorded.set()
            self._filled = anyio.Event()
            await self._filled.wait()  # without a limit: there may be nothing to tell for days

    def _tell_from_memory(self) -> None:
        """Tell at once what nobody would repeat; an order that is not done is given again in any case."""
        kept = [parcel for parcel in self._intake if parcel.order is not None]
        for parcel in self._intake:
            if parcel.order is None:
                for unkept in self._unkept:
                    unkept.put(parcel.notice)
        self._intake.clear()
        self._intake.extend(kept)


def terms_of(settings: NotifySettings) -> Terms:
    """Return how sinks are tried according to the settings."""
    longest_s = max(settings.backoff_s, settings.backoff_max_s)
    pauses = Pauses(first_s=settings.backoff_s, longest_s=longest_s)
    return Terms(pauses=pauses, give_up_s=settings.give_up_h * 3600, jitter=random.random)
