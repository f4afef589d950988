"""Verbs and reads while no daemon runs: the daemon's own parts, in this process, for one question.

Imports all of the daemon; the modules that need it import it when they do.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Container
from pathlib import Path
from typing import Any, TypeVar

import anyio

from handoffd.api.reads import trials_json
from handoffd.api.service import Caller, Service
from handoffd.app.logs import configure_logging
from handoffd.app.offline import Offline, offline, reading
from handoffd.clock import SystemClock
from handoffd.errors import Json
from handoffd.notify.sinks import try_sinks
from handoffd.settings.model import LogSettings, Settings

_T = TypeVar("_T")

Work = Callable[[Service], Awaitable[_T]]


def give(settings: Settings, verb: str, project: str, arguments: dict[str, Any], by: str) -> Json:
    """Return what became of a verb. Raises Locked while a daemon runs."""
    caller = Caller(pid=os.getpid(), by=by)
    return alone(settings, lambda service: service.call(verb, project, arguments, caller))


def add_many(settings: Settings, roots: tuple[str, ...], by: str, *, take: bool) -> Json:
    """Return what became of adding projects. Raises Locked while a daemon runs."""
    caller = Caller(pid=os.getpid(), by=by)
    return alone(settings, lambda service: service.add_many(roots, caller, take=take))


def lift_limit(settings: Settings, account: str, by: str) -> Json:
    """Return what became of lifting an account's limit. Raises Locked while a daemon runs."""
    caller = Caller(pid=os.getpid(), by=by)
    return alone(settings, lambda service: service.lift_limit(account, caller))


def test_notices(settings: Settings, sink: str | None) -> Json:
    """Return how a sample went through one sink, or through all; it takes no journal, and no lock."""
    place, clock = str(settings.state_dir), SystemClock()

    async def run() -> Json:
        trials = await try_sinks(settings.notify, os.environ, clock, only=sink, place=place)
        return trials_json((one.sink, one.form, one.why, one.seconds) for one in trials)

    return _run(run)


def gc(settings: Settings, *, dry_run: bool, by: str) -> Json:
    """Return what was removed, or would be. Raises Locked while a daemon runs."""
    caller = Caller(pid=os.getpid(), by=by)

    def work(service: Service) -> Awaitable[Json]:
        return service.gc(caller, dry_run=dry_run)

    return look(settings, work) if dry_run else alone(settings, work)


def try_tests(settings: Settings, project: str, by: str, path: str | None) -> Json:
    """Return how a project's tests go, with the PATH that a daemon would have; None: with this process's own.

    Raises Locked while a daemon runs.
    """
    caller = Caller(pid=os.getpid(), by=by)
    return alone(settings, lambda service: service.try_tests(project, caller), path)


def alone(settings: Settings, work: Work[_T], path: str | None = None) -> _T:
    """Return what `work` returns, with the daemon's lock held. Raises Locked while a daemon runs."""

    async def run() -> _T:
        async with offline(settings, path) as parts:
            return await work(_service(settings, parts))

    return _run(run)


def look(settings: Settings, work: Work[_T], silent: Container[str] = ()) -> _T:
    """Return what `work` finds out, without a lock; it cannot change anything.

    The folders of `silent` roots are not looked into.
    """

    async def run() -> _T:
        async with reading(settings, silent) as parts:
            return await work(_service(settings, parts))

    if settings.journal.exists():
        return _run(run)
    # Nothing was ever recorded: that is not a reason to make folders in somebody's home.
    with tempfile.TemporaryDirectory(prefix="handoffd-") as empty:
        nowhere = {"state_dir": Path(empty), "runtime_dir": Path(empty), "projects": ()}
        return alone(settings.model_copy(update=nowhere), work)


def _service(settings: Settings, parts: Offline) -> Service:
    return Service(
        parts.supervision,
        parts.journal,
        SystemClock(),
        runs_dir=settings.runs_dir,
        language=settings.language,
        cleaner=parts.housekeeping,
        schedules=parts.timetable.told,
    )


def _run(work: Callable[[], Awaitable[_T]]) -> _T:
    # Warnings of the daemon's parts are for its log; a verb tells what matters in its answer.
    configure_logging(LogSettings(format="text", level="error"), stream=sys.stderr, environment={})
    return anyio.run(work)
