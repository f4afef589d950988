"""The graph of parts, built once: for a daemon, and for a verb that is given without one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager

import anyio
from msgspec import Struct

from handoffd.app.service_manager import ServiceManager
from handoffd.capacity.budgets import Budgets
from handoffd.capacity.machine import RESERVE, Descriptors
from handoffd.capacity.meters import Meters
from handoffd.capacity.slots import Slots
from handoffd.clock import SystemClock
from handoffd.execute.meter import load_prices
from handoffd.execute.process import Launcher
from handoffd.execute.registry import Layer, load_book, shipped_layer
from handoffd.files.errors import storage_error
from handoffd.files.locks import FileLock, acquire_within, daemon_lock_path
from handoffd.fleet.housekeeping import Housekeeping
from handoffd.fleet.roster import Roster
from handoffd.fleet.timetable import Timetable
from handoffd.journal.journal import Journal
from handoffd.notify.notifier import Notifier
from handoffd.settings.model import Settings
from handoffd.settings.secrets import opened
from handoffd.track.services import Services


@asynccontextmanager
async def parts(settings: Settings) -> AsyncIterator[Services]:
    """Lend all parts, alone with the state directory. Raises Locked when it is in use."""
    async with stored(settings) as (journal, descriptors):
        yield services_of(settings, journal, descriptors)


@asynccontextmanager
async def stored(settings: Settings, lock_within_s: float = 0) -> AsyncIterator[tuple[Journal, Descriptors]]:
    """Lend the journal, and the descriptors that it needs, alone with the state directory.

    Raises Locked when that is in use for so long.
    """
    lock = await _lock(settings, lock_within_s)
    try:
        journal = await Journal.open(settings.journal)
        descriptors = Descriptors(RESERVE)
        try:
            yield journal, descriptors
        finally:
            descriptors.close()  # this process may go on, and give the next verb
            with anyio.CancelScope(shield=True):  # what is queued for the journal must reach it
                await journal.close()
    finally:
        lock.release()


async def _lock(settings: Settings, within_s: float) -> FileLock:
    for folder in (settings.state_dir, settings.runtime_dir, settings.runs_dir):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error("make the folder", folder, error) from error
    path = daemon_lock_path(settings.state_dir)
    return await acquire_within(path, f"the state directory {settings.state_dir}", within_s)


def services_of(settings: Settings, journal: Journal, descriptors: Descriptors | None = None) -> Services:
    """Return the parts over an open journal."""
    clock = SystemClock()
    environment = {**os.environ, **opened(settings.execute.keys)}
    managed = ServiceManager.from_environment(environment, clock).present
    place, group_of = str(settings.state_dir), settings.scheduling.group_of
    notifier = Notifier(settings.notify, clock, journal.outbox, place=place, group_of=group_of)
    own = Layer(file="handoffd.yaml", definitions=settings.executors, line_of=lambda _: None)
    return Services(
        settings=settings,
        journal=journal,
        launcher=Launcher(settings.launcher_socket, managed=managed),
        executors=load_book(shipped_layer(), own),
        notifier=notifier,
        slots=Slots(settings.execute.slots, settings.scheduling, clock),
        budgets=Budgets(settings.caps, clock, notifier.send, place),
        prices=load_prices(settings.prices),
        clock=clock,
        environment=environment,
        meters=Meters(settings.execute.meter_s, clock),
        descriptors=descriptors or Descriptors(),
    )


# --- without a daemon ---------------------------------------------------------------------------------
# The same parts without their loops, for one verb: same locks, same code path, nothing dispatched.
class Offline(Struct, frozen=True):
    """What a verb needs while no daemon runs."""

    supervision: Roster
    journal: Journal
    timetable: Timetable
    housekeeping: Housekeeping


@asynccontextmanager
async def offline(settings: Settings, path: str | None = None) -> AsyncIterator[Offline]:
    """Lend the daemon's parts for one verb; `path`, if given, becomes the PATH of the processes it starts.

    Raises Locked while a daemon runs.
    """
    async with parts(settings) as services:
        if path is not None:
            services.environment["PATH"] = path
        roster = Roster(services)
        await roster.load()
        try:
            yield Offline(roster, services.journal, Timetable(services, roster), _keeping(services, roster))
        finally:
            roster.close()
            if services.launcher.started:  # for checks; nothing else needs it
                await services.launcher.retire()


def _keeping(services: Services, roster: Roster) -> Housekeeping:
    return Housekeeping(services, roster.names)


@asynccontextmanager
async def reading(settings: Settings, silent: Container[str] = ()) -> AsyncIterator[Offline]:
    """Lend the parts for a look, without any lock: nothing can be changed through them.

    The folders of `silent` roots are not looked into.
    """
    journal = await Journal.open_to_read(settings.journal)
    try:
        services = services_of(settings, journal)
        roster = Roster(services)
        await roster.load()
        try:
            await roster.inspect(silent)
            yield Offline(roster, journal, Timetable(services, roster), _keeping(services, roster))
        finally:
            roster.close()
    finally:
        await journal.close()
