"""The graph of parts, built once: for a daemon, and for a verb that is given without one.

What fits two adapters together that do not know each other is here, too: the notifier and the journal.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Container, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
import structlog
from msgspec import Struct

from handoffd.app.service_manager import ServiceManager
from handoffd.capacity.budgets import Budgets
from handoffd.capacity.machine import RESERVE, Descriptors
from handoffd.capacity.meters import Meters
from handoffd.capacity.slots import Slots
from handoffd.clock import SystemClock
from handoffd.engine.decision import still_waits
from handoffd.engine.track import TrackKey
from handoffd.execute.meter import load_prices
from handoffd.execute.process import Launcher
from handoffd.execute.registry import Layer, load_book, shipped_layer
from handoffd.files.errors import storage_error
from handoffd.files.locks import FileLock, acquire_within, daemon_lock_path
from handoffd.fleet.housekeeping import Housekeeping
from handoffd.fleet.roster import Roster
from handoffd.fleet.timetable import Timetable
from handoffd.journal.journal import Journal
from handoffd.journal.records import Lapsed, Outgoing, StoredMatter
from handoffd.notify.notice import Notice
from handoffd.notify.notifier import Notifier
from handoffd.notify.ports import Expired, Held, Lot, Matter, Opened, Parcel, Reason
from handoffd.notify.retry_policy import Waiting
from handoffd.settings.model import Settings
from handoffd.settings.secrets import opened
from handoffd.track.services import Services

log = structlog.get_logger(__name__)


@asynccontextmanager
async def parts(settings: Settings, lock_within_s: float = 0) -> AsyncIterator[Services]:
    """Lend all parts, alone with the state directory. Raises Locked when it is in use for that long."""
    lock = await _lock(settings, lock_within_s)
    try:
        journal = await Journal.open(settings.journal)
        descriptors = Descriptors(RESERVE)
        try:
            yield services_of(settings, journal, descriptors)
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
    notifier = Notifier(settings.notify, clock, Postbox(journal), place=place, group_of=group_of)
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


# --- the notifier's box -------------------------------------------------------------------------------
_REASONS: Final[tuple[Reason, ...]] = ("quiet", "digest", "burst")


class Postbox:
    """Keeps notices in the journal until they are delivered: the notifier's `Box`."""

    def __init__(self, journal: Journal) -> None:
        self._outbox = journal.outbox

    async def open(self, sinks: Collection[str]) -> Opened:
        """Drop the notices of all other sinks, and return the state of the box."""
        lived_s, dropped = await self._outbox.open(sinks)
        return Opened(lived_s=lived_s, dropped=dropped)

    async def keep(self, parcels: Sequence[Parcel], lived_s: float) -> tuple[Matter, ...]:
        """Record notices for their sinks, and their orders as done; return the matters now open."""
        opened = await self._outbox.keep([_outgoing(parcel) for parcel in parcels], lived_s)
        return tuple(map(_matter, opened))

    async def waiting(self, sink: str, after: int, limit: int) -> tuple[Waiting, ...]:
        """Return the queued notices of a sink, in order."""
        found = await self._outbox.waiting(sink, after, limit)
        return tuple(Waiting(number=one.number, lane=one.key, tries=one.tries) for one in found)

    async def read(self, number: int) -> Notice | None:
        """Return the notice with this number; None when it cannot be read any more."""
        text = await self._outbox.text(number)
        return None if text is None else _notice(text)

    async def held(self) -> tuple[Held, ...]:
        """Return the held notices, except for reasons that only a later release knows."""
        found = await self._outbox.held_back()
        return tuple(
            Held(sink=one.sink, reason=reason, count=one.count, since=one.oldest)
            for one in found
            for reason in _REASONS
            if reason == one.reason
        )

    async def lot(self, sink: str, reason: Reason, limit: int) -> Lot | None:
        """Return the notices that a sink holds for a reason, including the text of the first `limit`."""
        found = await self._outbox.held_lot(sink, reason, limit)
        if found is None:
            return None
        notices = tuple(filter(None, map(_notice, found.bodies)))
        return Lot(upto=found.upto, count=found.count, notices=notices)

    async def fold(self, sink: str, reason: Reason, upto: int, instead: Notice, lived_s: float) -> None:
        """Replace all held notices up to a number with one."""
        parcel = _outgoing(Parcel(notice=instead, sinks=(sink,)))
        await self._outbox.fold(sink, reason, upto, parcel, lived_s)

    async def matters(self) -> tuple[Matter, ...]:
        """Return all that waits for a person."""
        return tuple(map(_matter, await self._outbox.matters()))

    async def outlook(self, notice: str) -> Notice | None:
        """Return the notice of a matter that still waits; None when that is over."""
        now = await self._outbox.matter_now(notice)
        told = None if now is None else _notice(now.body)
        if now is None or told is None or not now.supervised:
            return None
        if now.unsound:
            return told  # nothing is decided on its track before that is repaired
        if told.track and (now.track is None or not still_waits(now.track, told.story, told.step)):
            return None
        return told

    async def settle(self, notices: Sequence[str]) -> None:
        """Forget matters that are over."""
        await self._outbox.settle(notices)

    async def delivered(self, number: int, lived_s: float) -> None:
        """Mark a notice as taken by its sink."""
        await self._outbox.delivered(number, lived_s)

    async def failed(self, number: int, why: str, lived_s: float) -> None:
        """Count a try that failed."""
        await self._outbox.failed(number, why, lived_s)

    async def give_up(self, number: int, why: str, lived_s: float) -> Expired:
        """Mark one notice as given up."""
        return _expired(await self._outbox.give_up(number, why, lived_s))

    async def expire(self, sink: str, age_s: float, lived_s: float) -> tuple[Expired, ...]:
        """Give up what has waited for too long."""
        return tuple(_expired(one) for one in await self._outbox.expire(sink, age_s, lived_s))


def _outgoing(parcel: Parcel) -> Outgoing:
    notice = parcel.notice
    return Outgoing(
        id=notice.id,
        key=TrackKey(notice.project, notice.track),
        at=notice.at,
        body=notice.as_json().encode("utf-8", "replace").decode(),
        sinks=parcel.sinks,
        effect=parcel.order,
        held=parcel.held,
        opens=None if parcel.opens is None else (TrackKey(*parcel.opens.lane), parcel.opens.reached_min),
        climbed=parcel.climbed,
    )


def _notice(text: str) -> Notice | None:
    try:
        return Notice.from_json(text)
    except ValueError as error:
        log.warning("a recorded notice cannot be read", error=str(error))
        return None


def _matter(stored: StoredMatter) -> Matter:
    return Matter(notice=stored.notice, lane=stored.key, since=stored.since, reached_min=stored.reached_min)


def _expired(lapsed: Lapsed) -> Expired:
    return Expired(lane=lapsed.key, numbers=lapsed.numbers, first=lapsed.first)


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
