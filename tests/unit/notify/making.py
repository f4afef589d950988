"""Sinks that do as a test says, and a notifier that runs for as long as a block lasts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import anyio
from tests.support.notices import NOTICE, MemoryBox

from handoffd.clock import SystemClock
from handoffd.notify.notice import Notice
from handoffd.notify.notifier import Notifier, terms_of
from handoffd.notify.sink_workers import GivenUp
from handoffd.settings.notify import NotifySettings, RemindSettings

QUICK = NotifySettings(backoff_s=0.01, backoff_max_s=0.05, remind=RemindSettings(after_min=()))


NOON = datetime(2026, 1, 12, 12, tzinfo=UTC)
NIGHT = NOON + timedelta(hours=11)


class WallClock:
    """The machine's clock, and a wall clock that is put by hand."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def move(self, **by: float) -> None:
        """Put it forward, or back."""
        self._now += timedelta(**by)

    def now(self) -> datetime:
        """Return what it shows."""
        return self._now

    def monotonic(self) -> float:
        """Return seconds since boot."""
        return time.monotonic()


class Recording:
    """A sink that fails `failures` times, then notes what it gets; it waits while `gate` is shut."""

    def __init__(self, name: str = "recording", failures: Sequence[Exception] = ()) -> None:
        self.name = name
        self.failures = list(failures)
        self.dead: Exception | None = None
        self.tries = 0
        self.got: list[str] = []
        self.notices: list[Notice] = []
        self.closed = 0
        self.gate = anyio.Event()
        self.gate.set()

    def shut(self) -> None:
        """Let deliveries hang from now on."""
        self.gate = anyio.Event()

    async def deliver(self, notice: Notice) -> None:
        """Deliver, hang or fail."""
        self.tries += 1
        await self.gate.wait()
        if self.dead is not None:
            raise self.dead
        if self.failures:
            raise self.failures.pop(0)
        self.got.append(notice.id)
        self.notices.append(notice)

    def close(self) -> None:
        """Let go."""
        self.closed += 1


@asynccontextmanager
async def running(
    settings: NotifySettings,
    *sinks: Recording,
    box: MemoryBox | None = None,
    lost: list[GivenUp] | None = None,
) -> AsyncIterator[Notifier]:
    """Run a notifier for as long as the block lasts."""
    kept = box if box is not None else MemoryBox()
    terms = replace(terms_of(settings), box_retry_s=0.01)
    notifier = Notifier(settings, SystemClock(), kept, sinks=sinks, terms=terms)
    given_up = [] if lost is None else lost
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(notifier.run, given_up.append)
            yield notifier
            group.cancel_scope.cancel()


def notices(count: int, track: str = "main") -> list[Notice]:
    """Return `count` notices of one track with the ids 0, 1, …."""
    return [replace(NOTICE, id=str(number), track=track) for number in range(count)]
