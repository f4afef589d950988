"""The process tree below a subreaper, signals that reach only it, and a run as one such tree.

Process groups and sessions are left with one call and an environment can be cleared, but
whoever descends from a child subreaper comes back to it as a child when orphaned. So the tree is
walked through /proc/PID/task/*/children, and it is gone when the subreaper has no child left.
A pid can be used again between the walk and the signal: each signal goes through a pidfd and only
after the process was seen in its place in the tree.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from handoffd.execute.runner import proc

if TYPE_CHECKING:
    from handoffd.execute.runner import cgroup


_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)

_TIGHT_ROUNDS = 200
"""Rounds without a pause: a fork storm is outrun only by not resting."""
_PAUSE_S = 0.5
_BATCH = 256
"""Processes held by descriptor at a time; far below the usual limit of 1,024."""


class Member(NamedTuple):
    """A process and the parent it was found under."""

    pid: int
    parent: int


class Sweep(NamedTuple):
    """Whom a signal reached, and who is another user's and cannot be reached."""

    reached: set[int]
    refused: set[int]


def become_subreaper(name: str) -> None:
    """Make orphaned descendants children of this process, and show it as `name` in `ps`."""
    _LIBC.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a child subreaper")


def children(pid: int) -> list[int]:
    """Return the children of `pid`, ended but unreaped ones included; none when it is gone."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        found += map(int, (proc.read(f"/proc/{pid}/task/{thread}/children") or b"").split())
    return found


def _children_by_scan() -> dict[int, list[int]]:
    """Return the children of every process from one pass over /proc."""
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (seen := proc.stat(int(entry))):
            found.setdefault(seen.parent, []).append(int(entry))
    return found


def descendants(root: int, spare: Collection[int] = ()) -> list[Member]:
    """Return everybody below `root`, parents first; `spare` and those below them are left out."""
    # Kernels built without CONFIG_PROC_CHILDREN lack the file; there all of /proc is read instead.
    listed = os.path.exists(f"/proc/{root}/task/{root}/children")
    table = {} if listed else _children_by_scan()
    found: list[Member] = []
    pending = [root]
    for parent in pending:
        for pid in children(parent) if listed else table.get(parent, []):
            if pid not in spare:
                found.append(Member(pid, parent))
                pending.append(pid)
    return found


def _hold(member: Member, root: int) -> int | None:
    """Return a pidfd of `member`, or None when it is no longer where it was found."""
    try:
        pidfd = os.pidfd_open(member.pid)
    except OSError:
        return None
    seen = proc.stat(member.pid)
    if seen is None or seen.ended or seen.parent not in (member.parent, root):
        os.close(pidfd)
        return None
    return pidfd


def signal_exactly(pid: int, started: int, number: int) -> None:
    """Send signal `number` to the process `pid` that began at `started`, if it is still there."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if proc.started(pid) == started:
            signal.pidfd_send_signal(pidfd, number)
    except OSError:
        return
    finally:
        os.close(pidfd)


def sweep(root: int, number: int, spare: Collection[int] = ()) -> Sweep:
    """Send signal `number` once to everybody below `root` as the tree is now."""
    result = Sweep(set(), set())
    members = descendants(root, spare)
    for start in range(0, len(members), _BATCH):
        _signal_batch(members[start : start + _BATCH], root, number, result)
    return result


def _signal_batch(members: list[Member], root: int, number: int, result: Sweep) -> None:
    # All are held before the first is signalled: a parent's end would move its children elsewhere.
    held = [(member.pid, pidfd) for member in members if (pidfd := _hold(member, root)) is not None]
    for pid, pidfd in held:
        try:
            signal.pidfd_send_signal(pidfd, number)
            result.reached.add(pid)
        except PermissionError:
            result.refused.add(pid)
        except ProcessLookupError:
            continue
        finally:
            os.close(pidfd)


def pause_s(rounds: int) -> float:
    """Return how long to rest after that many rounds of killing: at first not at all.

    Whoever has not gone by then waits inside the kernel; asking faster would only burn time.
    """
    return 0.0 if rounds < _TIGHT_ROUNDS else _PAUSE_S


# --- a run: the program itself and all that descends from it ------------------------------------------
_REFUSED_LIMIT_S = 5.0


class Family:
    """The descendants of this process. Every method is called from the one thread there is.

    This process is a child subreaper: nobody is left when it has no child left. Where the run has a control
    group, that is killed as well: also whom another user owns.
    """

    def __init__(self, group: cgroup.Group | None = None) -> None:
        self._me = os.getpid()
        self._group = group
        self._main: int | None = None
        self._status: int | None = None
        self._hit: set[int] = set()
        self.ended: float | None = None
        """When the main process was found to have ended, by the monotonic clock."""
        self.nobody = False
        """Whether the last look found no child at all."""
        self.survived = 0
        """How many could not be ended because they belong to another user."""

    def head(self, pid: int) -> None:
        """Make the child `pid` the main process, whose end is the end of the run."""
        self._main = pid

    @property
    def result(self) -> int | None:
        """The exit code of the main process, or minus the signal that ended it."""
        return None if self._status is None else os.waitstatus_to_exitcode(self._status)

    @property
    def killed(self) -> int:
        """How many were ended after the main process."""
        return len(self._hit - {self._main})

    def reap(self) -> None:
        """Look who has ended."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._main:
                    self.ended = time.monotonic()
                    self._status = status
        except ChildProcessError:
            self.nobody = True

    def signal(self, name: str) -> None:
        """Send the signal called `name` once to everybody."""
        sweep(self._me, signal.Signals[f"SIG{name}"])

    def end(self, rest: Callable[[float], None]) -> None:
        """Return when nobody is left, or only such as belong to another user.

        `rest` is called between two rounds with the time at which it must have returned; it reaps.
        """
        refused_since: float | None = None
        rounds = 0
        self.reap()
        while not self.nobody:
            self._hit |= self._group.kill() if self._group is not None else set()
            result = sweep(self._me, signal.SIGKILL)
            self._hit |= result.reached
            rest(time.monotonic() + pause_s(rounds))
            rounds += 1
            if result.reached or not result.refused:
                refused_since = None
                continue
            refused_since = refused_since or time.monotonic()
            if time.monotonic() - refused_since > _REFUSED_LIMIT_S:
                self.survived = len(result.refused)
                return
