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

from handoffd.errors import StoreError
from handoffd.store.faults import storage_error
from handoffd.supervise.notices import room_notice
from handoffd.supervise.reach import LIMIT_S, Reach
from handoffd.supervise.services import Services

log = structlog.get_logger(__name__)

_MIB = 1024 * 1024

_AGAIN = 2
"""People are told of a file system again once it had so many times the room that is asked for."""


class Space(NamedTuple):
    """A file system by a folder on it; `free_bytes` is what an ordinary account may still take."""

    folder: str
    device: int
    free_bytes: int


class Shortage(NamedTuple):
    """Why nothing can be dispatched, and what to type about it."""

    why: str
    action: str


def first_short(spaces: Iterable[Space], min_free_mb: int) -> Space | None:
    """Return the first file system with less than `min_free_mb` MiB free, if there is one."""
    return next((space for space in spaces if space.free_bytes < min_free_mb * _MIB), None)


def relieved(spaces: Iterable[Space], min_free_mb: int) -> frozenset[int]:
    """Return the devices with so much room that a later shortage is news.

    One that hovers about the limit is told of once.
    """
    enough = _AGAIN * min_free_mb * _MIB
    return frozenset(space.device for space in spaces if space.free_bytes >= enough)


class Room:
    """The room for the attempts of one project."""

    def __init__(self, root: str, services: Services) -> None:
        self._root = root
        self._services = services
        self._folders = (str(services.settings.state_dir), root)
        self._reach = Reach(root, services)

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
        found = Shortage(
            f"room on the disk: {short.free_bytes // _MIB} MiB are free at {short.folder}, "
            f"execute.min_free_mb asks for {wanted_mb}",
            f"df -h {quote(short.folder)}",
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
    return Space(folder, device, seen.f_bavail * seen.f_frsize)
