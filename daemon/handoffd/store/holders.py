"""Who holds a lock: for messages, and to tell an agent from another daemon.

A process that locks a file of ours writes its pid into it. A project's folder has no room for that, so there
the kernel is asked: `/proc/locks` names the process, and the process's own entry in `/proc` says the rest, as
far as this account may read it. Nothing here is needed to lock, so what cannot be had is left out.
"""

from __future__ import annotations

import json
import os
import pwd
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from handoffd.store.database import open_reader

DAEMON_LOCK = "daemon.lock"
_LARGEST_NOTE = 4096
_LARGEST_COMMAND = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lock. What cannot be looked at is None; so is `account` if it is that of this process."""

    pid: int
    since: datetime | None = None
    command: str | None = None
    account: str | None = None
    state_dir: Path | None = None

    def __str__(self) -> str:
        command = f" ({self.command})" if self.command else ""
        account = f" of {self.account}" if self.account else ""
        since = f" since {self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else ""
        state_dir = f", whose state directory is {self.state_dir}" if self.state_dir else ""
        return f"process {self.pid}{account}{command}{since}{state_dir}"


def holder_of(path: Path) -> Holder | None:
    """Return who signed the lock at `path` last, if that process is still the one that signed."""
    try:
        with path.open("rb") as file:
            note = json.loads(file.read(_LARGEST_NOTE))
            since = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
        pid, started = int(note["pid"]), int(note["started"])
    except (OSError, ValueError, TypeError, KeyError):
        return None  # not signed yet, or by a disk that was full
    if started_at(pid) != started:
        return None
    return Holder(pid=pid, since=since, command=_command(pid))


def holder_of_folder(status: os.stat_result) -> Holder | None:
    """Return who has the folder of that device and inode locked; None when no process can be found.

    A child that inherited the descriptor holds the lock as well, and the kernel's list leaves out who took it
    and has ended; so all descriptors that this account may see are looked through then. That takes a moment.
    """
    pid = next(_listed(status), None) or next(_with_descriptor(status), None)
    return None if pid is None else described(pid)


def described(pid: int) -> Holder:
    """Return what can be found out about a process."""
    return Holder(pid=pid, command=_command(pid), account=_account(pid), state_dir=_state_dir(pid))


def supervised_elsewhere(journal: Path) -> Mapping[str, Holder]:
    """Return the projects of other daemons on this machine, by root; `journal` is that of this one.

    A project at rest has no lock, so their journals are read, as far as this account may.
    """
    found: dict[str, Holder] = {}
    for name in os.listdir("/proc"):
        state_dir = _state_dir(int(name)) if name.isdigit() and int(name) != os.getpid() else None
        if state_dir is None or state_dir == journal.parent.resolve():
            continue
        with suppress(OSError, sqlite3.Error), closing(open_reader(state_dir / journal.name)) as db:
            rows = db.execute("SELECT root FROM projects WHERE removed_at IS NULL").fetchall()
            found |= dict.fromkeys((str(root) for (root,) in rows), described(int(name)))
    return found


def started_at(pid: int) -> int | None:
    """Return when a process began, in clock ticks since boot; with the pid it is unique."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command name may hold spaces and brackets; what counts comes after its last bracket.
    return int(line.rpartition(b")")[2].split()[19])


def _listed(status: os.stat_result) -> Iterator[int]:
    """Yield who has the folder locked, from lines such as `1: FLOCK  ADVISORY  WRITE 7 fe:00:4 0 EOF`."""
    # Btrfs and overlays show files under another device than their locks: the inode has to do there.
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    found: list[tuple[bool, int]] = []
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(status.st_ino):
                found.append((words[5] == device, int(words[4])))
    exact = [pid for same, pid in found if same]
    yield from (pid for pid in exact if _lives(pid))
    if not exact:
        yield from (pid for _, pid in found if _has_locked(pid, status))


def _lives(pid: int) -> bool:
    """Return whether a process has not ended; 0 is one of a container's that cannot be seen from here."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in b"ZX"
    except OSError:
        return False


def _with_descriptor(status: os.stat_result) -> Iterator[int]:
    """Yield the processes that have a locked descriptor of the folder, as far as they can be looked at."""
    with suppress(OSError):
        yield from (
            int(name) for name in os.listdir("/proc") if name.isdigit() and _has_locked(int(name), status)
        )


def _has_locked(pid: int, status: os.stat_result) -> bool:
    for number in _descriptors(pid):
        with suppress(OSError):
            seen = os.stat(f"/proc/{pid}/fd/{number}")
            same = (seen.st_dev, seen.st_ino) == (status.st_dev, status.st_ino)
            if same and b"FLOCK" in Path(f"/proc/{pid}/fdinfo/{number}").read_bytes():
                return True
    return False


def _descriptors(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []


def _state_dir(pid: int) -> Path | None:
    """Return the state directory of a handoffd, which has the lock in it open for as long as it lives."""
    for number in _descriptors(pid):
        with suppress(OSError):
            path = Path(os.readlink(f"/proc/{pid}/fd/{number}"))
            if path.name == DAEMON_LOCK:
                return path.parent
    return None


def _account(pid: int) -> str | None:
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    if owner == os.geteuid():
        return None
    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:
        return f"account {owner}"


def _command(pid: int) -> str | None:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    words = raw.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
    shown = "".join(sign if sign.isprintable() else "?" for sign in " ".join(words.split()))
    return shown[:_LARGEST_COMMAND] or None
