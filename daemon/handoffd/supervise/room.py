"""Whether there is room on the disk for one more executor.

A full disk costs results: hand-offs, the journal, the work itself. So before an attempt begins, the
file systems of the state directory and of the project are looked at, and with too little room on one
of them nothing is dispatched onto it. What runs goes on. The poller asks again, so a track that waits
goes on by itself when there is room.

The look is taken by a thread that is given up after a moment, as a mount may hang (see `reach`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import structlog
from anyio import CapacityLimiter

from handoffd.errors import StoreError
from handoffd.store.faults import storage_error
from handoffd.supervise.notices import room_notice
from handoffd.supervise.reach import LIMIT_S, Reach
from handoffd.supervise.services import Services

log = structlog.get_logger(__name__)

_MIB = 1024 * 1024

_MIN_FREE_FILES = 1000
"""An attempt makes some dozens; file systems with a fixed number of them run out of that, too."""

_AGAIN = 2
"""People are told of a file system again once it had so many times the room that is asked for."""


class Space(NamedTuple):
    """A file system by a folder on it, and what an ordinary account may still take of it.

    `free_files` is None where their number is not limited.
    """

    folder: str
    device: int
    free_bytes: int
    free_files: int | None = None

    def lacks(self, min_free_mb: int, times: int = 1) -> str | None:
        """Return what there is too little of, in words; None when there is enough."""
        if self.free_bytes < times * min_free_mb * _MIB:
            free_mb = self.free_bytes // _MIB
            return f"{free_mb} MiB are free at {self.folder}, execute.min_free_mb asks for {min_free_mb}"
        if self.free_files is not None and self.free_files < times * _MIN_FREE_FILES:
            return f"only {self.free_files} more files (inodes) fit on the disk of {self.folder}"
        return None


class Shortage(NamedTuple):
    """Why nothing can be dispatched, and what to type about it."""

    why: str
    action: str
    told: bool = False
    """Whether people were told of the disk; of one that does not answer they are not."""


def first_short(spaces: Iterable[Space], min_free_mb: int) -> Space | None:
    """Return the first file system with less than `min_free_mb` MiB or too few files free, if any."""
    return next((space for space in spaces if space.lacks(min_free_mb)), None)


def relieved(spaces: Iterable[Space], min_free_mb: int) -> frozenset[int]:
    """Return the devices with so much room that a later shortage is news.

    One that hovers about the limit is told of once.
    """
    return frozenset(space.device for space in spaces if not space.lacks(min_free_mb, _AGAIN))


class Room:
    """The room for the attempts of one project; of the state directory alone, for those of all."""

    def __init__(self, root: str, services: Services, asking: CapacityLimiter | None = None) -> None:
        self._root = root
        self._services = services
        self._folders = (str(services.settings.state_dir), root)
        self._reach = Reach(root, services, asking)

    async def shortage(self, limit_s: float = LIMIT_S) -> Shortage | None:
        """Return why nothing may be dispatched now; None when there is room. People are told once."""
        wanted_mb = self._services.settings.execute.min_free_mb
        if wanted_mb == 0:
            return None
        try:
            spaces = await self._reach.asked(partial(_spaces, self._folders), limit_s)
        except StoreError as error:
            return Shortage(error.message, error.hint or f"df -h {quote(self._root)}")
        short, told = first_short(spaces, wanted_mb), self._services.told_of_disks
        told -= relieved(spaces, wanted_mb)
        if short is None:
            return None
        look = "df -h" if short.free_bytes < wanted_mb * _MIB else "df -i"
        found = Shortage(
            f"room on the disk: {short.lacks(wanted_mb)}", f"{look} {quote(short.folder)}", told=True
        )
        if short.device not in told:
            told.add(short.device)
            log.warning("disk short, nothing is dispatched", folder=short.folder, free_bytes=short.free_bytes)
            notice = room_notice(self._root, found.why, found.action, self._services.clock)
            self._services.notifier.send(notice)
        return found


def _spaces(folders: Iterable[str]) -> tuple[Space, ...]:
    return tuple(_space(folder) for folder in folders)


def _space(folder: str) -> Space:
    try:
        seen, device = os.statvfs(folder), Path(folder).stat().st_dev
    except OSError as error:
        raise storage_error("see how much room there is", folder, error) from error
    free_files = seen.f_favail if seen.f_files else None  # some file systems make them as they go
    return Space(folder, device, seen.f_bavail * seen.f_frsize, free_files)
