"""The daemon's parts, without their loops, for a verb that is given while no daemon runs.

Same locks, same code path, nothing dispatched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from dataclasses import dataclass

from handoffd.app.wiring import parts, services_of
from handoffd.fleet.housekeeping import Housekeeping
from handoffd.fleet.roster import Roster
from handoffd.fleet.timetable import Timetable
from handoffd.journal.journal import Journal
from handoffd.settings.model import Settings
from handoffd.track.services import Services


@dataclass(frozen=True, slots=True)
class Offline:
    """What a verb needs while no daemon runs."""

    supervision: Roster
    journal: Journal
    timetable: Timetable
    housekeeping: Housekeeping


@asynccontextmanager
async def offline(settings: Settings, path: str | None = None) -> AsyncIterator[Offline]:
    """Lend the daemon's parts for one verb, which gives what it starts `path` for a PATH, if there is one.

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
