"""How long it takes from one executor's hand-off to the next executor's first instruction.

    python -m tests.benchmarks.handoff_latency [--projects 1000] [--known] [--rounds 200] [--json] [--check]

A real daemon in its own process, with its launcher and shims and its default settings, supervises
many idle projects and one that is worked on by a stub (`stub.c`). Laps of the daemon take turns with
laps of a floor (`floor.py`) that starts the same stub: on a busy machine both suffer alike, so the
ratio holds where the milliseconds do not. docs/explanation/performance.md says what the numbers mean.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from types import FrameType

import psutil
from tests.benchmarks.executor import Stamp, build, stamps
from tests.benchmarks.fleet import active_project, add_all, idle_projects
from tests.benchmarks.measures import cpu_s, machine, summary
from tests.benchmarks.report import text
from tests.benchmarks.rows import Row, ratio
from tests.benchmarks.seeding import seed
from tests.support.children import ending
from tests.support.daemon import Daemon, Json

from handoffd.execute.base import EXIT, START, ExitRecord, StartRecord

LIMIT_S = 600
"""The whole benchmark gives up after this."""
QUIET_S = 120
"""So long it may take until a daemon that was just started rests."""
LAP = 25
"""Hand-offs in a lap; then it is the other's turn."""
GOAL_MS = {"p50": 25.0, "p99": 100.0}
GOAL_OF_MANY_MS = {"p99": 250.0}
_MANY = 1000
"""With more idle projects than that, the other goal is theirs."""
GOAL_RATIO = 20.0
"""Times as fast as the reference's route."""


@dataclass(slots=True)
class Times:
    """What was measured, in seconds."""

    rename_to_exec: list[float] = field(default_factory=list)
    exit_to_exec: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)


class Bench:
    """One run of the benchmark below one temporary folder."""

    def __init__(self, base: Path, projects: int, rounds: int, idle_s: float, *, known: bool = False) -> None:
        self._base = base
        self._known = known
        self._lap = min(LAP, rounds)
        self._laps = -(-rounds // self._lap)
        self._idle_s = idle_s
        self._stub = build(base)
        self._projects = idle_projects(base / "projects", projects)
        self._active = active_project(base / "active", steps=self._lap + 1)
        self._folders = self._floor_folders()
        executors = {"stub": {"extends": "command", "argv": list(self._stub.argv)}}
        self._daemon = Daemon(base, {"executors": executors, "executor": "stub", "schedule": {"poll_s": 30}})
        self.times = Times()

    def _floor_folders(self) -> Path:
        worked_on = self._base / "floor" / ".ai"
        worked_on.mkdir(parents=True)
        folders = [worked_on, *(root / ".ai" for root in self._projects)]
        listed = self._base / "folders.txt"
        listed.write_text("".join(f"{folder}\n" for folder in folders))
        return listed

    def close(self) -> None:
        """End the daemon, its launcher and whatever runs under it."""
        try:
            self._daemon.close()
        except Exception:
            with contextlib.suppress(AssertionError):  # it has ended
                self._daemon.kill()
            raise

    def run(self) -> Json:
        """Measure, and return everything that was found."""
        found: Json = {
            "machine": machine(self._base),
            "projects": len(self._projects),
            "executor": self._stub.kind,
            "resolution_ms": self._stub.resolution_ms,
        }
        say(f"{'entering' if self._known else 'adding'} {len(self._projects):,} projects")
        found["start"] = self._start()
        say("watching the daemon rest")
        found["idle"] = self._rest()
        say(f"handing off {self._laps * self._lap} times, and as often for the floor")
        for number in range(1, self._laps + 1):
            self._daemon_lap(number)
            self._floor_lap()
        return found | self._latencies()

    # --- before the race -------------------------------------------------------------------------
    def _start(self) -> Json:
        """Bring the daemon up with projects it knows; return how long that took."""
        added = self._active, *(() if self._known else self._projects)
        if self._known:
            seed(self._daemon.state_dir / "journal.db", self._projects)
        self._daemon.start()
        adding = time.monotonic()
        add_all(self._daemon, added)
        took_s = time.monotonic() - adding
        self._daemon.terminate()
        starting = time.monotonic()
        self._daemon.start()
        ready = time.monotonic()
        return {
            "added": len(added),
            "add_s": round(took_s, 2),
            "ready_s": round(ready - starting, 2),
        }

    def _rest(self) -> Json:
        """Wait until the daemon has looked at everything, then see what it costs to have it."""
        process = psutil.Process(self._daemon.pid)
        settling = time.monotonic()
        self._until_quiet(process)
        settled = time.monotonic()
        before = cpu_s(process)
        time.sleep(self._idle_s)
        used = cpu_s(process) - before
        elapsed = time.monotonic() - settled
        return {
            "settled_s": round(settled - settling, 2),
            "seconds": round(elapsed, 1),
            "cpu_percent": round(100 * used / elapsed, 2),
            "rss_mb": round(process.memory_info().rss / 2**20, 1),
            "threads": process.num_threads(),
        }

    def _until_quiet(self, process: psutil.Process) -> None:
        """Return when the daemon used less than a tenth of a core for half a second."""
        limit = time.monotonic() + QUIET_S
        used = -1.0
        while used < 0 or used > 0.05:
            if time.monotonic() > limit:
                raise TimeoutError(f"the daemon did not come to rest within {QUIET_S} s")
            before = cpu_s(process)
            time.sleep(0.5)
            used = cpu_s(process) - before

    # --- the race --------------------------------------------------------------------------------
    def _daemon_lap(self, number: int) -> None:
        answer = self._daemon.verb("start", self._active, story=f"US-{number:03}")
        if answer.get("type") == "error":
            raise RuntimeError(f"the story was not started: {answer}")
        found = self._new_stamps()
        for before, after in pairwise(found):
            self.times.rename_to_exec.append(after.started - before.renamed)
            self.times.exit_to_exec.append(after.started - self._ended(before.run))
        self._daemon.wait_at(self._active, "done", "pass")

    def _ended(self, run: str) -> float:
        """Return when the shim learned of a run's exit, in seconds of the monotonic clock, to 1 ms."""
        folder = self._daemon.state_dir / "runs" / run
        start = StartRecord.from_json((folder / START).read_text())
        return start.monotonic + ExitRecord.from_json((folder / EXIT).read_text()).seconds

    def _floor_lap(self) -> None:
        program = [sys.executable, "-I", "-S", str(Path(__file__).with_name("floor.py"))]
        arguments = [str(self._lap), str(self._folders), *self._stub.argv]
        with ending(subprocess.Popen([*program, *arguments], start_new_session=True)) as floor:
            try:
                found = self._new_stamps()
                floor.wait(60)
            finally:
                floor.kill()
        self.times.floor += [after.started - before.renamed for before, after in pairwise(found)]

    def _new_stamps(self) -> list[Stamp]:
        """Return the stamps of a lap that has just begun, once they are all there, and drop them."""
        wanted = self._lap + 1
        log = self._stub.log
        # Looking costs what is being measured time on a small machine, so it is done seldom.
        deadline = time.monotonic() + 30
        while len(found := stamps(log)) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(found)} of {wanted} executors have run within 30 s")
            time.sleep(0.05)
        os.truncate(log, 0)
        return found

    def _latencies(self) -> Json:
        times = self.times
        goal = goal_ms(len(self._projects))
        ours, exits, floor = map(summary, (times.rename_to_exec, times.exit_to_exec, times.floor))
        return {
            "rename_to_exec_ms": asdict(ours),
            "exit_to_exec_ms": asdict(exits),
            "floor_ms": asdict(floor),
            "ratio": {"p50": round(ours.p50 / floor.p50, 1), "p99": round(ours.p99 / floor.p99, 1)}
            if floor.p50 > 0 and floor.p99 > 0
            else None,  # a coarse clock
            "goal_ms": goal,
            "within_goal": all(asdict(ours)[name] < limit for name, limit in goal.items()),
        }


def goal_ms(projects: int) -> dict[str, float]:
    """Return the goal, in milliseconds, with `projects` idle projects."""
    return GOAL_OF_MANY_MS if projects > _MANY else GOAL_MS


def rows(found: Json, reference_s: list[float] | None) -> list[Row]:
    """Return the findings as figures, beside the durations that the reference's route took."""
    ours, floor, idle, goal = found["rename_to_exec_ms"], found["floor_ms"], found["idle"], found["goal_ms"]
    theirs = summary(reference_s).p50 if reference_s else None
    with_idle = f"with {found['projects']:,} idle projects"
    return [
        Row(what=f"rename to exec, {with_idle}, p50", value=ours["p50"], unit="ms", at_most=goal.get("p50")),
        Row(what="rename to exec, p99", value=ours["p99"], unit="ms", at_most=goal["p99"]),
        Row(what="exit to exec, p50", value=found["exit_to_exec_ms"]["p50"], unit="ms"),
        Row(what="floor: inotify and posix_spawn, p50", value=floor["p50"], unit="ms"),
        Row(what="rename to exec / floor, p50", value=ratio(ours["p50"], floor["p50"]), unit="x"),
        Row(what="the reference's route, p50", value=theirs, unit="ms"),
        Row(what="reference / rename to exec, p50", value=ratio(theirs, ours["p50"]), unit="x",
            at_least=GOAL_RATIO),
        Row(what="at rest: processor", value=idle["cpu_percent"], unit="%"),
        Row(what="at rest: memory", value=idle["rss_mb"], unit="MB"),
        Row(what="start to ready", value=found["start"]["ready_s"], unit="s"),
    ]  # fmt: skip


def say(text: str) -> None:
    """Tell a person that waits what goes on; stdout is for the result."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def bounded(seconds: int) -> Iterator[None]:
    """End the body, tidily, when it takes too long or a signal ends this process."""

    def give_up(number: int, _: FrameType | None) -> None:
        if number == signal.SIGALRM:
            raise TimeoutError(f"the benchmark was not over within {seconds} s")
        raise KeyboardInterrupt

    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, give_up)
    around = signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(around)  # the outer limit continues with its remaining time


def measure(projects: int, rounds: int, idle_s: float, *, known: bool = False) -> Json:
    """Return what one run of the benchmark finds; leaves nothing behind."""
    base = Path(tempfile.mkdtemp(prefix="handoffd-bench-"))
    try:
        bench = Bench(base, projects, rounds, idle_s, known=known)
        with contextlib.closing(bench), bounded(LIMIT_S):
            return bench.run()
    finally:
        shutil.rmtree(base, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it measured, 1 when it could not or, with --check, missed the goal."""
    parser = argparse.ArgumentParser(prog="handoff_latency", description=str(__doc__).splitlines()[0])
    parser.add_argument("--projects", type=count_of, default=1000, help="idle projects (1000)")
    parser.add_argument("--known", action="store_true",
                        help="they are in the journal already: adding a thousand takes 20 s")  # fmt: skip
    parser.add_argument("--rounds", type=count_of, default=200, help="hand-offs to time, at least (200)")
    parser.add_argument("--idle", type=count_of, default=10, help="seconds to watch the daemon rest (10)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="fail when the goal is missed")
    given = parser.parse_args(arguments)
    try:
        found = measure(given.projects, given.rounds, given.idle, known=given.known)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # whatever it is: nothing was measured
        say(f"not measured: {error!r}")
        return 1
    print(json.dumps(found, indent=2) if given.json else text(found))
    return 1 if given.check and not found["within_goal"] else 0


def count_of(word: str) -> int:
    """Return a number given on the command line."""
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
