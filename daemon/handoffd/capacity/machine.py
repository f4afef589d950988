"""What is wrong with the machine as a whole: a journal that takes nothing, a full disk, no descriptors left.

Lasting lack of memory or high load belong here, too. None of it is the fault of a project, so one notice
reports it, not one per project. The daemon tries blocked starts again every few seconds, and when the cause
is gone all waiting tracks go on.

*Descriptors.* At its limit a process can neither lock a project, nor read a hand-off, nor accept a
connection, and which of these fails first is chance. So an attempt begins only with some descriptors to
spare, and a reserve is kept open from the start: it is closed when the limit is reached, so that people are
still answered, and what runs is still looked after, while nothing new is started.

*Disks.* A full disk costs results: hand-offs, the journal, the work itself. So before an attempt begins, the
file systems of the state directory and of the project are checked, and with too little room on one of them
nothing is dispatched onto it. What runs goes on. The poller asks again, so a track that waits goes on by
itself when there is room. A mount may hang, so the look is given up after a moment.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote
from typing import NamedTuple, Protocol, TypeVar

import structlog

from handoffd.capacity.slots import Slots
from handoffd.clock import Clock
from handoffd.engine.wording import counted
from handoffd.errors import HandoffdError, StoreError
from handoffd.files.errors import DISK_FULL, storage_error
from handoffd.journal.journal import Journal
from handoffd.notify.notices import machine_notice, room_notice
from handoffd.notify.notifier import Notifier
from handoffd.settings.model import Settings

log = structlog.get_logger(__name__)

RETRY_S = 5.0
"""How often a journal that could not be written is tried again."""

CALM_S = 600.0
"""After a calm of this length a shortage causes a new notice; sooner it counts as the same trouble."""

SHORT_S = 600.0
"""A notice is sent when tracks have waited this long for memory or load, as runs may free some."""

OUT_OF_MEMORY = "there has been too little free memory for long (scheduling.min_free_memory_mb)"
OVERLOADED = "the load has been too high for long (scheduling.max_load_per_core)"
OUT_OF_DESCRIPTORS = "the daemon has reached its limit of open files"
_AT_LIMIT = frozenset({errno.EMFILE, errno.ENFILE})
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

_DISK = "disk"
_READ_ONLY = "findmnt -O ro"

HEADROOM = 32
"""How many more files must be possible before an attempt begins: it needs about ten for a moment."""

RESERVE = 32

_MIB = 1024 * 1024

_MIN_FREE_FILES = 1000
"""An attempt makes some dozens; file systems with a fixed number of them run out of that, too."""

_AGAIN = 2
"""A file system must have this multiple of the required room before a new notice about it."""

_T = TypeVar("_T")


class Probe(Protocol):
    """Looks at a folder in a thread that may hang. Raises StoreError when there is no answer in time."""

    async def asked(self, look: Callable[[], _T]) -> _T:
        """Return what `look` finds."""


class Host(Protocol):
    """What all projects share, as far as it is looked after here."""

    @property
    def settings(self) -> Settings:
        """The current settings."""

    @property
    def journal(self) -> Journal:
        """Tried again while it takes nothing."""

    @property
    def slots(self) -> Slots:
        """The slots, which measure memory and load."""

    @property
    def descriptors(self) -> Descriptors:
        """The file descriptors of this process."""

    @property
    def notifier(self) -> Notifier:
        """Tells people."""

    @property
    def clock(self) -> Clock:
        """Tells the time."""

    @property
    def told_of_disks(self) -> set[int]:
        """Devices for which a notice about low space was sent, until there is plenty again."""


class Machine:
    """Looks after what all projects share. `recovered` is awaited when a trouble is over.

    `probe` must not wait behind projects that hang: this look is also that at the journal.
    """

    def __init__(self, host: Host, recovered: Callable[[], Awaitable[None]], probe: Probe) -> None:
        self._host = host
        self._recovered = recovered
        self._room = Room(str(host.settings.state_dir), host, probe)
        self._disk_told = False
        """Whether a notice about the full disk was sent."""
        self._tried_at = host.clock.monotonic()
        self._seen_at: dict[str, float] = {}
        self._troubles: Mapping[str, str] = {}

    @property
    def trouble(self) -> str | None:
        """Why nothing is started, in words; None when all is well."""
        return "; ".join(self._troubles.values()) or None

    async def look(self) -> None:
        """Check the machine, try again what failed, and report new troubles."""
        await self._try_journal()
        before, self._troubles = self._troubles, {**self._found(), **await self._disk()}
        for name, why in self._troubles.items():
            self._tell(name, why, news=name not in before)
        over = before.keys() - self._troubles.keys()
        for name in over:
            log.info("machine trouble over", trouble=name)
        if over:
            await self._recovered()

    async def _try_journal(self) -> None:
        now = self._host.clock.monotonic()
        retry_s = min(RETRY_S, self._host.settings.schedule.poll_s)
        if self._host.journal.outage is None:
            # The first look at an outage reports it: a probe is small, and may fit where a commit did not.
            self._tried_at = now
            return
        if now - self._tried_at < retry_s:
            return
        self._tried_at = now
        try:
            await self._host.journal.probe()
        except StoreError as error:
            log.warning("journal still unwritable", error=error.message, retry_s=retry_s)

    def _found(self) -> Mapping[str, str]:
        outage, troubles = self._host.journal.outage, {}
        if outage is not None:
            troubles["journal"] = f"the journal cannot be written ({outage})"
        if self._host.descriptors.short():
            troubles["descriptors"] = OUT_OF_DESCRIPTORS
        short = self._host.slots.shortage()
        if short is not None and short[1] >= SHORT_S:
            troubles["capacity"] = OUT_OF_MEMORY if short[0] == "memory" else OVERLOADED
        return troubles

    async def _disk(self) -> Mapping[str, str]:
        shortage = await self._room.shortage()
        self._disk_told = shortage is not None and shortage.told
        return {} if shortage is None else {_DISK: shortage.why}

    def _tell(self, name: str, why: str, *, news: bool) -> None:
        now = self._host.clock.monotonic()
        last, self._seen_at[name] = self._seen_at.get(name), now
        if not news:
            return
        log.error("machine trouble, nothing is started", trouble=name, why=why)
        if name == _DISK and self._disk_told:
            return  # by this check or by a project, whichever found it first
        if last is None or now - last > CALM_S:
            notice = machine_notice(str(self._host.settings.state_dir), why, self._host.clock)
            self._host.notifier.send(notice)


def descriptor_shortage(host: Host) -> Shortage | None:
    """Return why a dispatch waits for descriptors; None when there are enough."""
    return _out_of_descriptors() if host.descriptors.short() else None


def shortage_in(error: HandoffdError) -> Shortage | None:
    """Return the shortage behind an error; it passes by itself, so no person is asked."""
    if at_limit(error):
        return _out_of_descriptors()
    if error.code == DISK_FULL:
        return Shortage(error.message, error.hint or "df -h")
    return Shortage(error.message, error.hint or _READ_ONLY) if passes_by_itself(error) else None


def _out_of_descriptors() -> Shortage:
    return Shortage(OUT_OF_DESCRIPTORS, f"prlimit --nofile --pid {os.getpid()}")


# --- descriptors -------------------------------------------------------------------------------------
class Descriptors:
    """The descriptors of this process. Make it early: what has low numbers helps under any limit."""

    def __init__(self, reserve: int = 0) -> None:
        self._wanted = reserve
        self._reserve: list[int] = []
        self._fill()

    @property
    def held(self) -> int:
        """How many are kept in reserve at the moment."""
        return len(self._reserve)

    def short(self) -> bool:
        """Return whether an attempt has to wait; then the reserve is released, to be reopened later."""
        if _possible(HEADROOM + self._wanted - self.held):
            self._fill()
            return False
        self.close()
        return True

    def close(self) -> None:
        """Release the reserve."""
        while self._reserve:
            os.close(self._reserve.pop())

    def _fill(self) -> None:
        with suppress(OSError):
            while self.held < self._wanted:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def at_limit(error: BaseException | None) -> bool:
    """Return whether an error comes of the limit of open files, of this process or of the machine."""
    return _caused_by(error, _AT_LIMIT)


def passes_by_itself(error: BaseException | None) -> bool:
    """Return whether an error comes of that limit, or of a disk that is full or read-only."""
    return _caused_by(error, _AT_LIMIT | _NO_SPACE)


def _caused_by(error: BaseException | None, numbers: frozenset[int]) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in numbers:
            return True
        error = error.__cause__
    return False


def _possible(count: int) -> bool:
    opened: list[int] = []
    try:
        while len(opened) < count:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno not in _AT_LIMIT:
            raise
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True


# --- disks -------------------------------------------------------------------------------------------
class Space(NamedTuple):
    """A file system by a folder on it, and what an ordinary account may still take of it.

    `free_files` is None where their number is not limited.
    """

    folder: str
    device: int
    free_bytes: int
    free_files: int | None = None

    def lacks(self, min_free_mb: int, times: int = 1) -> str | None:
        """Return what is lacking, in words; None if nothing is."""
        if self.free_bytes < times * min_free_mb * _MIB:
            free_mb = self.free_bytes // _MIB
            return f"{free_mb} MiB are free at {self.folder}, execute.min_free_mb asks for {min_free_mb}"
        if self.free_files is not None and self.free_files < times * _MIN_FREE_FILES:
            files = counted(self.free_files, "more file (inode) fits", "more files (inodes) fit")
            return f"only {files} on the disk of {self.folder}"
        return None


class Shortage(NamedTuple):
    """Why nothing can be dispatched, and what to type about it."""

    why: str
    action: str
    told: bool = False
    """Whether a notice about the disk was sent; a disk that does not answer causes none here."""


def first_short(spaces: Iterable[Space], min_free_mb: int) -> Space | None:
    """Return the first file system with less than `min_free_mb` MiB or too few files free, if any."""
    return next((space for space in spaces if space.lacks(min_free_mb)), None)


def relieved(spaces: Iterable[Space], min_free_mb: int) -> frozenset[int]:
    """Return the devices with enough room to report a later shortage again.

    A disk that hovers about the limit causes one notice.
    """
    return frozenset(space.device for space in spaces if not space.lacks(min_free_mb, _AGAIN))


class Room:
    """The room for one project's attempts, or in the state directory for the attempts of all."""

    def __init__(self, root: str, host: Host, probe: Probe) -> None:
        self._root = root
        self._host = host
        self._folders = (str(host.settings.state_dir), root)
        self._probe = probe

    async def shortage(self) -> Shortage | None:
        """Return why nothing may be dispatched now; None when there is room. A notice is sent once."""
        wanted_mb = self._host.settings.execute.min_free_mb
        if wanted_mb == 0:
            return None
        try:
            spaces = await self._probe.asked(partial(_spaces, self._folders))
        except StoreError as error:
            return Shortage(error.message, error.hint or f"df -h {quote(self._root)}")
        short, told = first_short(spaces, wanted_mb), self._host.told_of_disks
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
            notice = room_notice(self._root, found.why, found.action, self._host.clock)
            self._host.notifier.send(notice)
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
