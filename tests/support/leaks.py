"""A pytest plugin: what a test leaves open or running is an error of that test, and of no later one.

After each test, when its fixtures are gone, what it made and nothing refers to any more is collected. An
unclosed socket, file or event loop thus warns while its test is still there to be blamed. What is open or
running all the same (descriptors, threads, processes) was there before, belongs to a fixture that lasts
longer, or is a leak.

A whole collection takes 30 ms and more, most of them for what was imported. So everything that a test finds
is taken out of the collector's sight before it begins (`gc.freeze`): then a collection takes a fraction.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
import tracemalloc
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import pytest

from handoffd.execute.runner import proc

_MARK = "TESTED_BY"
"""In the environment of all that the tests start: the pid of the process that runs them."""

FOLDERS = f"handoffd-{os.getpid()}-"
"""How the names of folders begin that tests make for sockets, whose paths have to be short."""

_PAUSE_S = 0.02
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of the kernel, in the flags of /proc/PID/stat."""
_LONGEST_EXEC_S = 1.0
_STANDARD = 2
"""The last of the descriptors that pytest itself turns to files and back."""


class Leaked(Exception):
    """A test left something behind; the text says what."""


class Thing(NamedTuple):
    """A resource that a test must close, join or end."""

    kind: str
    number: int
    name: str = ""


class LeakCheck:
    """Looks, around each test, at what is open and running."""

    def __init__(self, config: pytest.Config, grace_s: float = 10.0) -> None:
        """Take what is there `grace_s` after a test for left: what is ending may need a moment."""
        self._config = config
        self._grace_s = grace_s
        self._before: set[Thing] = set()
        self._lent: dict[pytest.FixtureDef[Any], set[Thing]] = {}
        """What fixtures that outlast a test have opened or started, while they last."""
        self._newest = 0
        self._strangers: set[int] = set()
        """Processes that were checked: none of them belongs to the tests."""
        os.environ[_MARK] = str(os.getpid())

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self) -> None:
        """Leave nothing of the collection to the first test."""
        gc.collect()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Remember what is there before the test."""
        gc.freeze()
        self._before = _held().difference(*self._lent.values())
        self._newest = self._newest or _newest_process()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Remember what a fixture makes that is shared by several tests."""
        if fixturedef.scope == "function":
            return (yield)
        before = _held()
        try:
            return (yield)
        finally:
            made = _held() - before
            if made or fixturedef.scope != "session":  # pytest's own last as long as the session
                self._lent[fixturedef] = made

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Have a shared fixture answer for what it made, now that it is over."""
        if self._lent.pop(fixturedef, None) is not None:
            gc.unfreeze()  # what it made came before the tests that used it

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail the test that has just ended if it left something."""
        __tracebackhide__ = True
        try:
            return (yield)
        finally:
            self._check(item)

    def _check(self, item: pytest.Item) -> None:
        __tracebackhide__ = True
        _forget(item)
        left = self._settled()
        told = [_told(thing) for thing in sorted(left)]
        for thing in left:
            if thing.kind == "process":
                _end(thing.number)
        try:
            for plugin in ("unraisableexception", "threadexception"):
                self._config.pluginmanager.get_plugin(plugin).pytest_runtest_teardown(item)  # type: ignore[union-attr]
        finally:
            if told:
                raise Leaked("\n".join(["left behind:", *told]))

    def _settled(self) -> set[Thing]:
        """Return what is left; what is about to go has a moment for it."""
        limit = time.monotonic() + self._grace_s
        while True:
            gc.collect()
            left = self._left()
            if not left or time.monotonic() > limit:
                return left
            time.sleep(_PAUSE_S)

    def _left(self) -> set[Thing]:
        left = _held().difference(self._before, *self._lent.values())
        # What a shared daemon starts belongs to it and not to the test; it is looked for when that is over.
        return left if self._lent else left | set(self._orphans())

    def _orphans(self) -> Iterator[Thing]:
        """Yield processes that descend from the tests without being children of this process."""
        if (newest := _newest_process()) == self._newest:
            return  # no process was started at all
        present = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._strangers &= present
        ours = {pid for pid in present - self._strangers if self._is_ours(pid)}
        self._strangers |= present - ours
        if not ours:
            self._newest = newest
        yield from (Thing("process", pid) for pid in ours)

    def _is_ours(self, pid: int) -> bool:
        seen = proc.stat(pid)
        if seen is None or seen.ended or pid == os.getpid():
            return False
        if b"%s=%d\0" % (_MARK.encode(), os.getpid()) in _environment(pid):
            return True
        # A launcher has nothing of our environment, but its command line names its socket.
        command = os.fsdecode(proc.read(f"/proc/{pid}/cmdline") or b"")
        folder = self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        return f"{folder}/" in command or os.path.join(tempfile.gettempdir(), FOLDERS) in command


def _forget(item: pytest.Item) -> None:
    """Let go of what pytest keeps of a test: its fixtures' values, the frames of its failure."""
    if isinstance(item, pytest.Function):
        item.funcargs.clear()
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        sys.__dict__.pop(name, None)


def _held() -> set[Thing]:
    """Return this process's descriptors, threads and children."""
    held = {Thing("thread", thread.native_id or 0, thread.name) for thread in threading.enumerate()}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one by which they are listed
            if int(name) > _STANDARD:
                held.add(Thing("descriptor", int(name), os.readlink(f"/proc/self/fd/{name}")))
    for task in os.listdir("/proc/self/task"):
        children = proc.read(f"/proc/self/task/{task}/children") or b""
        held.update(Thing("process", int(pid)) for pid in children.split())
    return held


def _newest_process() -> int:
    """Return the latest pid on this machine, of a process or a thread."""
    return int((proc.read("/proc/loadavg") or b"0").split()[-1])


def _environment(pid: int) -> bytes:
    """Return what `pid` was started with; nothing when it is gone, or that is not ours to see.

    While another program takes the place of a process's first, it reads as one without an environment.
    """
    path, limit = f"/proc/{pid}/environ", time.monotonic() + _LONGEST_EXEC_S
    while (found := proc.read(path)) == b"" and not _has_no_environment(pid) and time.monotonic() < limit:
        time.sleep(0.001)
    return found or b""


def _has_no_environment(pid: int) -> bool:
    """Tell whether none will be read later either: it is empty, a kernel thread's, or of what has ended."""
    if not (raw := proc.read(f"/proc/{pid}/stat")):
        return True
    state, *field = raw.rpartition(b")")[2].split()
    flags, code, begins, ends = (int(field[number]) for number in (5, 22, 46, 47))
    # The kernel lays out the environment of a new program first, and says last where its code is.
    return state in (b"Z", b"X") or bool(flags & _KERNEL_THREAD) or (code != 0 and begins == ends)


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


# --- what people read ---------------------------------------------------------------------------------
def _told(thing: Thing) -> str:
    match thing.kind:
        case "descriptor":
            return f"descriptor {thing.number}: {thing.name}{_owner(thing.number)}"
        case "thread":
            frame = sys._current_frames().get(_ident(thing))
            where = "".join(traceback.format_stack(frame, limit=-3) if frame else ())
            return f"thread {thing.name!r}\n{where}".rstrip()
    seen = proc.stat(thing.number)
    if seen is None or seen.ended:
        return f"process {thing.number}: it has ended, and was not waited for"
    words = (proc.read(f"/proc/{thing.number}/cmdline") or b"").replace(b"\0", b" ")
    return f"process {thing.number}: {words.decode('utf-8', 'replace')}"


def _ident(thing: Thing) -> int:
    return next((t.ident or 0 for t in threading.enumerate() if t.native_id == thing.number), 0)


def _owner(descriptor: int) -> str:
    """Return the object of a descriptor, and with PYTHONTRACEMALLOC=10 where it was made."""
    for candidate in gc.get_objects():
        # By its type: a proxy would answer for something else, or fail.
        if issubclass(type(candidate), socket.socket | io.FileIO) and _number(candidate) == descriptor:
            made = tracemalloc.get_object_traceback(candidate)
            return "\n".join([f", {candidate!r}", *(made.format() if made else ())])
    return ""


def _number(file: socket.socket | io.FileIO) -> int:
    try:
        return file.fileno()
    except (OSError, ValueError):
        return -1
