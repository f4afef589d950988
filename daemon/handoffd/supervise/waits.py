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
    """How everybody stands at one moment. `since`: when each began to wait; `places`: who is next."""

    def __init__(
        self, queue: RunQueue, since: Mapping[TrackKey, float], places: Mapping[TrackKey, int]
    ) -> None:
        self._queue = queue
        self._since = since
        self._places = places
        self._holders: dict[Pool, list[str]] = {}
        self._within: dict[Pool, str] = {}
        """Who is in the way, in words, for each pool that somebody was told of."""
        for entry in queue.running.entries:
            for pool in entry.all_pools:
                self._holders.setdefault(pool, []).append(entry.bid.what)

    def place(self, key: TrackKey) -> int | None:
        """Return a track's place, from 1; None for one that is far back, or came later."""
        return self._places.get(key)

    def words(self, key: TrackKey, closed: str | None) -> str | None:
        """Return what a track waits for; `closed` is why the machine takes nobody just now."""
        entry = self._queue.entry(key)
        return self._words(entry, closed) if entry is not None else None

    def _words(self, entry: Entry, closed: str | None) -> str:
        place, full = self._places.get(entry.key), self._queue.running.full(entry)
        where = ordinal(place) if place is not None else f"{ordinal(len(self._places) + 1)} or later"
        if full is not None:
            return f"{where} {_for(full)} ({self._in_use(full)})"
        if closed is None:
            return f"{where} in line"
        return closed if place == 1 else f"{closed}; {where} in line"

    def _in_use(self, pool: Pool) -> str:
        if pool not in self._within:
            holders = self._holders.get(pool, [])
            names = [*holders[:_NAMED], *(["…"] if len(holders) > _NAMED else [])]
            limit = self._queue.limits.of(pool)
            self._within[pool] = f"{len(holders)} of {limit} in use: {', '.join(names)}"
        return self._within[pool]

    def view(self, now: float, closed: str | None) -> SlotsView:
        """Return the limits and those who are next. `now` in seconds, by the clock of `since`."""
        entries = [entry for key in self._places if (entry := self._queue.entry(key)) is not None]
        return SlotsView(
            closed=closed,
            limits=self._limits(),
            waiting=tuple(self._wait(entry, now, closed) for entry in entries),
            waiting_in_all=self._queue.waiting,
        )

    def _limits(self) -> tuple[SlotLimitView, ...]:
        """Return all together, every limit, and whatever somebody runs in; of projects only full ones."""
        waiting = Counter(pool for entry in self._queue.entries for pool in entry.all_pools)
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
            place=self._places[entry.key],
            waited_s=round(max(0.0, now - self._since.get(entry.key, now)), 1),
            why=self._words(entry, closed),
        )
