"""What was handed in and is not recorded yet, in its order: notices, and that something waits no more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from handoffd.notify.box import Lane, Parcel


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing waits for a person any more in a lane."""

    lane: Lane


class Intake:
    """A queue of both. That a lane is over is in it once, however often it is said."""

    def __init__(self) -> None:
        self._queue: deque[Parcel | Over] = deque()
        self._latest: dict[Lane, bool] = {}
        """For each lane whether something waits in it, by what was put in last."""

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, parcel: Parcel) -> None:
        """Take a notice in."""
        self._queue.append(parcel)
        if parcel.opens is not None:
            self._latest[parcel.opens.lane] = True

    def put_over(self, lane: Lane, waits: Callable[[], bool]) -> bool:
        """Take in that a lane is over; return whether that may be news.

        `waits` tells whether something waits in it by what was taken out before.
        """
        latest = self._latest.get(lane)
        if latest is False or (latest is None and not waits()):
            return False
        self._queue.append(Over(lane))
        self._latest[lane] = False
        return True

    def parcels(self, most: int) -> list[Parcel]:
        """Return the first notices; none when a lane that is over comes before."""
        found = []
        for one in islice(self._queue, most):
            if not isinstance(one, Parcel):
                break
            found.append(one)
        return found

    def overs(self) -> list[Lane]:
        """Return the first lanes that are over; none when a notice comes before."""
        found = []
        for one in self._queue:
            if not isinstance(one, Over):
                break
            found.append(one.lane)
        return found

    def take(self, count: int) -> None:
        """Take the first out: they are recorded."""
        for _ in range(count):
            self._queue.popleft()
        if not self._queue:
            self._latest.clear()

    def take_those_of_no_order(self) -> list[Parcel]:
        """Take out the notices that nobody would repeat."""
        taken = [one for one in self._queue if isinstance(one, Parcel) and one.order is None]
        self._queue = deque(one for one in self._queue if isinstance(one, Over) or one.order is not None)
        return taken
