"""What /proc says about a process.

A pid names a process only until it is used again, so identity is pid + start time + boot id. A container
may have a boot id of its own, as a file mounted over the kernel's; a service that systemd gives a /proc of
its own does not see it. So one boot may have two ids, and what counts is how the process itself reads it.

Everything here answers None (or nothing) for a process that is gone; that is never an error.
"""

from __future__ import annotations

import errno
import os
from functools import cache
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PIECE_BYTES = 16 * 1024
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_told: set[str] = set()


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that matter here; times in clock ticks."""

    state: str
    parent: int
    cpu: int
    reaped_cpu: int
    started: int

    @property
    def ended(self) -> bool:
        """Tell whether only the entry in the process table is left."""
        return self.state in "ZXx"


def read(path: str) -> bytes | None:
    """Return a small file of /proc whole, or None when the process is gone or not ours to see."""
    # By descriptor: a file object asks the kernel five more questions, and whole trees are read here.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    pieces: list[bytes] = []
    try:
        while not pieces or pieces[-1]:
            pieces.append(os.read(fd, _PIECE_BYTES))
    except OSError:
        return None
    finally:
        os.close(fd)
    return b"".join(pieces)


def stat(pid: int) -> Stat | None:
    """Return what the kernel says about `pid` now, or None when there is no such process."""
    raw = read(f"/proc/{pid}/stat")
    if not raw:
        return None
    # The command name, in parentheses, may hold blanks and parentheses itself.
    field = raw.rpartition(b")")[2].split()
    return Stat(
        state=field[0].decode(),
        parent=int(field[1]),
        cpu=int(field[11]) + int(field[12]),
        reaped_cpu=int(field[13]) + int(field[14]),
        started=int(field[19]),
    )


def started(pid: int) -> int:
    """Return the start time of `pid` in clock ticks since boot; 0 when it is gone."""
    seen = stat(pid)
    return seen.started if seen else 0


@cache
def boot_id() -> str:
    """Return the identity of this boot; pids and start times of another one mean nothing."""
    with open(_BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def boot_id_of(pid: int) -> str | None:
    """Return the boot id as process `pid` reads it; None when that is not ours to see."""
    raw = read(f"/proc/{pid}/root{_BOOT_ID}")
    return raw.decode("ascii", "replace").strip() if raw else None


def recognise_boot(boot: str) -> None:
    """Have `boot` count as this boot, because a process that runs now (the launcher) reads it."""
    _told.add(boot)


def is_running(pid: int, start_time: int, boot: str) -> bool:
    """Tell whether exactly that process still runs (a zombie does not)."""
    seen = stat(pid)
    if seen is None or seen.started != start_time or seen.ended:
        return False
    return boot == boot_id() or boot in _told or boot == boot_id_of(pid)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs (a zombie does not); 0, one that the kernel cannot name here, does."""
    if pid <= 0:
        return True
    if (seen := stat(pid)) is not None:
        return not seen.ended
    try:
        os.kill(pid, 0)  # /proc may hide another account's
    except OSError as error:
        return error.errno == errno.EPERM
    return True


class Written(NamedTuple):
    """What a process, with all children it has reaped, has written so far, in bytes."""

    calls: int
    """Given to write calls, whatever they wrote to."""
    stored: int
    """Of files on a disk, as whole pages."""


def written(pid: int) -> Written | None:
    """Return what `pid` has written; None when it is gone or that is not ours to see."""
    try:
        return shown_written(pid)
    except OSError:
        return None


def shown_written(pid: int) -> Written:
    """Return what `pid` has written; raises PermissionError when that is not ours to see, else OSError."""
    with open(f"/proc/{pid}/io", "rb", buffering=0) as file:
        lines = (line.split(b":", 1) for line in file.read(_PIECE_BYTES).splitlines())
        told = {line[0]: int(line[1]) for line in lines}
    return Written(calls=told.get(b"wchar", 0), stored=told.get(b"write_bytes", 0))
