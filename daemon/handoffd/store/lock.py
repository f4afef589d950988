"""Who may write: one daemon per state directory, one writer per project.

A lock is `flock` on a file outside every project. The kernel drops it with its holder, however
that one dies, so there is nothing to clean up, and the files are never unlinked: unlinking lets
two processes hold "the same" lock on two files. A project is told by device and inode of its
root, so that two paths to it are one lock. What is written in the file only serves messages.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import TracebackType

import anyio

from handoffd.errors import Locked, StoreError
from handoffd.store.faults import PROJECT_GONE, storage_error

_LARGEST_NOTE = 4096
_LARGEST_COMMAND = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lock. `command` is None when that process cannot be looked at."""

    pid: int
    since: datetime
    command: str | None

    def __str__(self) -> str:
        command = f" ({self.command})" if self.command else ""
        return f"process {self.pid}{command} since {self.since:%Y-%m-%d %H:%M:%S} UTC"


class FileLock:
    """A lock that is held, until `release` or the end of the process. A context manager."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle: int | None = handle

    def release(self) -> None:
        """Let others have it; harmless when repeated."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(OSError):
                os.ftruncate(handle, 0)  # the next one is not to be mistaken for us
            os.close(handle)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def daemon_lock_path(state_dir: Path) -> Path:
    """Return the lock of the one daemon a state directory may have."""
    return state_dir / "daemon.lock"


def project_lock_path(state_dir: Path, root: Path) -> Path:
    """Return the lock of the one writer the project at `root` may have; StoreError if it is gone."""
    try:
        status = os.stat(root)
    except FileNotFoundError as error:
        hint = f"mount it or move it back; or: handoffd remove {root}"
        raise StoreError(f"the project {root} is gone", code=PROJECT_GONE, hint=hint) from error
    except OSError as error:
        raise storage_error("look at the project", root, error) from error
    return state_dir / "locks" / f"{status.st_dev:x}-{status.st_ino:x}.lock"


def acquire(path: Path, what: str) -> FileLock:
    """Return the lock at `path`, at once. `what` says in messages what it guards ("the project /x").

    Raises Locked, naming the holder, when another process (or this one) has it; StoreError when the
    file cannot be opened.
    """
    try:
        handle = _open(path)
    except OSError as error:
        raise storage_error("open the lock", path, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            raise _locked(path, what) from error
        raise storage_error("lock", path, error) from error
    _sign(handle)
    return FileLock(path, handle)


async def acquire_within(path: Path, what: str, within_s: float) -> FileLock:
    """Return the lock at `path` as soon as it is free; Locked when it is not after `within_s` seconds."""
    give_up_at = anyio.current_time() + within_s
    pause_s = 0.01
    while True:
        try:
            return acquire(path, what)
        except Locked:
            left_s = give_up_at - anyio.current_time()
            if left_s <= 0:
                raise
        await anyio.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 2, 0.25)


def holder_of(path: Path) -> Holder | None:
    """Return who signed the lock at `path` last, if that process is still the one that signed."""
    try:
        with path.open("rb") as file:
            note = json.loads(file.read(_LARGEST_NOTE))
            since = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
        pid, started = int(note["pid"]), int(note["started"])
    except (OSError, ValueError, TypeError, KeyError):
        return None  # not signed yet, or by a disk that was full
    if _started(pid) != started:
        return None
    return Holder(pid=pid, since=since, command=_command(pid))


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)


def _locked(path: Path, what: str) -> Locked:
    holder = holder_of(path)
    who = str(holder) if holder else "another process"
    return Locked(f"{what} is in use by {who}", hint="handoffd status")


def _sign(handle: int) -> None:
    """Write into the lock who holds it. A full disk must not keep anybody from locking."""
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, _note(os.getpid()), 0)
    except OSError:
        return


@lru_cache(maxsize=1)
def _note(pid: int) -> bytes:
    """Return what this process, `pid`, writes into its locks: the same into every project's."""
    return json.dumps({"pid": pid, "started": _started(pid)}).encode()


def _started(pid: int) -> int | None:
    """Return when a process began, in clock ticks since boot; with the pid it is unique."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command name may hold spaces and brackets; what counts comes after its last bracket.
    return int(line.rpartition(b")")[2].split()[19])


def _command(pid: int) -> str | None:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    words = raw.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
    shown = "".join(sign if sign.isprintable() else "?" for sign in " ".join(words.split()))
    return shown[:_LARGEST_COMMAND] or None
