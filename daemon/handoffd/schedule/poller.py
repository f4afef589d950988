"""Runs jobs at fixed intervals.

APScheduler keeps the times; the jobs themselves run in a task group of ours. Its own executor
would start each as a task without an owner and cancel it natively at shutdown, which breaks through
anyio's shields, such as the one around a journal write. So APScheduler only sets an event (it "rings").

It uses wall time. A clock that is set back would make a job wait out the difference; hence a job
waits for a ring a little over one interval at most, measured by the loop's own clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import structlog
from anyio import to_thread
from msgspec import Struct, field

if TYPE_CHECKING:
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

log = structlog.get_logger(__name__)


Job = Callable[[], Awaitable[None]]

_PATIENCE = 1.5
"""Intervals after which a ring is overdue: the wall clock was set back, or the scheduler is stuck."""

_DEFAULTS = {
    "coalesce": True,
    "max_instances": 1,
    "misfire_grace_time": None,  # the default of 1 s skips the run when the loop stalled or the machine slept
}


class _Every:
    """Fires once per interval of `seconds`; any number of missed times is one fire.

    The library's own trigger computes each missed time in turn, which blocks the event loop for a minute when
    a clock that had stopped for months is set right. It is registered as one of the library's triggers, not
    derived from them, because a daemon answers before it imports the library.
    """

    def __init__(self, seconds: float) -> None:
        self._interval = timedelta(seconds=seconds)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        """Return the next time after `previous_fire_time` that is in the future."""
        if previous_fire_time is None:
            return now + self._interval
        missed = max(0, (now - previous_fire_time) // self._interval)
        return previous_fire_time + (missed + 1) * self._interval


class _Beat(Struct):
    name: str
    seconds: float
    job: Job
    rung: anyio.Event = field(default_factory=anyio.Event)

    async def ring(self) -> None:
        """Let the job run. Any rings while it runs make one run afterwards."""
        self.rung.set()


class Scheduler:
    """Runs each job at its interval, first after one interval, never twice at a time."""

    def __init__(self) -> None:
        self._beats: dict[str, _Beat] = {}
        self._scheduler: AsyncIOScheduler | None = None

    def every(self, name: str, seconds: float, job: Job) -> None:
        """Run `job` every `seconds` once `run` is called. What it raises is logged and ends only that run."""
        assert name not in self._beats, f"two jobs are called {name}"
        assert seconds > 0, f"{name} has no interval"
        self._beats[name] = _Beat(name, seconds, job)

    def change(self, name: str, seconds: float) -> None:
        """Run a job every `seconds` from now on."""
        assert seconds > 0, f"{name} has no interval"
        beat = self._beats[name]
        if beat.seconds != seconds:
            beat.seconds = seconds
            if self._scheduler is not None:
                _arm(self._scheduler, beat)

    async def run(self) -> None:
        """Run the jobs until cancelled; a cancellation reaches a running job at its next checkpoint."""
        scheduler = (await to_thread.run_sync(_library))(timezone=UTC, job_defaults=_DEFAULTS)
        scheduler.start()
        self._scheduler = scheduler
        try:
            async with anyio.create_task_group() as group:
                for beat in self._beats.values():
                    _arm(scheduler, beat)
                    group.start_soon(_keep, scheduler, beat, name=f"every {beat.seconds} s: {beat.name}")
        finally:
            self._scheduler = None
            await _shut_down(scheduler)


def _library() -> type[AsyncIOScheduler]:
    """Import APScheduler, which takes 20 ms or more; return its class."""
    from apscheduler.schedulers.asyncio import AsyncIOScheduler  # noqa: PLC0415  (see above)
    from apscheduler.triggers.base import BaseTrigger  # noqa: PLC0415

    BaseTrigger.register(_Every)
    return AsyncIOScheduler  # type: ignore[no-any-return]  # the library has no types


def _arm(scheduler: AsyncIOScheduler, beat: _Beat) -> None:
    """Let the beat ring from one interval from now on."""
    scheduler.add_job(beat.ring, _Every(beat.seconds), id=beat.name, name=beat.name, replace_existing=True)


async def _keep(scheduler: AsyncIOScheduler, beat: _Beat) -> None:
    while True:
        with anyio.move_on_after(beat.seconds * _PATIENCE):
            await beat.rung.wait()
        if not beat.rung.is_set():
            log.warning("the scheduler is late, starting its interval again", job=beat.name)
            _arm(scheduler, beat)
        beat.rung = anyio.Event()
        await _run_once(beat)


async def _run_once(beat: _Beat) -> None:
    try:
        await beat.job()
    except Exception:
        log.exception("a scheduled job failed", job=beat.name)


async def _shut_down(scheduler: AsyncIOScheduler) -> None:
    """Shut the scheduler down, which it does in a callback: give the loop one turn for it."""
    scheduler.shutdown(wait=False)
    with anyio.CancelScope(shield=True):
        await anyio.lowlevel.checkpoint()


# --- how late the event loop is ----------------------------------------------------------------------
EVERY_S: Final = 1.0


async def follow_lag(told: Callable[[float], None], every_s: float = EVERY_S) -> None:
    """Report, once in `every_s`, by how many seconds a sleep of that length was too long; until cancelled.

    Whatever keeps the event loop busy for too long at a stretch shows there.
    """
    while True:
        due = anyio.current_time() + every_s
        await anyio.sleep_until(due)
        told(max(0.0, anyio.current_time() - due))
