"""The kernel's inotify: its calls, and what its events say.

By ctypes, because the standard library has none of it. One descriptor serves all folders. The number of
a watch is not used again while the kernel counts upwards, and the same folder watched twice has the
same number. A folder's path is looked up by the kernel, so adding one belongs into a worker thread.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

IN_MODIFY = 0x2
IN_ATTRIB = 0x4
IN_CLOSE_WRITE = 0x8
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_MOVE_SELF = 0x800
IN_UNMOUNT = 0x2000
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
IN_ONLYDIR = 0x0100_0000
IN_DONT_FOLLOW = 0x0200_0000
IN_EXCL_UNLINK = 0x0400_0000
IN_ISDIR = 0x4000_0000

BATCH_BYTES = 32 * 1024
"""So much is read in one go: at most some 2,000 events, which is 2 ms of the event loop's time."""

_HEADER = Struct("=iIII")


class Event(NamedTuple):
    """One event: `watch` is -1 for the queue itself, `name` empty for the watched folder itself."""

    watch: int
    mask: int
    name: bytes


def parse_events(data: bytes) -> Iterator[Event]:
    """Yield the events in what was read from an inotify descriptor, which are whole ones."""
    offset = 0
    while offset < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, offset)
        start = offset + _HEADER.size
        offset = start + length
        yield Event(watch, mask, data[start:offset].rstrip(b"\0"))


class Inotify:
    """One instance. Making one raises OSError: EMFILE at a limit, ENOSYS where there is none.

    It may be closed while another thread is in `add`, which may last for as long as a disk hangs: the
    descriptor is given back by whoever is last, or its number might be somebody else's by then.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._lock = threading.Lock()
        self._users = 1
        self._closed = False
        self.descriptor = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, folder: str, mask: int) -> int:
        """Watch `folder` and return the watch's number; OSError if that cannot be, or it was closed."""
        with self._lock:
            if self._closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            self._users += 1
        try:
            path = ctypes.c_char_p(os.fsencode(folder))
            return self._checked(self._libc.inotify_add_watch(self.descriptor, path, ctypes.c_uint32(mask)))
        finally:
            self._leave()

    def remove(self, watch: int) -> None:
        """Give a watch back; harmless if it has gone by itself. Its queued events still come."""
        if not self._closed:
            self._libc.inotify_rm_watch(self.descriptor, watch)

    def read(self) -> bytes:
        """Return the next events, at most `BATCH_BYTES`; nothing if there are none."""
        try:
            return os.read(self.descriptor, BATCH_BYTES)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        """Give the instance back with all its watches."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            os.close(self.descriptor)

    def _checked(self, value: int) -> int:
        if value < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return value
