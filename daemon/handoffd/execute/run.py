"""The daemon's side of a run: find it again, wait for it, stop it, read its signs of life.

The daemon is never the parent of a run, so it may end at any instant, and its successor adopts the running
ones. A run is identified by its run directory, its shim by pid, start time and boot id. These are checked
again behind a pidfd before each signal, so a signal never reaches a stranger that got the same pid.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import anyio
import structlog

from handoffd.execute import base
from handoffd.execute.environment import MARK
from handoffd.execute.output import heard_ns, output_bytes, read_output
from handoffd.execute.runner import proc, records, tree
from handoffd.execute.witness import ALONE, Witness, is_runner, lineage

log = structlog.get_logger(__name__)

Record = TypeVar("Record", base.StartRecord, base.ExitRecord, base.RunSpec)

_LOOK_AGAIN_S = 0.02


class Run:
    """One run, started now or by an earlier daemon. Holds nothing open: any number may exist."""

    def __init__(self, run_dir: Path, claim: base.Claim) -> None:
        self.run_dir = run_dir
        self._claim = claim
        self._start: base.StartRecord | None = None

    @property
    def shim_pid(self) -> int:
        """The process id of the shim, which receives every request to the run."""
        return self._claim.pid

    @property
    def pid(self) -> int:
        """The process id of the program; the shim's until it has started the program."""
        start = self.start_record()
        return self.shim_pid if start is None else start.pid

    def start_record(self) -> base.StartRecord | None:
        """Return when the program was started, and its process; None if it was not started (yet)."""
        if self._start is None:  # it is written once
            self._start = _record(self.run_dir, base.START, base.StartRecord)
        return self._start

    async def started(self) -> base.StartRecord | None:
        """Return the start record; waits for it while the shim may still write it.

        None if the shim has ended without writing it, whether or not it had started the program.
        """
        while (start := self.start_record()) is None:
            if not self.is_running():
                return self.start_record()  # again: it may have appeared before the shim's end, never after
            await anyio.sleep(_LOOK_AGAIN_S)  # seldom needed: only for a run adopted while its shim starts it
        return start

    async def wait(self) -> base.ExitRecord:
        """Return how the run ended, after its last process has ended.

        Has no time limit: the shim enforces the deadline, and the end of the shim ends the wait.
        """
        pidfd = self._pidfd()
        if pidfd is not None:
            try:
                await _readable(pidfd)
            finally:
                os.close(pidfd)
        return _exit_record(self.run_dir)

    def stop(self) -> None:
        """Ask the shim to go down the stop ladder; does nothing for a run that is over."""
        self._signal(signal.SIGTERM, signal.SIGCONT)  # a shim stopped by SIGSTOP acts only after SIGCONT

    def kill(self) -> None:
        """Kill a shim that does not react to `stop`; the run is then lost, and its remains are killed."""
        self._signal(signal.SIGKILL)

    def latest_end(self, asked: float | None) -> float | None:
        """Return when (monotonic seconds) the shim should have ended the run at the latest; None: no limit.

        That is its deadline, or the moment when it was `asked` to stop, plus its whole ladder.
        """
        spec, start = _record(self.run_dir, base.SPEC, base.RunSpec), self.start_record()
        if spec is None:
            return None
        limits = [] if asked is None else [asked]
        if start is not None and spec.deadline_s is not None:
            limits.append(start.monotonic + spec.deadline_s)
        return min(limits) + sum(rung.grace_s for rung in spec.ladder) if limits else None

    def _signal(self, *numbers: int) -> None:
        pidfd = self._pidfd()
        if pidfd is None:
            return
        try:
            for number in numbers:
                signal.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            return
        finally:
            os.close(pidfd)

    def vitals(self, witness: Witness = ALONE) -> base.Vitals:
        """Return the signs of life of all processes below the shim; zeros if there are none."""
        members = tree.descendants(self.shim_pid) if self.is_running() else []
        seen = [stat for member in members if (stat := proc.stat(member.pid))]
        shim = proc.stat(self.shim_pid) if members else None
        # The shim reaps orphans, so its `reaped_cpu` holds their time; its own time is not a sign of life.
        pids = [member.pid for member in members]
        written = witness.written(pids).values()
        ticks = sum(stat.cpu + stat.reaped_cpu for stat in seen) + (shim.reaped_cpu if shim else 0)
        return base.Vitals(
            output_bytes=output_bytes(self.run_dir),
            cpu_s=ticks / proc.TICKS_PER_SECOND,
            written_bytes=sum(one.calls for one in written),
            stored_bytes=sum(one.stored for one in written),
            heard_ns=heard_ns(self.run_dir),
            received=witness.received(pids),
        )

    def folder(self) -> str | None:
        """Return the root of its project; None if it is not recorded."""
        spec = _record(self.run_dir, base.SPEC, base.RunSpec)
        return None if spec is None else spec.home

    def is_running(self) -> bool:
        """Return whether the shim is running; a stranger that got its pid does not count."""
        claim = self._claim
        return proc.is_running(claim.pid, claim.started, claim.boot_id)

    def lives(self) -> bool:
        """Return whether a recorded process is running: the shim, or the program without it."""
        start = self.start_record()
        return self.is_running() or (
            start is not None and proc.is_running(start.pid, start.pid_started, start.boot_id)
        )

    def _pidfd(self) -> int | None:
        """Return a descriptor of exactly this run's shim, or None if it is gone."""
        try:
            pidfd = os.pidfd_open(self.shim_pid)
        except ProcessLookupError:
            return None
        if self.is_running():
            return pidfd
        os.close(pidfd)
        return None


def claimed(run_dir: Path) -> Run | None:
    """Return the run whose shim has claimed `run_dir`, over or not; None if no shim has."""
    text = records.claimed(str(run_dir), base.CLAIM)
    return None if text is None else Run(run_dir, base.Claim.from_text(text))


def living(runs_dir: Path) -> Iterator[Run]:
    """Yield the runs in `runs_dir` that have a running process, sorted by name.

    Raises OSError or ValueError if a run's records cannot be read: it might be running.
    """
    for name in sorted(os.listdir(runs_dir)) if runs_dir.is_dir() else ():
        run = claimed(runs_dir / name)
        if run is not None and run.lives():
            yield run


def adopt(run_dir: Path) -> Run | base.ExitRecord | None:
    """Return the run of `run_dir` if it is running, its exit record if it is over, None if it never started.

    If the shim is gone without an exit record, the run is `lost`, and its remaining processes are killed.
    """
    run = claimed(run_dir)
    if run is None:
        return None
    if records.read(str(run_dir), base.EXIT) is None and run.is_running():
        return run
    return _exit_record(run_dir)


def recorded(run_dir: Path) -> tuple[base.RunSpec, base.StartRecord | None, base.ExitRecord | None] | None:
    """Return the records of a run, as far as there are any; None of one that was never prepared. Blocks."""
    spec = _record(run_dir, base.SPEC, base.RunSpec)
    if spec is None:
        return None
    start, end = _record(run_dir, base.START, base.StartRecord), _record(run_dir, base.EXIT, base.ExitRecord)
    return spec, start, end


def _record(run_dir: Path, name: str, cls: type[Record]) -> Record | None:
    """Return the record `name`, or None if it is missing or damaged.

    Records appear whole, but a power cut may damage one that was not synced.
    """
    text = records.read(str(run_dir), name)
    try:
        return cls.from_json(text) if text else None
    except ValueError:
        return None


def _exit_record(run_dir: Path) -> base.ExitRecord:
    return _record(run_dir, base.EXIT, base.ExitRecord) or _lost(run_dir)


def _lost(run_dir: Path) -> base.ExitRecord:
    """Kill what is left of a run whose shim was killed, and return its exit record.

    Without a start record the program may or may not have begun: the shim may have died between starting it
    and writing the record.
    """
    start = _record(run_dir, base.START, base.StartRecord)
    spec = _record(run_dir, base.SPEC, base.RunSpec)
    killed = end_remains(start, spec.env.get(MARK) if spec else None)
    log.warning("run lost", run=run_dir.name, started=start is not None, killed=killed)
    return base.ExitRecord(
        run_id=start.run_id if start else run_dir.name,
        by="lost",
        tail=_tail(run_dir),
        output_bytes=output_bytes(run_dir),
        killed=killed,
    )


def _tail(run_dir: Path) -> str:
    spec = _record(run_dir, base.SPEC, base.RunSpec)
    if spec is None:
        return ""
    return read_output(run_dir, spec.output, last=base.TAIL_BYTES).decode("utf-8", "replace")


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = anyio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


# --- the remaining processes of a run that has lost its shim -----------------------------------------
# The launcher ends them more thoroughly, as their ancestor; this is for the case that it is gone, too. The
# start record leads to the main process and all below it. A process that was orphaned before usually still
# has the run's id in its environment. One that has cleared its environment as well is not found, because
# nothing distinguishes it from the user's own programs.
_TREE_ROUNDS = 200
_MARKED_ROUNDS = 20
_END_LIMIT_MS = 2000


def end_remains(start: base.StartRecord | None, run_id: str | None) -> int:
    """Kill what is left of a run, found by its start record or by the run id in the environment.

    Returns the number of killed processes. A program that forks faster than this loop may survive it.
    """
    hit = _end_tree(start) if start is not None else set[int]()
    if run_id:
        hit |= _end_marked(f"{MARK}={run_id}".encode())
    return len(hit)


def end_member(pid: int, runs_dir: Path, socket: Path) -> bool:
    """Kill a process if it belongs to one of our runs, and wait for its end; return whether it has ended.

    Ours are the runs with a folder in `runs_dir`, and all descendants of our shims and of the launcher at
    `socket`. Never touches any other process, or this one.
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


def is_member(pid: int, runs_dir: Path, socket: Path) -> bool:
    """Return whether a process belongs to one of our runs, or is our launcher or a shim of ours."""
    begun = f"{MARK}=".encode()
    for one in lineage(pid):
        entries = (proc.read(f"/proc/{one}/environ") or b"").split(b"\0")
        names = (os.fsdecode(entry.removeprefix(begun)) for entry in entries if entry.startswith(begun))
        if any(name and "/" not in name and (runs_dir / name).is_dir() for name in names):
            return True
        command = proc.read(f"/proc/{one}/cmdline") or b""
        words = [Path(os.fsdecode(word)) for word in command.split(b"\0")]
        if is_runner(command) and any(word == socket or runs_dir in word.parents for word in words):
            return True
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
    """Return whether a process (never this one) has exactly that variable; an ended process has none."""
    return pid != os.getpid() and entry in (proc.read(f"/proc/{pid}/environ") or b"").split(b"\0")


def _kill_marked(pid: int, entry: bytes) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _has(pid, entry):  # checked again: the pidfd now excludes a stranger with the same pid
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True
