"""In which order waiting tracks are let in: a value-like state without clock, loop or disk.

A pool is anything that is limited: everything together, an executor, an account, a group of projects, a
project. A track needs room in each pool that it belongs to.

Tracks of one project that need the same pools stand in a flow. Flows take turns: a project that was
let in goes to the end, so of n waiting projects each is let in within n grants. A flow whose pools are
full keeps its turn and does not block flows that need other pools. Priority is a head start in time: a point
is worth a number of seconds in line, so a track that is passed over for long enough is next all the same.

Flows that need the same pools have a heap in common, so asking, leaving and granting cost O(log n) and
the number of such combinations. What is outdated in a heap is passed over when it comes up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from handoffd.engine.track import Dispatch, Track, TrackKey
from handoffd.settings.model import ProjectSettings, SchedulingSettings

SlotKind = Literal["all", "executor", "account", "group", "project"]
"""What slots are counted by: everything together, or one of these."""


# --- what a track asks for, and how many of each kind may run ----------------------------------------
class Pool(NamedTuple):
    """A limit on the tracks that run at once. `name` is empty for the limit on all together."""

    kind: SlotKind
    name: str = ""


ALL = Pool("all")


class Bid(Struct, frozen=True, kw_only=True):
    """What a track asks a slot for. `group` and `priority` are its project's own words, if it has any."""

    key: TrackKey
    executor: str
    account: str
    what: str
    """How messages name it when others wait for its end: project, story and step."""
    group: str | None = None
    priority: int | None = None


class Entry(Struct, frozen=True, kw_only=True):
    """A queued bid: its group, its priority, and the limited pools it belongs to.

    Without the pools of its project and of all tracks, which every bid belongs to.
    """

    bid: Bid
    pools: tuple[Pool, ...] = ()
    priority: int = 0
    group: str | None = None

    @property
    def key(self) -> TrackKey:
        """Whose it is."""
        return self.bid.key

    @property
    def all_pools(self) -> tuple[Pool, ...]:
        """Every pool it belongs to, limited or not; the narrowest first."""
        grouped = (Pool("group", self.group),) if self.group is not None else ()
        bid = self.bid
        own = (Pool("account", bid.account), Pool("executor", bid.executor))
        return (Pool("project", bid.key.project), *grouped, *own, ALL)


class Limits(Struct, frozen=True, kw_only=True):
    """How many tracks may run at once: in all, in each of these pools, in each project."""

    total: int
    pools: Mapping[Pool, int] = field(default_factory=dict)
    per_project: int | None = None

    def of(self, pool: Pool) -> int | None:
        """Return the limit of a pool; None if it has none."""
        if pool.kind == "all":
            return self.total
        return self.per_project if pool.kind == "project" else self.pools.get(pool)


def limits_in(total: int, scheduling: SchedulingSettings) -> Limits:
    """Return the limits that the settings hold."""
    pools = {Pool("executor", name): limit for name, limit in scheduling.per_executor.items()}
    pools |= {Pool("account", name): limit for name, limit in scheduling.per_account.items()}
    pools |= {Pool("group", name): one.slots for name, one in scheduling.groups.items() if one.slots}
    return Limits(total=total, pools=pools, per_project=scheduling.per_project)


def group_of(bid: Bid, scheduling: SchedulingSettings) -> str | None:
    """Return the group of a track: the one its project names, else the first that names its project."""
    return bid.group if bid.group is not None else scheduling.group_of(bid.key.project)


def entry_of(bid: Bid, limits: Limits, scheduling: SchedulingSettings) -> Entry:
    """Return a bid's entry in the queue under these settings."""
    name = group_of(bid, scheduling)
    group = scheduling.groups.get(name) if name is not None else None
    pools = [Pool("executor", bid.executor), Pool("account", bid.account)]
    if name is not None:
        pools.append(Pool("group", name))
    priority = bid.priority if bid.priority is not None else group.priority if group is not None else 0
    limited = tuple(pool for pool in pools if limits.of(pool) is not None)
    return Entry(bid=bid, pools=limited, priority=priority, group=name)


def bid_of(key: TrackKey, track: Track, executor: str, account: str, own: ProjectSettings) -> Bid:
    """Return the bid of a track for its next attempt; `own` are the settings of its project."""
    state = track.state
    words = (state.project, state.story, state.step) if state is not None else (key.project,)
    what = " ".join(word for word in words if word)
    return Bid(key=key, executor=executor, account=account, what=what, group=own.group, priority=own.priority)


def bid_of_run(key: TrackKey, track: Track, dispatch: Dispatch, own: ProjectSettings) -> Bid:
    """Return the bid that started an attempt in flight.

    After a restart `own` may not have been read yet, so the group is that of the record.
    """
    bid = bid_of(key, track, dispatch.executor, dispatch.account or dispatch.executor, own)
    return bid if dispatch.group is None else replace(bid, group=dispatch.group)


# --- who runs, counted by pool -----------------------------------------------------------------------
class Held(NamedTuple):
    """An admitted track, and since when it had waited."""

    entry: Entry
    since: float


class Occupancy:
    """The running tracks, in the order of their admission."""

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
        """The entries of all running tracks, the one admitted first at the front."""
        return tuple(held.entry for held in self._held.values())

    @property
    def oldest(self) -> TrackKey | None:
        """The running track that was admitted first."""
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
        """Return a copy in the same state."""
        twin = Occupancy(self.limits)
        twin._held, twin._used = self._held.copy(), self._used.copy()
        return twin


def _counted(entry: Entry) -> tuple[Pool, ...]:
    return (*entry.pools, Pool("project", entry.key.project))


# --- the waiting tracks ------------------------------------------------------------------------------
Pools = tuple[Pool, ...]
Rank = tuple[float, int]
"""The lowest is next: since when it waits, minus its head start; then the order of asking."""

_SPARE = 64
"""Outdated ranks beyond the number of flows that are kept before the heaps are rebuilt."""


class Flow(NamedTuple):
    """Tracks of one project that need the same pools, in the order in which they asked."""

    since: float
    number: int
    priority: int
    keys: tuple[TrackKey, ...]


class RunQueue:
    """The running and the waiting tracks. `head_start_s` is what a point of priority is worth."""

    def __init__(self, limits: Limits, head_start_s: float = 0) -> None:
        self.running = Occupancy(limits)
        """The admitted tracks; changed here only."""
        self._head_start_s = head_start_s
        self._waiting: dict[TrackKey, Entry] = {}
        self._flows: dict[tuple[str, Pools], Flow] = {}
        self._heaps: dict[Pools, list[tuple[Rank, str]]] = {}
        self._pools_of: dict[str, tuple[Pools, ...]] = {}
        """By project, what its flows need."""
        self._aside: set[str] = set()
        """Projects at their own limit: their flows are in no heap until one of their tracks ends."""
        self._number = 0
        self._outdated = 0

    # --- who there is ------------------------------------------------------------------------------
    @property
    def limits(self) -> Limits:
        """The current limits."""
        return self.running.limits

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def waits(self, key: TrackKey) -> bool:
        """Return whether a track waits."""
        return key in self._waiting

    def in_order(self) -> Iterator[tuple[Entry, float]]:
        """Yield each track that waits, with the time since when it has its turn: whose is next, first."""
        for flow in sorted(self._flows.values(), key=self._rank):
            for key in flow.keys:
                yield self._waiting[key], flow.since

    @property
    def entries(self) -> Iterable[Entry]:
        """The entries of all waiting tracks, unordered."""
        return self._waiting.values()

    def entry(self, key: TrackKey) -> Entry | None:
        """Return a track's entry in the queue; None if it does not wait."""
        return self._waiting.get(key)

    # --- coming and going --------------------------------------------------------------------------
    def ask(self, entry: Entry, since: float) -> None:
        """Queue a track as waiting since `since` (in s); a track that is already queued keeps its turn.

        One that runs goes on with that, unless it needs other pools now: then it is the next for them.
        """
        key = entry.key
        if (held := self.running.get(key)) is not None:
            if held.entry.pools == entry.pools:
                return
            since = held.since
            self.release(key)
        elif key in self._waiting:
            before = self._waiting[key]
            flow = self._flows[key.project, before.pools]
            if (before.pools, flow.priority) == (entry.pools, entry.priority):
                self._waiting[key] = entry
                return
            since = flow.since
            self._leave(key)
        self._join(entry, since)

    def occupy(self, entry: Entry, since: float = 0) -> None:
        """Count a track that runs already, whatever the limits."""
        self.release(entry.key)
        self.running.hold(entry, since)

    def release(self, key: TrackKey) -> None:
        """Forget a track, whether it runs or waits."""
        if key in self._waiting:
            self._leave(key)
        if self.running.drop(key) and key.project in self._aside:
            self._aside.discard(key.project)
            for pools in self._pools_of.get(key.project, ()):
                self._push(key.project, pools)

    def keeps(self, key: TrackKey, now: float) -> bool:
        """Return whether a track that ended and asks again now would have its slot back at once.

        If not, it is released: a waiting track is before it, or the limits were lowered.
        """
        held = self.running.get(key)
        if held is None:
            return False
        self.release(key)
        first = self._first()
        again = now - held.entry.priority * self._head_start_s
        is_before = first is not None and self._rank(self._flows[first])[0] <= again
        if is_before or self.running.full(held.entry) is not None:
            return False
        self.running.hold(held.entry, held.since)
        return True

    def next(self) -> TrackKey | None:
        """Return the track to admit now, if any."""
        found = self._first()
        return self._flows[found].keys[0] if found is not None else None

    def grant(self, now: float) -> TrackKey | None:
        """Let the next one in, if there is one and room for it; its project is behind all others then."""
        found = self._first()
        if found is None:
            return None
        (project, pools), flow = found, self._flows[found]
        key = flow.keys[0]
        entry = self._waiting[key]
        for others in self._pools_of[project]:
            behind = self._flows[project, others]
            # One that was passed over because its pools are full does not pay for the others.
            if others != pools and self._rank(behind) > self._rank(flow):
                self._set(project, others, behind._replace(since=now, number=self._next_number()))
        self._leave(key)
        if (rest := self._flows.get(found)) is not None:
            self._set(project, pools, rest._replace(since=now, number=self._next_number()))
        self.running.hold(entry, flow.since)
        return key

    def copy(self) -> RunQueue:
        """Return a copy in the same state, for trying changes."""
        twin = RunQueue(self.limits, self._head_start_s)
        twin.running, twin._waiting = self.running.copy(), self._waiting.copy()
        twin._flows, twin._pools_of = self._flows.copy(), self._pools_of.copy()
        twin._heaps = {pools: heap.copy() for pools, heap in self._heaps.items()}
        twin._aside, twin._number, twin._outdated = self._aside.copy(), self._number, self._outdated
        return twin

    # --- inside ------------------------------------------------------------------------------------
    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _rank(self, flow: Flow) -> Rank:
        return flow.since - flow.priority * self._head_start_s, flow.number

    def _join(self, entry: Entry, since: float) -> None:
        project, pools = entry.key.project, entry.pools
        flow = self._flows.get((project, pools))
        if flow is None:
            flow = Flow(since, self._next_number(), entry.priority, (entry.key,))
            self._pools_of[project] = (*self._pools_of.get(project, ()), pools)
        else:
            flow = Flow(min(flow.since, since), flow.number, entry.priority, (*flow.keys, entry.key))
        self._waiting[entry.key] = entry
        self._set(project, pools, flow)

    def _leave(self, key: TrackKey) -> None:
        project, pools = key.project, self._waiting.pop(key).pools
        flow = self._flows[project, pools]
        rest = tuple(other for other in flow.keys if other != key)
        if rest:
            self._flows[project, pools] = flow._replace(keys=rest)
            return
        del self._flows[project, pools]
        self._outdated += 1
        left = tuple(others for others in self._pools_of[project] if others != pools)
        if left:
            self._pools_of[project] = left
        else:
            del self._pools_of[project]
            self._aside.discard(project)
        if self._outdated > len(self._flows) + _SPARE:
            self._make_heaps_anew()

    def _set(self, project: str, pools: Pools, flow: Flow) -> None:
        if (project, pools) in self._flows:
            self._outdated += 1
        self._flows[project, pools] = flow
        if project not in self._aside:
            self._push(project, pools)

    def _push(self, project: str, pools: Pools) -> None:
        rank = self._rank(self._flows[project, pools])
        heappush(self._heaps.setdefault(pools, []), (rank, project))

    def _make_heaps_anew(self) -> None:
        self._heaps, self._outdated = {}, 0
        for (project, pools), flow in self._flows.items():
            if project not in self._aside:
                self._heaps.setdefault(pools, []).append((self._rank(flow), project))
        for heap in self._heaps.values():
            heapify(heap)

    def _first(self) -> tuple[str, Pools] | None:
        """Return the next flow with free capacity."""
        if len(self.running) >= self.limits.total:
            return None
        best: tuple[Rank, str, Pools] | None = None
        for pools in tuple(self._heaps):
            head = self._head(pools) if self.running.has_room(pools) else None
            if head is not None and (best is None or head < best[:2]):
                best = (*head, pools)
        return best[1:] if best is not None else None

    def _head(self, pools: Pools) -> tuple[Rank, str] | None:
        """Return the head of a heap, rid of what is outdated and of projects that have no room."""
        heap = self._heaps[pools]
        while heap:
            rank, project = heap[0]
            flow = self._flows.get((project, pools))
            if flow is None or self._rank(flow) != rank or project in self._aside:
                self._outdated = max(self._outdated - 1, 0)
            elif self.running.has_room_for(project):
                return heap[0]
            else:
                self._aside.add(project)
            heappop(heap)
        del self._heaps[pools]
        return None


def foreseen(queue: RunQueue, now: float, most: int) -> dict[TrackKey, int]:
    """Return who will be let in first, second, … if what runs ends in the order in which it began.

    At most the first `most`. Nothing of the queue changes.
    """
    ahead, places = queue.copy(), dict[TrackKey, int]()
    while ahead.waiting and len(places) < most:
        if (key := ahead.grant(now)) is not None:
            places[key] = len(places) + 1
        elif (oldest := ahead.running.oldest) is not None:
            ahead.release(oldest)
        else:
            break  # what is left fits in nowhere
    return places
