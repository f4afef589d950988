"""Reads facts about a process from /proc.

The kernel reuses pids, so a process is identified by pid, start time and boot id. A container may have a boot
id of its own, as a file mounted over the kernel's; a service to which systemd gives a /proc of its own does
not see that file. So one boot may have two ids, and the one that the process itself reads counts.

Every function returns None (or an empty value) for a process that is gone; that is never an error.
"""

from __future__ import annotations

import errno
import os
from functools import cache
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PIECE_BYTES = 16 * 1024
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_recognised: set[str] = set()


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that matter here; times in clock ticks."""

    state: str
    parent: int
    cpu: int
    reaped_cpu: int
    started: int

    @property
    def ended(self) -> bool:
        """Whether the process is a zombie: only its entry in the process table is left."""
        return self.state in "ZXx"


def read(path: str) -> bytes | None:
    """Return the whole content of a small file of /proc; None if the process is gone or unreadable."""
    # By descriptor: a file object makes five more system calls, and callers read whole trees.
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
    """Return the current state of `pid`, or None if there is no such process."""
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
    """Return the start time of `pid` in clock ticks since boot; 0 if it is gone."""
    seen = stat(pid)
    return seen.started if seen else 0


@cache
def boot_id() -> str:
    """Return the identity of this boot; pids and start times of another one mean nothing."""
    with open(_BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def boot_id_of(pid: int) -> str | None:
    """Return the boot id as process `pid` reads it; None if this process may not read it."""
    raw = read(f"/proc/{pid}/root{_BOOT_ID}")
    return raw.decode("ascii", "replace").strip() if raw else None


def recognise_boot(boot: str) -> None:
    """Accept `boot` as an id of this boot, because a running process (the launcher) reads it."""
    _recognised.add(boot)


def is_running(pid: int, start_time: int, boot: str) -> bool:
    """Return whether exactly that process is still running (a zombie is not)."""
    seen = stat(pid)
    if seen is None or seen.started != start_time or seen.ended:
        return False
    return boot == boot_id() or boot in _recognised or boot == boot_id_of(pid)


def is_alive(pid: int) -> bool:
    """Return whether a process is running (a zombie is not); True for 0, one outside this pid namespace."""
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
    """Bytes that a process, with all children that it has reaped, has written so far."""

    calls: int
    """Passed to write calls of any target."""
    stored: int
    """Written to files on a disk, in whole pages."""


def written(pid: int) -> Written | None:
    """Return what `pid` has written; None if it is gone or this process may not read that."""
    try:
        return shown_written(pid)
    except OSError:
        return None


def shown_written(pid: int) -> Written:
    """Return what `pid` has written; raises PermissionError if this process may not read it, else OSError."""
    with open(f"/proc/{pid}/io", "rb", buffering=0) as file:
        lines = (line.split(b":", 1) for line in file.read(_PIECE_BYTES).splitlines())
        counters = {line[0]: int(line[1]) for line in lines}
    return Written(calls=counters.get(b"wchar", 0), stored=counters.get(b"write_bytes", 0))
