"""Who runs, counted by pool; and which pools have room."""

from __future__ import annotations

from typing import NamedTuple

from handoffd.engine.track import TrackKey
from handoffd.supervise.pools import ALL, Entry, Limits, Pool


class Held(NamedTuple):
    """A track that was let in, and since when it had waited."""

    entry: Entry
    since: float


class Occupancy:
    """Those that run, in the order in which they were let in."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._held: dict[TrackKey, Held] = {}
        self._used: dict[Pool, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: TrackKey) -> bool:
        return key in self._held

    @property
    def entries(self) -> tuple[Entry, ...]:
        """How each that runs stood in line, the one that was let in first at the front."""
        return tuple(held.entry for held in self._held.values())

    @property
    def oldest(self) -> TrackKey | None:
        """The track that was let in first of those that run."""
        return next(iter(self._held), None)

    def get(self, key: TrackKey) -> Held | None:
        """Return what is known of a track that runs."""
        return self._held.get(key)

    def hold(self, entry: Entry, since: float) -> None:
        """Count a track that runs from now on."""
        self._held[entry.key] = Held(entry, since)
        for pool in _counted(entry):
            self._used[pool] = self._used.get(pool, 0) + 1

    def drop(self, key: TrackKey) -> bool:
        """Count a track no longer; return whether it was counted."""
        held = self._held.pop(key, None)
        if held is None:
            return False
        for pool in _counted(held.entry):
            self._used[pool] -= 1
            if not self._used[pool]:
                del self._used[pool]
        return True

    def used(self, pool: Pool) -> int:
        """Return how many that run belong to a limited pool, to a project, or to all."""
        return len(self._held) if pool == ALL else self._used.get(pool, 0)

    def has_room(self, pools: tuple[Pool, ...]) -> bool:
        """Return whether one more may run in each of these limited pools."""
        return all(self._used.get(pool, 0) < self.limits.pools[pool] for pool in pools)

    def has_room_for(self, project: str) -> bool:
        """Return whether one more of a project may run, as far as that is its own business."""
        most = self.limits.per_project
        return most is None or self._used.get(Pool("project", project), 0) < most

    def full(self, entry: Entry) -> Pool | None:
        """Return the narrowest pool of a track that has no room; None when all have."""
        for pool in entry.all_pools:
            limit = self.limits.of(pool)
            if limit is not None and self.used(pool) >= limit:
                return pool
        return None

    def copy(self) -> Occupancy:
        """Return another one that stands the same."""
        twin = Occupancy(self.limits)
        twin._held, twin._used = self._held.copy(), self._used.copy()
        return twin


def _counted(entry: Entry) -> tuple[Pool, ...]:
    return (*entry.pools, Pool("project", entry.key.project))
