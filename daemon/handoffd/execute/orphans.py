"""What is still alive of a run that has lost its shim: found from outside, and ended.

The launcher does the same from above and more thoroughly; this is for when it is gone, too. The main
process and all below it are found by the start record. Who was orphaned before belongs to nobody that
we know, but usually still has the run's id in its environment. Who has cleared that, as well, is
found by nobody: nothing tells it from the person's own programs.
"""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

from handoffd.execute import base
from handoffd.execute.environment import MARK
from handoffd.execute.runner import proc, tree

MOST_ANCESTORS = 64
_RUNNERS = (b"/execute/runner/launcher.py", b"/execute/runner/shim.py")
_TREE_ROUNDS = 200
_MARKED_ROUNDS = 20
_END_LIMIT_MS = 2000


def end_remains(start: base.StartRecord | None, run_id: str | None) -> int:
    """Kill what is left of a run, known by its start record or by the id its processes were given.

    Returns how many processes were hit. What starts others faster than this looks may outlast it.
    """
    hit = _end_tree(start) if start is not None else set[int]()
    if run_id:
        hit |= _end_marked(f"{MARK}={run_id}".encode())
    return len(hit)


def end_member(pid: int, runs_dir: Path, socket: Path) -> bool:
    """Kill a process if it belongs to one of our runs, and wait until it has ended; return whether it does.

    Ours are the runs with a folder in `runs_dir`, and what descends from a shim of ours or from the launcher
    that listens at `socket`. No other process is touched, and never this one.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if pid == os.getpid() or not is_member(pid, runs_dir, socket):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        return bool(ended.poll(_END_LIMIT_MS))
    except OSError:
        return False
    finally:
        os.close(pidfd)


def is_runner(command: bytes) -> bool:
    """Return whether a command line is a launcher's or a shim's: Python, its options, then our program."""
    program = next((word for word in command.split(b"\0")[1:] if word.startswith(b"/")), b"")
    return program.endswith(_RUNNERS)


def is_member(pid: int, runs_dir: Path, socket: Path) -> bool:
    """Return whether a process belongs to one of our runs, or is our launcher or a shim of ours."""
    begun = f"{MARK}=".encode()
    for _ in range(MOST_ANCESTORS):
        if (seen := proc.stat(pid)) is None or pid <= 1:
            return False
        entries = (proc.read(f"/proc/{pid}/environ") or b"").split(b"\0")
        names = (os.fsdecode(entry.removeprefix(begun)) for entry in entries if entry.startswith(begun))
        if any(name and "/" not in name and (runs_dir / name).is_dir() for name in names):
            return True
        command = proc.read(f"/proc/{pid}/cmdline") or b""
        words = [Path(os.fsdecode(word)) for word in command.split(b"\0")]
        if is_runner(command) and any(word == socket or runs_dir in word.parents for word in words):
            return True
        pid = seen.parent
    return False


def _end_tree(start: base.StartRecord) -> set[int]:
    hit: set[int] = set()
    for _ in range(_TREE_ROUNDS):
        if not proc.is_running(start.pid, start.pid_started, start.boot_id):
            break
        hit |= tree.sweep(start.pid, signal.SIGKILL).reached
        tree.signal_exactly(start.pid, start.pid_started, signal.SIGKILL)
        hit.add(start.pid)
    return hit


def _end_marked(entry: bytes) -> set[int]:
    hit: set[int] = set()
    for _ in range(_MARKED_ROUNDS):
        marked = [int(name) for name in os.listdir("/proc") if name.isdigit() and _has(int(name), entry)]
        if not marked:
            break
        hit.update(pid for pid in marked if _kill_marked(pid, entry))
    return hit


def _has(pid: int, entry: bytes) -> bool:
    """Tell whether a process (never this one) was given exactly that variable; one that ended has none."""
    return pid != os.getpid() and entry in (proc.read(f"/proc/{pid}/environ") or b"").split(b"\0")


def _kill_marked(pid: int, entry: bytes) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _has(pid, entry):  # looked at again, now that nobody else can get the signal
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True
