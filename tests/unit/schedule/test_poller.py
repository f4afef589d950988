"""Jobs beat at their interval through errors, overlaps, clock changes and shutdown."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import anyio
import anyio.lowlevel
import pytest
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from tests.support.eventually import eventually

from handoffd.schedule.poller import Scheduler, _arm, _Beat, _Every, _keep, follow_lag

QUICK_S = 0.02


@asynccontextmanager
async def running(scheduler: Scheduler) -> AsyncIterator[None]:
    """Run `scheduler` for as long as the block lasts."""
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(scheduler.run)
            yield
            group.cancel_scope.cancel()


class Count:
    """A job that counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

    async def job(self) -> None:
        """Count."""
        self.runs += 1


async def test_a_job_runs_again_and_again() -> None:
    """Every job has its own beat."""
    quick, slow = Count(), Count()
    scheduler = Scheduler()
    scheduler.every("quick", QUICK_S, quick.job)
    scheduler.every("slow", 3600, slow.job)

    async with running(scheduler):
        await eventually(lambda: 5 <= quick.runs)

    assert 0 == slow.runs


async def test_an_error_ends_only_the_run_it_happened_in() -> None:
    """A job that fails is run again at the next beat."""
    count = Count()

    async def job() -> None:
        await count.job()
        raise RuntimeError("this run failed")

    scheduler = Scheduler()
    scheduler.every("failing", QUICK_S, job)

    async with running(scheduler):
        await eventually(lambda: 3 <= count.runs)


async def test_a_job_never_runs_beside_itself() -> None:
    """Rings during a long run become one run afterwards, and no other job waits for it."""
    release, other = anyio.Event(), Count()
    at_once, most, runs = 0, 0, 0

    async def long() -> None:
        nonlocal at_once, most, runs
        at_once, runs = at_once + 1, runs + 1
        most = max(most, at_once)
        await release.wait()
        at_once -= 1

    scheduler = Scheduler()
    scheduler.every("long", QUICK_S, long)
    scheduler.every("other", QUICK_S, other.job)

    async with running(scheduler):
        await eventually(lambda: 1 == runs and 10 <= other.runs)
        assert 1 == runs
        release.set()
        await eventually(lambda: 3 <= runs)

    assert 1 == most


async def test_a_shielded_write_is_finished_when_the_scheduler_is_cancelled() -> None:
    """A cancellation passes through a job, but not through what the job shields."""
    started, written = anyio.Event(), []

    async def job() -> None:
        started.set()
        with anyio.CancelScope(shield=True):
            for number in range(3):
                await anyio.lowlevel.checkpoint()
                written.append(number)
        await anyio.sleep_forever()
        written.append(99)

    scheduler = Scheduler()
    scheduler.every("writing", QUICK_S, job)

    async with running(scheduler):
        await started.wait()

    assert [0, 1, 2] == written


async def test_it_can_be_run_again() -> None:
    """A cancelled run leaves nothing that a second one would trip over."""
    count = Count()
    scheduler = Scheduler()
    scheduler.every("job", QUICK_S, count.job)

    for _ in range(2):
        before = count.runs
        async with running(scheduler):
            await eventually(lambda before=before: count.runs > before)  # type: ignore[misc]


async def test_a_clock_set_back_delays_a_job_by_less_than_an_interval() -> None:
    """When wall time says that the next run is an hour away, the job runs all the same, and goes on."""
    count = Count()
    beat = _Beat("poll", 0.05, count.job)
    scheduler = AsyncIOScheduler(timezone=UTC)
    scheduler.start()
    _arm(scheduler, beat)
    scheduler.modify_job("poll", next_run_time=datetime(2100, 1, 1, tzinfo=UTC) + timedelta(hours=1))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(_keep, scheduler, beat)
            await eventually(lambda: 3 <= count.runs)
            group.cancel_scope.cancel()
    assert scheduler.get_job("poll").next_run_time.year < 2100
    scheduler.shutdown(wait=False)
    await anyio.lowlevel.checkpoint()


def test_two_jobs_of_one_name_are_a_bug() -> None:
    """Names tell jobs apart in the log."""
    scheduler = Scheduler()
    scheduler.every("poll", 1, Count().job)

    with pytest.raises(AssertionError):
        scheduler.every("poll", 1, Count().job)


async def test_a_job_may_get_another_interval() -> None:
    """Also while it runs."""
    count = Count()
    scheduler = Scheduler()
    scheduler.every("job", 3600, count.job)
    scheduler.change("job", 1800)

    async with running(scheduler):
        await anyio.lowlevel.checkpoint()
        scheduler.change("job", QUICK_S)
        await eventually(lambda: 3 <= count.runs)


@pytest.mark.parametrize("missed_s", [0, 0.1, 0.2, 7.05, 40 * 365 * 24 * 3600.0])
def test_however_much_was_missed_it_is_one_run(missed_s: float) -> None:
    """A clock that had stopped for years and is set right costs one step, and the beat is kept."""
    every, began = _Every(0.2), datetime(2026, 1, 1, tzinfo=UTC)
    now = began + timedelta(seconds=missed_s)

    following = every.get_next_fire_time(began, now)

    assert now < following <= now + timedelta(seconds=0.2)
    assert timedelta(0) == (following - began) % timedelta(seconds=0.2)
    assert now + timedelta(seconds=0.2) == every.get_next_fire_time(None, now)
    assert began + timedelta(seconds=0.2) == every.get_next_fire_time(began, began - timedelta(days=1))


# --- how late the loop is -----------------------------------------------------------------------------
async def test_a_blocked_loop_is_reported() -> None:
    """By how much each sleep was too long."""
    lags: list[float] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow_lag, lags.append, 0.01)
        await eventually(lambda: len(lags) >= 2)
        before = len(lags)
        time.sleep(0.1)  # noqa: ASYNC251  (the fault to be found)
        await eventually(lambda: len(lags) > before)
        tasks.cancel_scope.cancel()

    assert max(lags[before:]) >= 0.05
    assert min(lags) >= 0
