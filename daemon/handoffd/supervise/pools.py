"""What a track that wants to run asks for, and how many of each kind may run at once.

A pool is anything that is limited: everything together, an executor, an account, a group of projects,
a project. A track needs room in each pool that it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from handoffd.engine.track import Dispatch, Track, TrackKey
from handoffd.engine.views import SlotKind
from handoffd.settings.model import ProjectSettings, SchedulingSettings


class Pool(NamedTuple):
    """Something of which only so many tracks may run at once. `name` is empty for all together."""

    kind: SlotKind
    name: str = ""


ALL = Pool("all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """What a track asks a slot for. `group` and `priority` are its project's own words, if it has any."""

    key: TrackKey
    executor: str
    account: str
    what: str
    """How people are told of it where others wait for its end: project, story and step."""
    group: str | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A bid as it stands in line: its group, its priority, and which limited pools it belongs to.

    Without the pools of its project and of all, which everybody belongs to.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
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
    """Return how a bid stands in line under these settings."""
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
    """Return the bid that an attempt in flight was started on, as far as its record tells."""
    return bid_of(key, track, dispatch.executor, dispatch.account or dispatch.executor, own)
