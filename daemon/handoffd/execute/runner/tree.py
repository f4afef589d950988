"""The process tree below a subreaper, and signals that reach only it.

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
from collections.abc import Collection
from typing import NamedTuple

from handoffd.execute.runner import proc

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
