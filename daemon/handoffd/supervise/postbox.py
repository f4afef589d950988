"""Where notices wait until they are delivered: the notifier's box, kept in the journal."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import structlog

from handoffd.engine.track import TrackKey
from handoffd.notify.box import Expired, Opened, Parcel
from handoffd.notify.notice import Notice
from handoffd.notify.outbox import Waiting
from handoffd.store.journal import Journal
from handoffd.store.records import Lapsed, Outgoing

log = structlog.get_logger(__name__)


class Postbox:
    """Fits `notify.box.Box`."""

    def __init__(self, journal: Journal) -> None:
        self._outbox = journal.outbox

    async def open(self, sinks: Collection[str]) -> Opened:
        """Drop what waits for sinks that are not among these, and return what there is."""
        lived_s, dropped = await self._outbox.open(sinks)
        return Opened(lived_s=lived_s, dropped=dropped)

    async def keep(self, parcels: Sequence[Parcel], lived_s: float) -> None:
        """Record notices for their sinks, and their orders as done."""
        await self._outbox.keep([_outgoing(parcel) for parcel in parcels], lived_s)

    async def waiting(self, sink: str, after: int, limit: int) -> tuple[Waiting, ...]:
        """Return what waits for a sink, in order."""
        found = await self._outbox.waiting(sink, after, limit)
        return tuple(Waiting(number=one.number, lane=one.key, tries=one.tries) for one in found)

    async def read(self, number: int) -> Notice | None:
        """Return the notice with this number; None when it cannot be read any more."""
        text = await self._outbox.text(number)
        if text is None:
            return None
        try:
            return Notice.from_json(text)
        except ValueError as error:
            log.warning("a recorded notice cannot be read", number=number, error=str(error))
            return None

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
    )


def _expired(lapsed: Lapsed) -> Expired:
    return Expired(lane=lapsed.key, numbers=lapsed.numbers, first=lapsed.first)
