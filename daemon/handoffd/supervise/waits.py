"""Why tracks wait for a slot, in words, and the table of all slots: the run queue, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from handoffd.engine.track import TrackKey
from handoffd.engine.views import SlotLimitView, SlotsView, SlotWaitView
from handoffd.supervise.pools import ALL, Entry, Pool
from handoffd.supervise.runqueue import RunQueue

_NAMED: Final = 3
"""So many of those are named that somebody waits for."""


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, …"""
    last = 0 if 11 <= number % 100 <= 13 else number % 10
    ending = {1: "st", 2: "nd", 3: "rd"}.get(last, "th")
    return f"{number:,}{ending}"


def _for(pool: Pool) -> str:
    """Return what a place in line is for."""
    match pool.kind:
        case "all":
            return "for a slot"
        case "executor":
            return f"for {'an' if pool.name[:1].lower() in 'aeiou' else 'a'} {pool.name} slot"
        case "account":
            return f"for a slot of account {pool.name}"
        case "group":
            return f"in group {pool.name}"
        case "project":
            return "in its project"


class Line:
    """How everybody stands at one moment. `since`: when each began to wait; `places`: who is how far."""

    def __init__(
        self, queue: RunQueue, since: Mapping[TrackKey, float], places: Mapping[TrackKey, int]
    ) -> None:
        self._queue = queue
        self._since = since
        self._places = places
        self._holders: dict[Pool, list[str]] = {}
        for entry in queue.held:
            for pool in entry.all_pools:
                self._holders.setdefault(pool, []).append(entry.bid.what)

    def place(self, key: TrackKey) -> int | None:
        """Return a track's place, from 1; None for one that is far back."""
        return self._places.get(key)

    def words(self, key: TrackKey, closed: str | None) -> str | None:
        """Return what a track waits for; `closed` is why the machine takes nobody just now."""
        entry = self._queue.entry(key)
        return self._words(entry, closed) if entry is not None else None

    def _words(self, entry: Entry, closed: str | None) -> str:
        place, full = self._places.get(entry.key), self._queue.full(entry)
        where = ordinal(place) if place is not None else f"{ordinal(len(self._places) + 1)} or later"
        if full is not None:
            return f"{where} {_for(full)} ({self._in_use(full)})"
        if closed is None:
            return f"{where} in line"
        return closed if place == 1 else f"{closed}; {where} in line"

    def _in_use(self, pool: Pool) -> str:
        holders = self._holders.get(pool, [])
        names = [*holders[:_NAMED], *(["…"] if len(holders) > _NAMED else [])]
        return f"{len(holders)} of {self._queue.limits.of(pool)} in use: {', '.join(names)}"

    def view(self, now: float, closed: str | None) -> SlotsView:
        """Return all of it. `now` in seconds, by the clock of `since`."""
        entries = [entry for entry, _ in self._queue.in_order()]
        entries.sort(key=lambda entry: self._places.get(entry.key, len(entries) + 1))
        return SlotsView(
            closed=closed,
            limits=self._limits(entries),
            waiting=tuple(self._wait(entry, now, closed) for entry in entries),
        )

    def _limits(self, entries: list[Entry]) -> tuple[SlotLimitView, ...]:
        """Return all together, every limit, and whatever somebody runs in; of projects only full ones."""
        waiting = Counter(pool for entry in entries for pool in entry.all_pools)
        known = dict.fromkeys((ALL, *self._queue.limits.pools, *sorted(self._holders)))
        shown = (pool for pool in known if pool.kind != "project" or waiting[pool])
        return tuple(
            SlotLimitView(
                kind=pool.kind,
                name=pool.name,
                limit=self._queue.limits.of(pool),
                in_use=len(self._holders.get(pool, ())),
                waiting=waiting[pool],
                holders=tuple(self._holders.get(pool, ())),
            )
            for pool in shown
        )

    def _wait(self, entry: Entry, now: float, closed: str | None) -> SlotWaitView:
        bid = entry.bid
        return SlotWaitView(
            project=bid.key.project,
            track=bid.key.track,
            what=bid.what,
            executor=bid.executor,
            account=bid.account,
            group=entry.group,
            priority=entry.priority,
            place=self._places.get(entry.key),
            waited_s=round(max(0.0, now - self._since.get(entry.key, now)), 1),
            why=self._words(entry, closed),
        )
