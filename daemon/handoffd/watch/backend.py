"""What a way of watching folders promises, what it may ask of the watcher, and what it takes of inotify.

Each project is one watch (of its `.ai` folder, or of its root). Read directly, all of them are one
instance; watchfiles takes one for each shard. `demand` tells how many, to be compared with what an account
may have.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from handoffd.settings.model import WatchSettings
from handoffd.watch.folders import Place


class Listener(Protocol):
    """Who is told, on the event loop."""

    def touched(self, roots: Iterable[str]) -> None:
        """Known files of these projects may have changed."""

    def moved(self, roots: Iterable[str]) -> None:
        """The `.ai` folders of these came, went or were replaced: where to watch them is to be found anew."""

    def overflowed(self) -> None:
        """Changes may have been missed, nobody knows of which projects."""

    def barred(self, root: str) -> str | None:
        """Return why this project is not to be watched for a while; None if it may be."""

    def bar(self, root: str, why: str) -> None:
        """Have this project left alone until the next sweep: watching it did harm."""

    async def placed(self, places: Sequence[Place]) -> None:
        """From now on these are watched, or not, as their places say: what fell between is to be found."""


class Backend(Protocol):
    """Watches one folder of each project. A change after `placed` is told of; one before may not be."""

    def add(self, root: str) -> None:
        """Watch this project soon; it is told of by `placed`."""

    def remove(self, root: str) -> None:
        """Watch it no more. What is under way may still be told of."""

    def renew(self, roots: Iterable[str]) -> None:
        """Find anew where these, which were added, are to be watched, soon; told of by `placed`."""

    def recover(self) -> None:
        """Make good for events that were lost, beyond the sweep that has just been made."""

    def configure(self, settings: WatchSettings) -> None:
        """Go by these settings from now on."""

    async def run(self, listener: Listener) -> None:
        """Watch until cancelled; every project is placed first. May be run again."""


# --- what it takes of the kernel's inotify -----------------------------------------------------------
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
