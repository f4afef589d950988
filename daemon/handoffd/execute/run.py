"""The daemon's side of a run: find it again, wait for it, stop it, look how it does.

The daemon is never the parent of a run, so it may end at any instant and its successor adopts
what goes on. A run is known by its run directory; its shim by pid, start time and boot id, checked
again behind a pidfd before each signal, so a pid that is used again by a stranger is safe.
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
from handoffd.execute.witness import ALONE, Witness

log = structlog.get_logger(__name__)

Record = TypeVar("Record", base.StartRecord, base.ExitRecord, base.RunSpec)

_LOOK_AGAIN_S = 0.02


class Run:
    """One run that was started at some time by somebody. Holds nothing open: any number may exist."""

    def __init__(self, run_dir: Path, claim: base.Claim) -> None:
        self.run_dir = run_dir
        self._claim = claim
        self._start: base.StartRecord | None = None

    @property
    def shim_pid(self) -> int:
        """The process id of the shim, through which everything that is asked of the run goes."""
        return self._claim.pid

    @property
    def pid(self) -> int:
        """The process id of the program; the shim's for as long as it has not started it."""
        start = self.start_record()
        return self.shim_pid if start is None else start.pid

    def start_record(self) -> base.StartRecord | None:
        """Return when and as what the program was started; None when it was not (yet)."""
        if self._start is None:  # it is written once
            self._start = _record(self.run_dir, base.START, base.StartRecord)
        return self._start

    async def started(self) -> base.StartRecord | None:
        """Return the start record, waiting for it while there is a shim that may still write it.

        None when the shim has ended without having started the program, or without having said so.
        """
        while True:
            over = not self.is_running()  # before looking: nothing comes later
            start = self.start_record()
            if start is not None or over:
                return start
            await anyio.sleep(_LOOK_AGAIN_S)  # it is there at once but for one adopted at that very moment

    async def wait(self) -> base.ExitRecord:
        """Return how the run ended, once no process of it is left.

        There is no limit here: the shim enforces the deadline, and a shim that is gone ends the wait.
        """
        pidfd = self._pidfd()
        if pidfd is not None:
            try:
                await _readable(pidfd)
            finally:
                os.close(pidfd)
        return _exit_record(self.run_dir)

    def stop(self) -> None:
        """Ask the shim to climb down the stop ladder; does nothing for a run that is over."""
        self._signal(signal.SIGTERM, signal.SIGCONT)  # a shim that somebody stopped hears nothing before it

    def kill(self) -> None:
        """Kill a shim that does not react to `stop`: the run is then lost, and what is left of it ended."""
        self._signal(signal.SIGKILL)

    def latest_end(self, asked: float | None) -> float | None:
        """Return by when (monotonic seconds) the shim should have ended the run; None when nothing says so.

        That is its whole ladder after the deadline, or after it was `asked` to stop.
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
        """Return the signs of life of everything below the shim; zeros when there is nothing."""
        members = tree.descendants(self.shim_pid) if self.is_running() else []
        seen = [stat for member in members if (stat := proc.stat(member.pid))]
        shim = proc.stat(self.shim_pid) if members else None
        # The shim reaps orphans, so what they used up is found with it; its own use is no sign of life.
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
        """Return the folder that its program works in, its project's root; None when that is not recorded."""
        spec = _record(self.run_dir, base.SPEC, base.RunSpec)
        return None if spec is None else spec.cwd

    def is_running(self) -> bool:
        """Tell whether the shim is there; a stranger that got its pid does not count."""
        claim = self._claim
        return proc.is_running(claim.pid, claim.started, claim.boot_id)

    def lives(self) -> bool:
        """Tell whether anything that the records name is there: the shim, or the program without it."""
        start = self.start_record()
        return self.is_running() or (
            start is not None and proc.is_running(start.pid, start.pid_started, start.boot_id)
        )

    def _pidfd(self) -> int | None:
        """Return a descriptor of exactly this run's shim, or None when it is gone."""
        try:
            pidfd = os.pidfd_open(self.shim_pid)
        except ProcessLookupError:
            return None
        if self.is_running():
            return pidfd
        os.close(pidfd)
        return None


def claimed(run_dir: Path) -> Run | None:
    """Return the run that a shim has claimed `run_dir` for, over or not; None when none has."""
    text = records.claimed(str(run_dir), base.CLAIM)
    return None if text is None else Run(run_dir, base.Claim.from_text(text))


def living(runs_dir: Path) -> Iterator[Run]:
    """Yield the runs in a folder of runs of which something lives, by name.

    Raises OSError, or ValueError, for one of which that cannot be told: it might run.
    """
    for name in sorted(os.listdir(runs_dir)) if runs_dir.is_dir() else ():
        run = claimed(runs_dir / name)
        if run is not None and run.lives():
            yield run


def adopt(run_dir: Path) -> Run | base.ExitRecord | None:
    """Return what became of `run_dir`: None when it was never started, how it ended when it did.

    A shim that is gone without an exit record leaves a run that is `lost`; what is then still
    there of the program is killed.
    """
    run = claimed(run_dir)
    if run is None:
        return None
    if records.read(str(run_dir), base.EXIT) is None and run.is_running():
        return run
    return _exit_record(run_dir)


def _record(run_dir: Path, name: str, cls: type[Record]) -> Record | None:
    """Return the record `name`, or None when it is not there, or not whole.

    Records appear whole, but one that was not synced need not be whole after a power cut.
    """
    text = records.read(str(run_dir), name)
    try:
        return cls.from_json(text) if text else None
    except ValueError:
        return None


def _exit_record(run_dir: Path) -> base.ExitRecord:
    return _record(run_dir, base.EXIT, base.ExitRecord) or _lost(run_dir)


def _lost(run_dir: Path) -> base.ExitRecord:
    """Return the record of a run whose shim was killed, after killing what it has left behind.

    Without a start record it is not known whether the program began: the shim may have died between
    starting it and writing that down.
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


# --- what is alive of a run that has lost its shim ---------------------------------------------------
# Found from outside, and ended. The launcher does the same from above and more thoroughly; this is for when
# it is gone, too. The main process and all below it are found by the start record. A process that was
# orphaned before usually still has the run's id in its environment; one that has cleared that as well is not
# found, because nothing tells it from the person's own programs.
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
