"""How many executors may run at once, and whose turn is next.

First come, first served: a track that waits is never overtaken. Gates, parked and blocked tracks
ask for no slot, so they hold none.
"""

from __future__ import annotations

from collections.abc import Callable

from handoffd.engine.track import TrackKey


class Slots:
    """A counted set of holders and a queue of tracks that wait to become one."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._holders: set[TrackKey] = set()
        self._waiting: dict[TrackKey, Callable[[], None]] = {}

    @property
    def in_use(self) -> int:
        """How many slots are held."""
        return len(self._holders)

    @property
    def total(self) -> int:
        """How many there are."""
        return self._total

    @property
    def queued(self) -> int:
        """How many tracks wait for one."""
        return len(self._waiting)

    def holds(self, key: TrackKey) -> bool:
        """Return whether the track holds a slot."""
        return key in self._holders

    def waits(self, key: TrackKey) -> bool:
        """Return whether the track stands in line."""
        return key in self._waiting

    def ask(self, key: TrackKey, granted: Callable[[], None]) -> bool:
        """Return True if the track has a slot now; else queue it and call `granted` when it has."""
        if key in self._holders:
            return True
        if len(self._holders) < self._total and not self._waiting:
            self._holders.add(key)
            return True
        self._waiting[key] = granted
        return False

    def occupy(self, key: TrackKey) -> None:
        """Count an executor that runs already (adopted after a restart), whatever the limit."""
        self._waiting.pop(key, None)
        self._holders.add(key)

    def release(self, key: TrackKey) -> None:
        """Give back what the track holds or waits for, and let the next one in."""
        self._waiting.pop(key, None)
        self._holders.discard(key)
        while self._waiting and len(self._holders) < self._total:
            following = next(iter(self._waiting))
            granted = self._waiting.pop(following)
            self._holders.add(following)
            granted()

    def place(self, key: TrackKey) -> int | None:
        """Return the track's place in the queue, from 1; None when it does not wait."""
        return next((place for place, other in enumerate(self._waiting, 1) if other == key), None)
