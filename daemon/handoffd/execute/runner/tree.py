"""The process tree below a subreaper, signals that reach only it, and a run as one such tree.

A process leaves its process group and session with one call and can clear its environment, but any
descendant of a child subreaper becomes a child of it when orphaned. So this module walks the tree through
/proc/PID/task/*/children, and the tree is gone when the subreaper has no child left. The kernel may reuse a
pid between the walk and the signal: each signal goes through a pidfd, and only after another look has found
the process in its place in the tree.
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
"""Rounds without a pause: only a loop without pauses is faster than a fork storm."""
_PAUSE_S = 0.5
_BATCH = 256
"""Descriptors of processes that are open at a time; far below the usual limit of 1,024."""


class Member(NamedTuple):
    """A process and the parent below which it was found."""

    pid: int
    parent: int


class Sweep(NamedTuple):
    """The processes that a signal reached, and another user's processes, which it cannot reach."""

    reached: set[int]
    refused: set[int]


def become_subreaper(name: str) -> None:
    """Make orphaned descendants children of this process, and show it as `name` in `ps`."""
    _LIBC.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a child subreaper")


def children(pid: int) -> list[int]:
    """Return the children of `pid`, including ended but unreaped ones; empty if it is gone."""
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
    """Return all processes below `root`, parents first, without `spare` and their descendants."""
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
    """Return a pidfd of `member`, or None if it is no longer in its place in the tree."""
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
    """Send signal `number` to process `pid`, if its start time is still `started`."""
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


def sweep(root: int, number: int, spare: Collection[int] = (), last: int | None = None) -> Sweep:
    """Send signal `number` once to every process that is now below `root`, and to `last` after the others."""
    result = Sweep(set(), set())
    members = sorted(descendants(root, spare), key=lambda member: member.pid == last)
    for start in range(0, len(members), _BATCH):
        _signal_batch(members[start : start + _BATCH], root, number, result)
    return result


def _signal_batch(members: list[Member], root: int, number: int, result: Sweep) -> None:
    # Open all pidfds before the first signal: the end of a parent moves its children in the tree.
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
    """Return how long to pause after that many rounds of killing: at first not at all.

    A process that has survived these rounds waits inside the kernel; more signals would only waste time.
    """
    return 0.0 if rounds < _TIGHT_ROUNDS else _PAUSE_S


# --- a run: the program itself and all that descends from it ------------------------------------------
_REFUSED_LIMIT_S = 5.0


class Family:
    """The descendants of this process. Callers use one thread.

    This process is a child subreaper, so no descendant is left when it has no child left. If the run has a
    control group, that is killed as well, which ends even processes of another user.
    """

    def __init__(self, group: cgroup.Group | None = None) -> None:
        self._me = os.getpid()
        self._group = group
        self._main: int | None = None
        self._kept: int | None = None
        self._told: Callable[[], int | None] | None = None
        self._status: int | None = None
        self._hit: set[int] = set()
        self.ended: float | None = None
        """When the end of the main process was noticed, by the monotonic clock."""
        self.is_empty = False
        """Whether the last `reap` found no child at all."""
        self.survived = 0
        """How many processes of another user could not be ended."""

    def head(self, pid: int, kept: int | None = None, told: Callable[[], int | None] | None = None) -> None:
        """Make the child `pid` the main process: when it ends, the run ends.

        If it only keeps the main process `kept`, `told` returns how that has ended, once it has.
        """
        self._main, self._kept, self._told = pid, kept, told

    def hear(self) -> None:
        """Ask the keeper whether the main process has ended."""
        status = self._told() if self._told is not None else None
        if status is not None and self.ended is None:
            self.ended, self._status = time.monotonic(), status

    @property
    def result(self) -> int | None:
        """The exit code of the main process, or minus the signal that ended it."""
        return None if self._status is None else os.waitstatus_to_exitcode(self._status)

    @property
    def killed(self) -> int:
        """How many processes were killed after the main one."""
        return len(self._hit - {self._main, self._kept})

    def reap(self) -> None:
        """Reap all ended children."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._main:
                    self.hear()  # a keeper tells it before its own end
                    if self.ended is None:
                        self.ended, self._status = time.monotonic(), status
        except ChildProcessError:
            self.is_empty = True

    def signal(self, name: str) -> None:
        """Send the signal called `name` once to every descendant."""
        sweep(self._me, signal.Signals[f"SIG{name}"])

    def end(self, rest: Callable[[float], None]) -> None:
        """Kill all descendants; return when none is left, or only processes of another user.

        Between two rounds it calls `rest` with the time by which that must return; `rest` reaps.
        """
        refused_since: float | None = None
        rounds = 0
        self.reap()
        while not self.is_empty:
            self._hit |= self._group.kill() if self._group is not None else set()
            # With a keeper its whole namespace ends, and what is left there could not be counted.
            keeper = None if self._kept is None else self._main
            result = sweep(self._me, signal.SIGKILL, last=keeper)
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
