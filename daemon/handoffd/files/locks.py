"""Who may write: one daemon per state directory, one writer per project on a machine.

A lock is `flock`, so the kernel drops it with its holder, however that one dies, and there is nothing
to clean up. A state directory has a file for it, which is never unlinked: unlinking lets two processes
hold "the same" lock on two files. What is written in the file only serves messages. A project is locked
by a descriptor of its own root, where all daemons meet whatever their state directory or account. Where
the file system cannot do that, a file in the state directory is locked instead, named by device and inode so
that two paths to the root are one lock; it does not keep two state directories apart.

Messages name the holder of a lock, and the daemon tells an agent from another daemon by it. A process that
locks a file of ours writes its pid into it. A project's folder has no room for that, so we read `/proc/locks`
for the process, and its entry in `/proc` for the rest, as far as this account may. Locking needs none of
that, so a message leaves out what cannot be read.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pwd
import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import TracebackType

import anyio
import structlog
from msgspec import Struct

from handoffd.engine.wording import repair_command
from handoffd.errors import Locked, StoreError
from handoffd.files.errors import project_gone, storage_error

log = structlog.get_logger(__name__)

DAEMON_LOCK = "daemon.lock"
_LARGEST_NOTE = 4096
_LARGEST_COMMAND = 200

_CANNOT = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
"""What file systems say that cannot lock a folder; NFS wants one that is open for writing."""

_RECORD_LOCK = "hhqqi"
"""The kernel's `struct flock`: type, whence, start, length, pid."""


class FileLock:
    """A lock that is held, until `release` or the end of the process. A context manager."""

    def __init__(self, path: Path, handle: int, *, signed: bool = True) -> None:
        self.path = path
        """Its name among locks; for the lock of a project's folder the file need not exist."""
        self._handle: int | None = handle
        self._signed = signed

    def worker(self) -> int | None:
        """Return the shim of a run in the locked folder, whichever daemon began it; None: nothing runs.

        A run outlives its daemon, and its shim shows that by a record lock. 0: it cannot be seen from here.
        """
        if self._handle is None:
            return None
        asked = struct.pack(_RECORD_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        try:
            found = struct.unpack(_RECORD_LOCK, fcntl.fcntl(self._handle, fcntl.F_GETLK, asked))
        except OSError:
            return None
        return None if found[0] == fcntl.F_UNLCK else found[4]

    def release(self) -> None:
        """Let others have it; harmless when repeated."""
        handle, self._handle = self._handle, None
        if handle is not None:
            if self._signed:
                with suppress(OSError):
                    os.ftruncate(handle, 0)  # the next holder must not be mistaken for us
            os.close(handle)

    def __del__(self) -> None:
        self.release()  # a thread may get it after its caller has given up

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


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


def acquire_project(path: Path, root: Path) -> FileLock:
    """Return the lock of the project at `root`, whose folder is the one `path` names; blocks on the disk.

    Raises Locked, whose details have the holder's `pid` if that can be found out; StoreError when the root is
    gone, or another folder by now.
    """
    try:
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise project_gone(root) from error
    except PermissionError as error:  # the daemon can work in it as long as it may read `.ai`
        return _by_file(path, root, error)
    except OSError as error:
        raise storage_error("lock the project", root, error) from error
    try:
        return _locked_folder(handle, path, root)
    except OSError as error:
        os.close(handle)
        if error.errno in _CANNOT:
            return _by_file(path, root, error)
        raise storage_error("lock the project", root, error) from error
    except BaseException:
        os.close(handle)
        raise


def daemon_lock_path(state_dir: Path) -> Path:
    """Return the lock of the one daemon a state directory may have."""
    return state_dir / DAEMON_LOCK


def project_lock_path(state_dir: Path, root: Path) -> Path:
    """Return the lock of the one writer the project at `root` may have; StoreError if it is gone."""
    try:
        status = os.stat(root)
    except FileNotFoundError as error:
        raise project_gone(root) from error
    except OSError as error:
        raise storage_error("look at the project", root, error) from error
    return state_dir / "locks" / _name(status)


def has_stranger(root: Path, pid: int) -> Locked:
    """Return the error for a project with a run, supervised by process `pid`, of another daemon."""
    return _in_use(root, described(pid) if pid else None, "an agent of another handoffd, looked after by ")


def _name(status: os.stat_result) -> str:
    return f"{status.st_dev:x}-{status.st_ino:x}.lock"


def _locked_folder(handle: int, path: Path, root: Path) -> FileLock:
    status = os.fstat(handle)
    if _name(status) != path.name:
        raise StoreError(f"another folder was put at {root} at this moment", hint=f"ls -ld {root}")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _in_use(root, holder_of_folder(status)) from error
    return FileLock(path, handle, signed=False)


def _by_file(path: Path, root: Path, why: OSError) -> FileLock:
    _tell(str(root), why.strerror)
    return acquire(path, f"the project {root}")


@lru_cache(maxsize=1024)  # once, not each time the project has something to do
def _tell(root: str, why: str) -> None:
    log.warning("project locked for this state directory only", project=root, error=why)


def _in_use(root: Path, holder: Holder | None, what: str = "") -> Locked:
    who = str(holder) if holder else "a process that cannot be seen from here, as in a container"
    error = Locked(f"the project {root} is in use by {what}{who}", hint=repair_command(str(root), "locked"))
    if holder is not None:
        state_dir = str(holder.state_dir) if holder.state_dir else None
        error.details = {"pid": holder.pid, "state_dir": state_dir}
    return error


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
    """Write into the lock who holds it. A full disk must not prevent locking."""
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, _note(os.getpid()), 0)
    except OSError:
        return


@lru_cache(maxsize=1)
def _note(pid: int) -> bytes:
    """Return what this process, `pid`, writes into its locks: the same into every project's."""
    return json.dumps({"pid": pid, "started": started_at(pid)}).encode()


# --- who holds a lock -----------------------------------------------------------------------------------
class Holder(Struct, frozen=True, kw_only=True):
    """Who holds a lock. None: it cannot be read; `account` is also None for this process's own."""

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

    A child that inherited the descriptor holds the lock as well, and the kernel's list names only the process
    that took it, which may have ended; then all descriptors that this account may see are searched, slowly.
    """
    pid = next(_listed(status), None) or next(_with_descriptor(status), None)
    return None if pid is None else described(pid)


def described(pid: int) -> Holder:
    """Return what can be found out about a process."""
    return Holder(pid=pid, command=_command(pid), account=_account(pid), state_dir=state_dir_of(pid))


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
    # Btrfs and overlays show files under another device than their locks: only the inode is the same.
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
    """Yield the processes that have a locked descriptor of the folder, as far as this account may see."""
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


def state_dir_of(pid: int) -> Path | None:
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
