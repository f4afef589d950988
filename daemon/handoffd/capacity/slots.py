"""How many executors may run at once, whose turn is next, and why the others wait.

The order is the run queue's, whether the machine takes one more is the admission's; here is what these
two need: settings, a clock, measurements of the machine, and a track to wake. Gates, parked and
blocked tracks ask for no slot, so they hold none.

What ends lets the next one in. Where time or the machine decides, `run` looks again; while no track
waits for these it sleeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

import anyio
import structlog
from msgspec import Struct

from handoffd.capacity import admission
from handoffd.capacity.admission import Admission, Closed, Facts
from handoffd.capacity.runqueue import (
    ALL,
    Bid,
    Entry,
    Pool,
    RunQueue,
    SlotKind,
    entry_of,
    foreseen,
    limits_in,
)
from handoffd.clock import Clock, SystemClock
from handoffd.engine.track import TrackKey
from handoffd.settings.model import SchedulingSettings

log = structlog.get_logger(__name__)

FORESEEN: Final = 500
"""Most waiting tracks whose order is computed; computing it for all would block the others."""

SHARE: Final = 0.1
"""At most so much of the time is spent on finding it out, where more than `FEW` wait: it may be old then."""

FEW: Final = 100

FRESH_S: Final = 0.25
"""For so long what was read of the machine is believed; what is started meanwhile is counted anyway."""

_NAMED: Final = 3
"""At most this many blockers are listed."""


class SlotLimitView(Struct, frozen=True, kw_only=True):
    """One limit on concurrent executors, or an account or group of which some run."""

    kind: SlotKind
    name: str
    """The executor's, the account's, the group's, the project's root; empty for all together."""
    limit: int | None
    """None: it has none of its own."""
    in_use: int
    waiting: int
    """How many tracks wait that belong to it."""
    holders: tuple[str, ...]
    """Project, story and step of each that holds a slot."""


class SlotWaitView(Struct, frozen=True, kw_only=True):
    """A track that waits for a slot."""

    project: str
    """The root."""
    track: str
    what: str
    """Project, story and step."""
    executor: str
    account: str
    group: str | None
    priority: int
    place: int
    """From 1: the track starts after this many releases if runs end in the order in which they began."""
    waited_s: float
    why: str


class SlotsView(Struct, frozen=True, kw_only=True):
    """The tracks that run and that wait, the next one first, and the limits."""

    closed: str | None
    """Why the daemon admits no track now, in words."""
    limits: tuple[SlotLimitView, ...]
    waiting: tuple[SlotWaitView, ...]
    """The first ones; the order of tracks far back is not computed."""
    waiting_in_all: int


class Slots:
    """The tracks that hold a slot, and the ones that wait for one. `facts` reads how the machine is."""

    def __init__(
        self,
        total: int,
        scheduling: SchedulingSettings | None = None,
        clock: Clock | None = None,
        facts: Callable[[], Facts] = admission.facts,
    ) -> None:
        self._clock = clock or SystemClock()
        self._read_facts = facts
        self._facts = Facts()
        self._facts_until = 0.0
        self._scheduling = scheduling or SchedulingSettings()
        self._admission = Admission(self._scheduling)
        self._queue = RunQueue(limits_in(total, self._scheduling), self._scheduling.head_start_min * 60)
        self._waiting: dict[TrackKey, tuple[Callable[[], None], float]] = {}
        """Whom to wake, and since when it waits."""
        self._ended: set[TrackKey] = set()
        """Tracks that keep their slot for the moment until they ask again."""
        self._line: Line | None = None
        self._line_until = 0.0
        self._line_changed = True
        self._look_at: float | None = None
        self._rung = anyio.Event()
        self._closed: Closed | None = None
        self._short_since: float | None = None
        """Since when the machine has been short of something, whatever it was at each look."""

    # --- who holds what ----------------------------------------------------------------------------
    @property
    def in_use(self) -> int:
        """How many slots are held."""
        return len(self._queue.running)

    @property
    def total(self) -> int:
        """How many there are."""
        return self._queue.limits.total

    def in_pools(self) -> Mapping[Pool, int]:
        """Return how many run of each executor, account and group that has a limit; others have any name."""
        counts = dict.fromkeys(self.limits, 0)
        for entry in self._queue.running.entries:
            for pool in counts.keys() & set(entry.all_pools):
                counts[pool] += 1
        return counts

    @property
    def limits(self) -> Mapping[Pool, int]:
        """How many of an executor, an account or a group may run at once, where that is limited."""
        return self._queue.limits.pools

    @property
    def groups(self) -> Collection[str]:
        """The groups that the settings know."""
        return self._scheduling.groups.keys()

    @property
    def queued(self) -> int:
        """How many tracks wait for one."""
        return len(self._waiting)

    def holds(self, key: TrackKey) -> bool:
        """Return whether the track holds a slot."""
        return key in self._queue.running

    def waits(self, key: TrackKey) -> bool:
        """Return whether the track is queued."""
        return self._queue.waits(key)

    # --- coming and going --------------------------------------------------------------------------
    def ask(self, bid: Bid, granted: Callable[[], None], waited_s: float = 0) -> bool:
        """Return True if the track has a slot now; else queue it and call `granted` when it has.

        `waited_s`: how long it waited before it was queued here. A queued track keeps its turn.
        """
        key, since = bid.key, self._clock.monotonic() - max(waited_s, 0)
        self._line_changed = True
        if key in self._ended:
            self._ended.discard(key)
            self._queue.release(key)
        entry = self._entry(bid)
        self._queue.ask(entry, since)
        news = key not in self._waiting
        if self._queue.waits(key):
            self._waiting[key] = (granted, since if news else self._waiting[key][1])
        self._let_in(but=key)
        if news and self._queue.waits(key):
            full = self._queue.running.full(entry)
            limit = " ".join(full).strip() if full is not None else "machine"
            log.debug("waits for a slot", project=key.project, track=key.track, limit=limit)
        return key in self._queue.running

    def occupy(self, bid: Bid) -> None:
        """Count an executor that runs already (adopted after a restart), whatever the limit."""
        self._line_changed = True
        self._ended.discard(bid.key)
        self._waiting.pop(bid.key, None)
        self._queue.occupy(self._entry(bid), self._clock.monotonic())

    def ended(self, key: TrackKey) -> None:
        """Take in that an attempt is over and its track asks again in a moment, or else releases.

        Its slot goes to the track before it in line, or is kept free until that one can use it: otherwise
        the most important track would lose its slot to a less important one.
        """
        if key in self._ended or not self.holds(key):
            return
        self._admission.ended(key)
        if self._queue.keeps(key, self._clock.monotonic()):
            self._ended.add(key)
        else:
            self._line_changed = True
            self._let_in()

    def release(self, key: TrackKey) -> None:
        """Give back what the track holds or waits for, and let the next one in."""
        if not self.holds(key) and not self.waits(key):
            return
        self._line_changed = True
        self._ended.discard(key)
        self._admission.ended(key)
        self._waiting.pop(key, None)
        self._queue.release(key)
        self._let_in()

    def configure(self, total: int, scheduling: SchedulingSettings) -> None:
        """Replace the limits: admit tracks that fit now; running tracks above the limits go on."""
        if (total, scheduling) == (self.total, self._scheduling):
            return
        before, self._scheduling, self._line = self._queue, scheduling, None
        self._admission.scheduling = scheduling
        self._queue = RunQueue(limits_in(total, scheduling), scheduling.head_start_min * 60)
        for entry in before.running.entries:
            self._queue.occupy(self._entry(entry.bid), self._clock.monotonic())
        for entry, since in before.in_order():
            self._queue.ask(self._entry(entry.bid), since)
        self._let_in()

    def _entry(self, bid: Bid) -> Entry:
        return entry_of(bid, self._queue.limits, self._scheduling)

    # --- letting in --------------------------------------------------------------------------------
    def _let_in(self, but: TrackKey | None = None) -> None:
        """Give slots to the next tracks as long as there is room; `but` need not be woken."""
        granted: list[Callable[[], None]] = []
        while self._queue.next() is not None and not self._is_closed():
            now = self._clock.monotonic()
            key = self._queue.grant(now)
            assert key is not None
            self._admission.started(key, now)
            wake, _ = self._waiting.pop(key)
            if key != but:
                granted.append(wake)
        if self._queue.next() is None:
            self._closed = self._short_since = None
        for wake in granted:
            wake()

    def _is_closed(self) -> bool:
        """True while admission is closed; re-checked periodically."""
        now = self._clock.monotonic()
        closed = self._admission.closed(self._look(now), now)
        if closed is None or closed.kind == "stagger":
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
            log.warning("nothing is started for now", why=closed.why)
        self._closed = closed
        if closed is None:
            return False
        self._look_at = now + closed.again_s
        self._rung.set()
        return True

    def _look(self, now: float) -> Facts:
        if self._admission.looks and not self._facts_until - FRESH_S <= now < self._facts_until:
            self._facts, self._facts_until = self._read_facts(), now + FRESH_S
        return self._facts

    async def run(self) -> None:
        """Admit tracks that wait for the machine or for their time, until cancelled."""
        while True:
            self._rung = anyio.Event()
            if self._look_at is None:
                await self._rung.wait()  # no limit of the machine: tracks wait only for another one's end
                continue
            left_s = self._look_at - self._clock.monotonic()
            if left_s > 0:
                with anyio.move_on_after(left_s):
                    await self._rung.wait()
                continue
            self._look_at = None
            self._let_in()

    # --- why a track waits -------------------------------------------------------------------------
    def place(self, key: TrackKey) -> int | None:
        """Return the track's place, from 1: it starts after this many releases, if runs end in order.

        None when it does not wait, or when more than `FORESEEN` are before it.
        """
        return self._as_line().place(key) if self.waits(key) else None

    def words(self, key: TrackKey) -> str | None:
        """Return what a queued track waits for, in words; None if it is not queued."""
        return self._as_line().words(key, self._why_closed()) if self.waits(key) else None

    def view(self) -> SlotsView:
        """Return the limits, the running tracks, and the waiting ones, the next one first."""
        return self._as_line().view(self._clock.monotonic(), self._why_closed())

    def shortage(self) -> tuple[str, float] | None:
        """Return what the machine is short of (`memory`, `load`), and for how many seconds of either.

        None when no track waits for it.
        """
        if self._closed is None or self._short_since is None:
            return None
        return self._closed.kind, self._clock.monotonic() - self._short_since

    def _as_line(self) -> Line:
        """Return a snapshot of the queue; a slightly older one while many tracks come and go."""
        now = self._clock.monotonic()
        if self._line is None or (self._line_changed and now >= self._line_until):
            since = {key: waiting[1] for key, waiting in self._waiting.items()}
            self._line = Line(self._queue, since, foreseen(self._queue, now, FORESEEN))
            self._line_changed = False
            took_s = self._clock.monotonic() - now
            self._line_until = now + (took_s / SHARE if self.queued > FEW else 0)
        return self._line

    def _why_closed(self) -> str | None:
        now = self._clock.monotonic()
        closed = self._admission.closed(self._look(now), now)
        return closed.why if closed is not None else None


# --- the line, for people -----------------------------------------------------------------------------
class Line:
    """A snapshot of the queue. `since`: when each began to wait; `places`: the order of admission."""

    def __init__(
        self, queue: RunQueue, since: Mapping[TrackKey, float], places: Mapping[TrackKey, int]
    ) -> None:
        self._queue = queue
        self._since = since
        self._places = places
        self._holders: dict[Pool, list[str]] = {}
        self._within: dict[Pool, str] = {}
        """The blocking tracks of each pool, in words, computed on first use."""
        for entry in queue.running.entries:
            for pool in entry.all_pools:
                self._holders.setdefault(pool, []).append(entry.bid.what)

    def place(self, key: TrackKey) -> int | None:
        """Return a track's place, from 1; None for one that is far back, or came later."""
        return self._places.get(key)

    def words(self, key: TrackKey, closed: str | None) -> str | None:
        """Return what a track waits for; `closed` is why the machine admits none now."""
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
        """Return the limits and the next tracks. `now` in seconds, by the clock of `since`."""
        entries = [entry for key in self._places if (entry := self._queue.entry(key)) is not None]
        return SlotsView(
            closed=closed,
            limits=self._limits(),
            waiting=tuple(self._wait(entry, now, closed) for entry in entries),
            waiting_in_all=self._queue.waiting,
        )

    def _limits(self) -> tuple[SlotLimitView, ...]:
        """Return the overall limit, all named limits, and pools in use; of projects only full ones."""
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
