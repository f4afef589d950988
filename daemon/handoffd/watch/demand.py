"""What watching takes of the kernel's inotify, so that it can be compared with what an account may have.

Each project is one watch (of its `.ai` folder, or of its root). Read directly, all of them are one
instance; watchfiles takes one for each shard.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import ceil

from handoffd.settings.model import WatchSettings

LIMIT_REACHED = "the limit of file watches is reached (fs.inotify.max_user_watches, max_user_instances)"

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


def reads_inotify(settings: WatchSettings) -> bool:
    """Return whether these settings ask the kernel directly, on the system this runs on."""
    return settings.backend == "inotify" or (settings.backend == "auto" and sys.platform == "linux")


def demand(roots: int, settings: WatchSettings) -> Demand:
    """Return what watching `roots` projects takes at the most.

    Read directly, events that do not fit are known to be lost, and a sweep finds their changes within a
    second: the queue need not hold any number of them. With watchfiles it has to hold a burst in which
    each project of a shard has news at once; and a shard is rebuilt beside the old one: for a moment
    the fullest one is there twice.
    """
    if reads_inotify(settings):
        return Demand(watches=roots, instances=1, events=0)
    shards = min(max(ceil(roots / ROOTS_PER_SHARD), 1), settings.shards)
    fullest = max(min(roots, ROOTS_PER_SHARD), ceil(roots / shards))
    return Demand(watches=roots + fullest, instances=shards + 1, events=_EVENTS_PER_ROOT * fullest)
