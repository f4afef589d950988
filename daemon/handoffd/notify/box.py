"""What the fan-out asks of whoever keeps notices until they are delivered: the journal, in the daemon.

`lived_s` in these methods is a clock that goes on from one life of the daemon to the next and stands
still between them. Ages are measured by it: neither a jump of the wall clock nor a machine that was
off makes a notice old.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from handoffd.notify.notice import Notice
from handoffd.notify.outbox import Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What an earlier life left: its clock, and how many notices were dropped for each sink that is gone."""

    lived_s: float
    dropped: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A notice, the sinks it is for, and the order it comes from; None: from none, and nobody repeats it."""

    notice: Notice
    sinks: tuple[str, ...]
    order: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """Notices of one track that a sink did not take in their time: their numbers, and the first one's id."""

    lane: tuple[str, str]
    numbers: tuple[int, ...]
    first: str


class Box(Protocol):
    """Keeps notices. All methods raise StoreError when they cannot; nothing has changed then."""

    async def open(self, sinks: Collection[str]) -> Opened:
        """Drop what waits for sinks that are not among these, and return what there is."""

    async def keep(self, parcels: Sequence[Parcel], lived_s: float) -> None:
        """Record notices for their sinks, and their orders as done; one that is there is left as it is."""

    async def waiting(self, sink: str, after: int, limit: int) -> tuple[Waiting, ...]:
        """Return at most `limit` notices with a number above `after` that wait for a sink, in order."""

    async def read(self, number: int) -> Notice | None:
        """Return the notice with this number; None when it cannot be read any more."""

    async def delivered(self, number: int, lived_s: float) -> None:
        """Mark a notice as taken by its sink."""

    async def failed(self, number: int, why: str, lived_s: float) -> None:
        """Count a try that failed."""

    async def give_up(self, number: int, why: str, lived_s: float) -> Expired:
        """Mark one notice as given up; its sink will never take it."""

    async def expire(self, sink: str, age_s: float, lived_s: float) -> tuple[Expired, ...]:
        """Give up what has waited for a sink for `age_s` or longer, by the clock of the daemon's lives."""
