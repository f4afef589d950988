"""Watching by the kernel's inotify, read on the event loop: one descriptor, no thread that waits.

A project that comes or goes is one system call, and disturbs no other. A worker thread finds out where to
watch a project, because its disk may hang; the watch is live before the table knows its project, which is
why `placed` comes last: the sweep that follows finds the changes in between.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from struct import Struct
from typing import NamedTuple

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import LIMIT_REACHED, Listener
from handoffd.watch.folders import AI_FOLDER, NAMES, NOWHERE, SILENT, Place, Visits, place_of

# --- the kernel's calls -------------------------------------------------------------------------------
# By ctypes, because the standard library has none of it. One descriptor serves all folders. The number of a
# watch is not used again while the kernel counts upwards, and the same folder watched twice has the same
# number. The kernel looks a folder's path up, so a watch is added in a worker thread.
IN_MODIFY = 0x2
IN_ATTRIB = 0x4
IN_CLOSE_WRITE = 0x8
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_MOVE_SELF = 0x800
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
IN_ONLYDIR = 0x0100_0000
IN_DONT_FOLLOW = 0x0200_0000
IN_EXCL_UNLINK = 0x0400_0000
IN_ISDIR = 0x4000_0000

BATCH_BYTES = 32 * 1024
"""Read in one go: at most some 2,000 events, which is 2 ms of the event loop's time."""

_HEADER = Struct("=iIII")
_LARGEST_EVENT_BYTES = _HEADER.size + 256


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

    It may be closed while another thread is in `add`, which may last for as long as a disk hangs: the last
    user closes the descriptor, or its number might belong to another file by then.
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
        """Give a watch back; harmless if it has ended by itself. Its queued events still come."""
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


# --- the backend --------------------------------------------------------------------------------------
_HOW = IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK
IN_AI = _HOW | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE
"""Every way in which a file can be written, a link made, a time set: each is news (see folders.py)."""
IN_ROOT = _HOW | IN_MOVED_TO | IN_CREATE
"""Without an `.ai` folder, only its creation matters; people and agents work all around it."""

_AWAY = IN_DELETE | IN_MOVED_FROM

_REST_S = 0.1
"""How long further changes of a project are collected after a hint.

A hand-off is followed by our own writes of STATE.json; they are better looked at when the next
executor has been started.
"""
_EXPECT_S = 0.005
"""How long events gather in the kernel after a read without news.

Replacing a file begins with an event of another one, and six events follow within milliseconds. Each would
wake the event loop.
"""
_GATHER_S = 0.02
"""How long they gather after news."""
_AT_ONCE = 250
"""Projects that are placed in one visit to a worker thread: a few milliseconds."""
_ATTEMPTS = 3
"""How often a folder is looked for that vanishes before it can be watched."""
_LIMITS = {errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_NAMES = frozenset(name.encode() for name in NAMES)
_AI = AI_FOLDER.encode()


class InotifyBackend:
    """A `Backend` that asks the kernel itself."""

    def __init__(self) -> None:
        self._table = WatchTable()
        self._pace = Pace(_REST_S)
        self._pending: dict[str, None] = {}
        self._placing: set[str] = set()
        self._ended: set[int] = set()
        """Watches that ended before the table knew their project."""
        self._kernel: Inotify | None = None
        self._visits = Visits()
        self._wake = anyio.Event()

    def add(self, root: str) -> None:
        """Watch `root` soon."""
        self._pending[root] = None
        self._wake.set()

    def remove(self, root: str) -> None:
        """Stop watching `root`."""
        self._pending.pop(root, None)
        self._placing.discard(root)
        self._give_back(self._table.release(root))

    def renew(self, roots: Iterable[str]) -> None:
        """Find anew where to watch `roots`."""
        for root in roots:
            self.add(root)

    def recover(self) -> None:
        """Find all anew: the end of a watch may have been among the events that were lost."""
        self.renew(self._table.all_roots())

    def configure(self, settings: WatchSettings) -> None:
        """Do nothing: no setting concerns it."""

    async def run(self, listener: Listener) -> None:
        """Watch until cancelled."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._pace.run, listener.touched, name="hints")
                while True:
                    await self._wake.wait()  # no limit: nothing comes or goes
                    self._wake = anyio.Event()
                    while roots := list(islice(self._pending, _AT_ONCE)):
                        await self._place(roots, listener, group)
        finally:
            self._table.clear()
            kernel, self._kernel = self._kernel, None
            if kernel is not None:
                kernel.close()

    # --- which project's watch is where ----------------------------------------------------------
    async def _place(self, roots: list[str], listener: Listener, group: TaskGroup) -> None:
        for root in roots:
            del self._pending[root]
        self._placing, self._ended = set(roots), set()
        barred = {root: listener.barred(root) for root in roots}
        try:
            if self._kernel is None:
                self._kernel = Inotify()
                group.start_soon(self._read, self._kernel, listener, name="inotify")
        except OSError as error:
            barred = dict.fromkeys(roots, _why(error))
        found = await self._visits.pay(roots, partial(_placed, kernel=self._kernel, barred=barred))
        for root in roots:
            found.setdefault(root, (Place(root=root, folder=None, ai=NOWHERE, why_not=SILENT), None))
        places = [place for place, watch in found.values() if self._take_over(place.root, watch)]
        self._placing = set()
        await listener.placed(places)

    def _take_over(self, root: str, watch: int | None) -> bool:
        """Note a watch that was made; return whether its project is still there."""
        if root not in self._placing:
            if watch is not None and not self._table.roots(watch):
                self._give_back(watch)
            return False
        self._give_back(self._table.release(root) if watch is None else self._table.assign(root, watch))
        if watch in self._ended:
            self.add(root)
        return True

    def _give_back(self, watch: int | None) -> None:
        if watch is not None and self._kernel is not None:
            self._kernel.remove(watch)

    # --- events ----------------------------------------------------------------------------------
    async def _read(self, kernel: Inotify, listener: Listener) -> None:
        """Read one batch in each turn of the loop: a flood cannot hold up other tasks."""
        while True:
            if not (data := kernel.read()):
                await anyio.wait_readable(kernel.descriptor)
                continue
            is_news = self._sort(data, listener)
            if len(data) > BATCH_BYTES - _LARGEST_EVENT_BYTES:
                await checkpoint()  # there is more
            else:
                await anyio.sleep(_GATHER_S if is_news else _EXPECT_S)

    def _sort(self, data: bytes, listener: Listener) -> bool:
        """Report what was read; return whether that is news of any project."""
        touched: set[str] = set()
        gone: set[str] = set()
        moved: set[str] = set()
        for watch, mask, name in parse_events(data):
            if mask & IN_Q_OVERFLOW:
                listener.overflowed()
            elif mask & (IN_IGNORED | IN_MOVE_SELF):
                moved.update(self._ended_at(watch, mask))
            elif name in _NAMES or not name:
                (gone if mask & _AWAY else touched).update(self._table.roots(watch))
            elif name == _AI:
                moved.update(self._table.roots(watch))
        if touched:
            self._pace.hint(touched)
        if gone:
            self._pace.hint_later(gone)
        if moved:
            listener.moved(moved)
        return bool(touched or gone or moved)

    def _ended_at(self, watch: int, mask: int) -> tuple[str, ...]:
        """Return the projects whose watch is no longer where it should be."""
        if self._placing:
            self._ended.add(watch)
        return self._table.drop(watch) if mask & IN_IGNORED else self._table.roots(watch)


def _placed(
    root: str, *, kernel: Inotify | None, barred: Mapping[str, str | None]
) -> tuple[Place, int | None]:
    """Watch a project that is not barred; return where, and the number of the watch, if there is one."""
    why_not = barred[root]
    if kernel is None or why_not is not None:
        return place_of(root).refused(why_not or ""), None
    return _watched(kernel, root)


def _watched(kernel: Inotify, root: str, attempts: int = _ATTEMPTS) -> tuple[Place, int | None]:
    place = place_of(root)
    if place.folder is None:
        return place, None
    try:
        return place, kernel.add(place.folder, IN_AI if place.ai else IN_ROOT)
    except OSError as error:
        if attempts > 1 and error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return _watched(kernel, root, attempts - 1)
        return place.refused(_why(error, place.folder)), None


def _why(error: OSError, folder: str = "inotify") -> str:
    return LIMIT_REACHED if error.errno in _LIMITS else f"{folder}: {error.strerror}"


# --- the pace of one project's hints -----------------------------------------------------------------
class Pace:
    """Passes first hints on at once, and later hints at the next tick, `rest_s` seconds later.

    A file that is written to without a pause sends an event each time, and a look costs more than the write.
    And a file that vanishes may be the first of many (`rm -r`, a change of branches): writing it again
    at once would be in the way. Without hints there are no ticks.
    """

    def __init__(self, rest_s: float) -> None:
        self._rest_s = rest_s
        self._deliver: Callable[[Iterable[str]], None] = _to_no_task
        self._told: set[str] = set()
        self._owed: set[str] = set()
        self._later: set[str] = set()
        self._wake = anyio.Event()

    def hint(self, roots: Iterable[str]) -> None:
        """Take news of these; of each, it is delivered now or with the next tick."""
        roots = set(roots)
        self._owed |= roots & self._told
        if first := roots - self._told:
            self._told |= first
            self._wake.set()
            self._deliver(first)

    def hint_later(self, roots: Iterable[str]) -> None:
        """Take news of these that can wait; of each, it is delivered after `rest_s` at the least."""
        self._later.update(roots)
        self._wake.set()

    async def run(self, deliver: Callable[[Iterable[str]], None]) -> None:
        """Deliver until cancelled; what was hinted before is forgotten."""
        self._deliver = deliver
        self._told, self._owed, self._later, self._wake = set(), set(), set(), anyio.Event()
        while True:
            await self._wake.wait()  # no limit: without a hint there is nothing to do
            await anyio.sleep(self._rest_s)
            self._told, self._owed, self._later = self._owed, self._later, set()
            if self._told:
                self._deliver(frozenset(self._told))
            elif not self._owed:
                self._wake = anyio.Event()


def _to_no_task(roots: Iterable[str]) -> None:
    """Do nothing: no task runs yet."""


# --- projects and their watches ----------------------------------------------------------------------
class WatchTable:
    """Roots and the numbers of their watches, both ways. Pure book-keeping.

    Two projects may be one folder (a bind mount, a name that leads there), and the kernel gives a folder
    one watch: it is given back only when no project needs it any more.
    """

    def __init__(self) -> None:
        self._watch_of: dict[str, int] = {}
        self._root_of: dict[int, str] = {}
        self._others: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return len(self._watch_of)

    def all_roots(self) -> tuple[str, ...]:
        """Return every project that is watched."""
        return tuple(self._watch_of)

    def roots(self, watch: int) -> tuple[str, ...]:
        """Return the projects of a watch; none if it was given back, though late events still come."""
        root = self._root_of.get(watch)
        if root is None:
            return ()
        return (root, *self._others.get(watch, ()))

    def assign(self, root: str, watch: int) -> int | None:
        """Note that `root` is watched by `watch`; return the watch that no project needs any more, if any."""
        before = self._watch_of.get(root)
        if before == watch:
            return None
        needless = self.release(root)
        self._watch_of[root] = watch
        if self._root_of.setdefault(watch, root) != root:
            self._others.setdefault(watch, set()).add(root)
        return needless

    def release(self, root: str) -> int | None:
        """Note that `root` is not watched; return the watch that no project needs any more, if any."""
        watch = self._watch_of.pop(root, None)
        if watch is None:
            return None
        others = self._others.get(watch, set())
        others.discard(root)
        if not others:
            self._others.pop(watch, None)
        if self._root_of[watch] != root:
            return None
        del self._root_of[watch]
        if not others:
            return watch
        self._root_of[watch] = others.pop()
        if not others:
            self._others.pop(watch, None)
        return None

    def drop(self, watch: int) -> tuple[str, ...]:
        """Note that a watch has ended by itself; return its projects."""
        roots = self.roots(watch)
        for root in roots:
            del self._watch_of[root]
        self._root_of.pop(watch, None)
        self._others.pop(watch, None)
        return roots

    def clear(self) -> None:
        """Forget all."""
        self._watch_of.clear()
        self._root_of.clear()
        self._others.clear()
