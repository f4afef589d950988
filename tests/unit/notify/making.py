"""Sinks that a test controls, and notifiers that run for as long as a block lasts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
from msgspec.structs import replace
from tests.support.notices import NOTICE, MemoryBox

from handoffd.clock import SystemClock
from handoffd.engine.notice import Notice
from handoffd.notify.notifier import Notifier, terms_of
from handoffd.notify.sink_workers import GivenUp
from handoffd.settings.notify import NotifySettings, RemindSettings

QUICK = NotifySettings(backoff_s=0.01, backoff_max_s=0.05, remind=RemindSettings(after_min=()))


NOON = datetime(2026, 1, 12, 12, tzinfo=UTC)
NIGHT = NOON + timedelta(hours=11)
QUIET = {"start": "22:00", "end": "07:00", "timezone": "UTC"}


class WallClock:
    """The machine's monotonic clock, and a wall clock that the test moves."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def move(self, **by: float) -> None:
        """Move it forward, or back."""
        self._now += timedelta(**by)

    def now(self) -> datetime:
        """Return its time."""
        return self._now

    def monotonic(self) -> float:
        """Return seconds since boot."""
        return time.monotonic()


class Recording:
    """A sink that fails `failures` times, then records notices; it waits while `gate` is shut."""

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
        """Count it."""
        self.closed += 1


class Stage:
    """A notifier over a wall clock and a box that outlive it, with recording sinks.

    Only with `real` it has the sinks of its settings instead.
    """

    def __init__(
        self, values: NotifySettings, *sinks: str, at: datetime = NOON, box: MemoryBox | None = None
    ) -> None:
        self.values = values
        self.clock = WallClock(at)
        self.box = box or MemoryBox()
        self.sinks = {name: Recording(name) for name in sinks or ("recording",)}
        self.real = False

    @property
    def sink(self) -> Recording:
        """Return the first sink."""
        return next(iter(self.sinks.values()))

    def got(self, sink: str = "recording") -> list[str]:
        """Return the ids of the notices that a sink has."""
        return self.sinks[sink].got

    @asynccontextmanager
    async def life(self, *sinks: Recording) -> AsyncIterator[Notifier]:
        """Run a notifier for as long as the block lasts."""
        terms = replace(terms_of(self.values), box_retry_s=0.01)
        given = None if self.real else sinks or tuple(self.sinks.values())
        self.notifier = Notifier(self.values, self.clock, self.box, sinks=given, terms=terms, place="/state")
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(self.notifier.run)
                yield self.notifier
                group.cancel_scope.cancel()

    async def send(self, *notices: Notice) -> None:
        """Hand in these notices as orders, and wait until they are recorded and delivered."""
        for notice in notices:
            self.notifier.send(notice, 7)
        await self.settled()

    async def settled(self) -> None:
        """Wait until nothing is left to record or deliver."""
        assert await self.notifier.drain(60)

    async def move(self, **by: float) -> None:
        """Move the clock, and let the notifier notice it."""
        self.clock.move(**by)
        self.notifier.configure(self.values)
        await anyio.wait_all_tasks_blocked()

    async def later(self, **by: float) -> None:
        """Move the clock, and wait until nothing is left to record or deliver."""
        await self.move(**by)
        await self.settled()


def is_running(pid: int) -> bool:
    """Return whether `pid` is a live process (a zombie is not)."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


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


def send(take: Callable[[Notice], object], count: int) -> None:
    """Hand in `count` notices of one track with the ids 0, 1, …."""
    for notice in notices(count):
        take(notice)
