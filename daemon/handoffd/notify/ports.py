"""What the notifier asks of others: a box that keeps notices, and sinks that take them.

The box is the journal, in the daemon. `lived_s` in its methods is a clock that goes on from one life of the
daemon to the next and does not move between them. Ages are measured by it: neither a jump of the wall clock
nor a machine that was off makes a notice old.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from handoffd.engine.notice import Expired, Held, Lot, Matter, Notice, Opened, Parcel, Reason, Waiting

LASTING = "~"
"""Prefix of the topic of a lasting matter: only a check of the project can tell that it is over."""


class Box(Protocol):
    """Keeps notices. All methods raise StoreError when they cannot; nothing has changed then."""

    async def open(self, sinks: Collection[str]) -> Opened:
        """Drop notices for sinks that are not among these, and return the stored state."""

    async def keep(self, parcels: Sequence[Parcel], lived_s: float) -> tuple[Matter, ...]:
        """Record notices for their sinks, and their orders as done; one that is there is left as it is.

        Returns the matters that wait for the user from now on.
        """

    async def waiting(self, sink: str, after: int, limit: int) -> tuple[Waiting, ...]:
        """Return at most `limit` notices with a number above `after` that wait for a sink, in order."""

    async def held(self) -> tuple[Held, ...]:
        """Return what is held back."""

    async def lot(self, sink: str, reason: Reason, limit: int) -> Lot | None:
        """Return the notices held back for a reason, with the first `limit` ones; None if there are none."""

    async def fold(self, sink: str, reason: Reason, upto: int, instead: Notice, lived_s: float) -> None:
        """Have one notice take the place of all that is held back up to a number."""

    async def matters(self) -> tuple[Matter, ...]:
        """Return all that waits for a person."""

    async def outlook(self, notice: str) -> Notice | None:
        """Return the notice of a matter that still waits; None when that is over."""

    async def settle(self, notices: Sequence[str]) -> None:
        """Forget matters that are over, by the ids of their notices."""

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


# --- sinks -------------------------------------------------------------------------------------------
class Undelivered(Exception):
    """A notice did not get through. Not `worth_retrying`: this sink will never take this very notice.

    The message is logged, so it must hold nothing secret.
    """

    def __init__(self, why: str, *, worth_retrying: bool = True) -> None:
        super().__init__(why)
        self.why = why
        self.worth_retrying = worth_retrying


class Sink(Protocol):
    """A way to reach a person."""

    name: str

    async def deliver(self, notice: Notice) -> None:
        """Deliver one notice within the sink's own time limit, or raise Undelivered."""

    def close(self) -> None:
        """Let go of what it holds while it has nothing to do; the next delivery takes it up again."""
