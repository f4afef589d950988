"""Which processes of a house are alive, told without asking any of them.

A process is one of the house's when it names a path of it (command line, environment, working
directory, output), when it descends from one that does, as everything below a launcher, and when it has
a dispatch among its arguments, as those that hide from all the rest.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from handoffd.execute.base import CLAIM, EXIT, START, Claim

LAUNCHER, SHIM = "handoffd-launch", "handoffd-shim"


@dataclass(frozen=True, slots=True)
class Process:
    """One process, as /proc shows it. `run` is the run its shim has claimed, or it is a shim of."""

    pid: int
    parent: int
    name: str
    started: int
    command: str
    run: str | None = None

    def __str__(self) -> str:
        return f"{self.pid} {self.name} (parent {self.parent}, run {self.run}): {self.command[:160]}"


def alive(base: Path, runs: Path) -> list[Process]:
    """Return every living process that belongs to the house at `base`; zombies have ended."""
    all_seen = {seen.pid: seen for pid in os.listdir("/proc") if pid.isdigit() and (seen := _look(int(pid)))}
    claims = _claims(runs)
    mark = os.fsencode(f"{base}/")
    mine = {pid for pid in all_seen if pid != os.getpid() and _names(pid, mark)}
    dispatches = [name.split(".")[0] for name in os.listdir(runs)] if runs.is_dir() else []
    mine |= {pid for pid, seen in all_seen.items() if any(name in seen.command for name in dispatches)}
    grown = True
    while grown:  # what descends from one of them is one of them
        below = {pid for pid, seen in all_seen.items() if seen.parent in mine}
        grown = bool(below - mine)
        mine |= below
    return [_with_run(all_seen[pid], all_seen, claims) for pid in sorted(mine)]


def children(parent: int, name: str) -> list[int]:
    """Return the processes of a name that another one has started."""
    every = (_look(int(pid)) for pid in os.listdir("/proc") if pid.isdigit())
    return [one.pid for one in every if one is not None and (one.parent, one.name) == (parent, name)]


def launchers(base: Path, runs: Path) -> list[Process]:
    """Return the launchers of a house: the current one, and former ones that have shims left."""
    named = {seen.pid: seen for seen in alive(base, runs) if seen.name == LAUNCHER}
    # A shim has the launcher's name until it gives itself one.
    return [seen for seen in named.values() if seen.parent not in named]


def shim_of(run_dir: Path) -> int | None:
    """Return the pid of the shim that looks after a run now; None when none does."""
    with suppress(OSError, ValueError):
        claim = Claim.from_text(os.readlink(run_dir / CLAIM))
        seen = _look(claim.pid)
        if seen is not None and seen.started == claim.started and not (run_dir / EXIT).exists():
            return claim.pid
    return None


def ended_by_somebody(run_dir: Path, shim: int) -> bool:
    """Return whether what a shim leaves behind is ended when it is killed now.

    Its launcher does that, or, for a known program, the daemon that finds the run lost. In between, with
    the launcher gone and the program just begun, no process can know about it (see `launcher.py`).
    """
    seen = _look(shim)
    parent = _look(seen.parent) if seen is not None else None
    return (run_dir / START).exists() or (parent is not None and parent.name == LAUNCHER)


def end_all(base: Path, runs: Path) -> None:
    """Kill everything of a house, for the end of a run of the harness itself."""
    for _ in range(50):
        left = alive(base, runs)
        if not left:
            return
        for seen in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(seen.pid, signal.SIGKILL)


def _claims(runs: Path) -> dict[tuple[int, int], str]:
    found = {}
    for name in os.listdir(runs) if runs.is_dir() else ():
        with suppress(OSError, ValueError):
            claim = Claim.from_text(os.readlink(runs / name / CLAIM))
            found[claim.pid, claim.started] = name
    return found


def _with_run(seen: Process, all_seen: dict[int, Process], claims: dict[tuple[int, int], str]) -> Process:
    up: Process | None = seen
    while up is not None:
        run = claims.get((up.pid, up.started))
        if run is not None:
            return Process(seen.pid, seen.parent, seen.name, seen.started, seen.command, run)
        up = all_seen.get(up.parent)
    return seen


def _look(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, rest = file.read().rpartition(b")")
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return None
    fields = rest.split()
    if fields[0] in (b"Z", b"X"):
        return None
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    return Process(pid, int(fields[1]), name, int(fields[19]), command)


def _names(pid: int, mark: bytes) -> bool:
    """Tell whether a process names the house: in command line, environment, working directory or output."""
    for source in ("cmdline", "environ"):
        with suppress(OSError), open(f"/proc/{pid}/{source}", "rb") as file:
            if mark in file.read():
                return True
    for link in ("cwd", "fd/1"):  # a daemon writes its log there, and has nothing else to know it by
        with suppress(OSError):
            if mark in os.fsencode(os.readlink(f"/proc/{pid}/{link}")) + b"/":
                return True
    return False
