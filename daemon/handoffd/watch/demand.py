"""What watching takes of the kernel's inotify, so that it can be compared with what an account may have.

Each project is one watch (of its `.ai` folder, or of its root), each shard one instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from handoffd.settings import WatchSettings

ROOTS_PER_SHARD = 250
"""A further shard is opened beyond this, up to `settings.shards`: each costs idle CPU of its own."""

_EVENTS_PER_ROOT = 16
"""A hand-off with its STATE.json, replaced whole, is about so many events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Watches and instances of one account, and the events that one instance has to queue."""

    watches: int
    instances: int
    events: int


def demand(roots: int, settings: WatchSettings) -> Demand:
    """Return what watching `roots` projects takes at the most.

    A shard is rebuilt beside the old one: for a moment the fullest one is there twice. The queue holds
    a burst in which each project of a shard has news at once.
    """
    shards = min(max(ceil(roots / ROOTS_PER_SHARD), 1), settings.shards)
    fullest = max(min(roots, ROOTS_PER_SHARD), ceil(roots / shards))
    return Demand(watches=roots + fullest, instances=shards + 1, events=_EVENTS_PER_ROOT * fullest)
