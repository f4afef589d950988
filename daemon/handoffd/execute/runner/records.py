"""Records in a run directory, each either whole or absent.

A record is written under another name and renamed into place, so a reader (and a crash at any instant) sees
the old state or the new one. The claim is a dangling symbolic link whose target is the record: creating one
is a single step that fails if the name exists, and a target this short is stored in the inode, so after a
power cut it is whole or absent. Records that are written while the program runs have their disk space
reserved before, because the program may fill the disk.
"""

from __future__ import annotations

import os
from _thread import get_native_id  # not from `threading`, whose fork hooks slow every fork down
from contextlib import suppress


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_directory(path: str) -> None:
    """Make the names in directory `path` survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_beside(run_dir: str, name: str, data: bytes, *, durable: bool, modified_ns: int | None) -> str:
    """Write `data` to a file next to `name` that only this thread uses, and return its path."""
    path = os.path.join(run_dir, f".{name}.{get_native_id()}")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _write_all(fd, data)
        if modified_ns is not None:
            os.utime(fd, ns=(modified_ns, modified_ns))
        if durable:
            os.fsync(fd)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(fd)
    return path


def write(
    run_dir: str, name: str, text: str, *, durable: bool = True, modified_ns: int | None = None
) -> None:
    """Write the record `name`, replacing an older one; durable: it survives a power cut.

    `modified_ns` is the modification time the record gets, in nanoseconds; otherwise it is now.
    """
    data = text.encode("utf-8", "surrogatepass")
    path = _write_beside(run_dir, name, data, durable=durable, modified_ns=modified_ns)
    os.replace(path, os.path.join(run_dir, name))
    if durable:
        sync_directory(run_dir)


def read(run_dir: str, name: str) -> str | None:
    """Return the text of the record `name`, or None if it does not exist."""
    try:
        with open(os.path.join(run_dir, name), "rb") as file:
            return file.read().decode("utf-8", "surrogatepass")
    except FileNotFoundError:
        return None


def claim(run_dir: str, name: str, text: str) -> bool:
    """Create the claim `name` with `text` unless it exists; return whether this call created it."""
    try:
        os.symlink(text, os.path.join(run_dir, name))
    except FileExistsError:
        return False
    return True


def claimed_ns(run_dir: str, name: str) -> int:
    """Return when the claim `name` was made, by the clock that stamps files."""
    return os.lstat(os.path.join(run_dir, name)).st_mtime_ns


def claimed(run_dir: str, name: str) -> str | None:
    """Return the text of the claim `name`, or None if it does not exist."""
    try:
        return os.readlink(os.path.join(run_dir, name))
    except FileNotFoundError:
        return None


class Reserved:
    """A record that will be written later, with disk space reserved now if the disk allows it."""

    def __init__(self, run_dir: str, name: str, size: int) -> None:
        """Reserve `size` bytes for the record `name`."""
        self._run_dir = run_dir
        self._name = name
        self._path = os.path.join(run_dir, f".{name}.reserved")
        self._fd = -1
        try:
            self._fd = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            os.posix_fallocate(self._fd, 0, size)
        except OSError:
            return  # `write` then tries without a reservation

    def write(self, text: str, *, durable: bool = True, modified_ns: int | None = None) -> None:
        """Write the record, as `write` does, also one that is larger than the reserve; raises OSError."""
        if self._fd < 0:
            write(self._run_dir, self._name, text, durable=durable, modified_ns=modified_ns)
            return
        data = text.encode("utf-8", "surrogatepass")
        os.lseek(self._fd, 0, os.SEEK_SET)
        _write_all(self._fd, data)
        os.ftruncate(self._fd, len(data))
        if modified_ns is not None:
            os.utime(self._fd, ns=(modified_ns, modified_ns))
        os.replace(self._path, os.path.join(self._run_dir, self._name))
        if durable:
            # After the rename, so that one sync covers content and name: journalling file systems
            # (ext4, XFS, Btrfs) commit the rename with the file. On others a power cut in the next
            # seconds may lose the name, and the daemon repeats the attempt. A record that a power cut
            # has damaged counts as absent.
            os.fsync(self._fd)
        self._close()

    def give_up(self) -> None:
        """Free the reserved space, unless the record was written: it will not be."""
        if self._fd >= 0:
            with suppress(OSError):  # only the name would be left
                os.unlink(self._path)
            self._close()

    def _close(self) -> None:
        os.close(self._fd)
        self._fd = -1
