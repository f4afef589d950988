"""The port between the watcher and a way of watching folders, and how much of inotify each way needs.

Each project is one watch (of its `.ai` folder, or of its root). Read directly, all of them are one
instance; watchfiles takes one for each shard. `demand` returns the numbers, to be compared with an account's
limits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from math import ceil
from typing import Protocol

from msgspec import Struct

from handoffd.settings.model import WatchSettings
from handoffd.watch.folders import Place


class Listener(Protocol):
    """What a backend calls, on the event loop."""

    def touched(self, roots: Iterable[str]) -> None:
        """Known files of these projects may have changed."""

    def moved(self, roots: Iterable[str]) -> None:
        """The `.ai` folders of these came, went or were replaced: find anew where to watch them."""

    def overflowed(self) -> None:
        """Changes of any project may have been missed."""

    def barred(self, root: str) -> str | None:
        """Return why this project must not be watched for a while; None if it may be."""

    def bar(self, root: str, why: str) -> None:
        """Do not watch this project until the next sweep: watching it did harm."""

    async def placed(self, places: Sequence[Place]) -> None:
        """From now on these are watched, or not, as their places say: find changes made before."""


class Backend(Protocol):
    """Watches one folder of each project. It reports changes after `placed`, but may miss earlier ones."""

    def add(self, root: str) -> None:
        """Watch this project soon, and then call `placed`."""

    def remove(self, root: str) -> None:
        """Stop watching it. Changes under way may still be reported."""

    def renew(self, roots: Iterable[str]) -> None:
        """Find anew where to watch these, which were added, soon, and then call `placed`."""

    def recover(self) -> None:
        """Make up for lost events, beyond the sweep that has just been made."""

    def configure(self, settings: WatchSettings) -> None:
        """Use these settings from now on."""

    async def run(self, listener: Listener) -> None:
        """Watch until cancelled; every project is placed first. May be run again."""


# --- how much of the kernel's inotify is needed ------------------------------------------------------
LIMIT_REACHED = "the limit of file watches is reached (fs.inotify.max_user_watches, max_user_instances)"

ROOTS_PER_SHARD = 250
"""Beyond this a further shard is opened, up to `settings.shards`: each costs idle CPU of its own."""

_EVENTS_PER_ROOT = 16
"""About as many events as a hand-off with its STATE.json, replaced whole, causes."""


class Demand(Struct, frozen=True, kw_only=True):
    """Watches and instances of one account, and the events that one instance has to queue."""

    watches: int
    instances: int
    events: int


def reads_inotify(settings: WatchSettings) -> bool:
    """Return whether these settings ask the kernel directly, on the system this runs on."""
    return settings.backend == "inotify" or (settings.backend == "auto" and sys.platform == "linux")


def demand(roots: int, settings: WatchSettings) -> Demand:
    """Return what watching `roots` projects needs at most.

    Read directly, the kernel reports lost events, and a sweep finds their changes within a second: the queue
    may be short. With watchfiles it has to hold a burst of changes in every project of a shard; and a shard
    is rebuilt beside the old one: for a moment the fullest one exists twice.
    """
    if reads_inotify(settings):
        return Demand(watches=roots, instances=1, events=0)
    shards = min(max(ceil(roots / ROOTS_PER_SHARD), 1), settings.shards)
    fullest = max(min(roots, ROOTS_PER_SHARD), ceil(roots / shards))
    return Demand(watches=roots + fullest, instances=shards + 1, events=_EVENTS_PER_ROOT * fullest)
