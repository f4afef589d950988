"""What many projects at rest cost: to start with them, to have them, and to add or remove one.

    python -m tests.benchmarks.scale [--projects 10000] [--own] [--json] [--check]

A real daemon in its own process, with default settings and a journal that knows all projects already.
Its event loop is watched from inside (`observed.py`). With `--own` every project has settings of its
own, no two alike. docs/explanation/performance.md says what the numbers mean.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from tests.benchmarks.fleet import idle_projects
from tests.benchmarks.handoff_latency import bounded, say
from tests.benchmarks.loop_lag import LoopLag
from tests.benchmarks.measures import cpu_s, machine
from tests.benchmarks.seeding import seed
from tests.support.daemon import Daemon, Json

LIMIT_S = 600
GOAL = {
    "ready_s": 5.0, "rss_mb": 150.0, "rss_end_mb": 150.0, "idle_cpu_percent": 1.0, "poll_ms": 100.0,
    "sweep_ms": 100.0, "start_lag_ms_p99": 20.0, "idle_lag_ms_p99": 20.0, "status_lag_ms_p99": 20.0,
}  # fmt: skip


class Scale:
    """One daemon with many projects, below one temporary folder."""

    def __init__(self, base: Path, projects: int, idle_s: float, *, own: bool) -> None:
        self._base = base
        self._idle_s = idle_s
        self._roots = idle_projects(base / "projects", projects)
        for number, root in enumerate(self._roots if own else ()):
            (root / ".ai/handoffd.yaml").write_text(f"test:\n  command: [make, check-{number}]\n")
        (self._one,) = idle_projects(base / "one", 1)
        self.daemon = Daemon(base, {"schedule": {"poll_s": 30}})
        self._loop = LoopLag(self.daemon)

    def run(self) -> Json:
        """Measure, and return everything that was found."""
        say(f"making {len(self._roots):,} projects")
        seed(self.daemon.state_dir / "journal.db", self._roots)
        found: Json = {"machine": machine(self._base), "projects": len(self._roots)}
        say("starting")
        began = time.monotonic()
        self.daemon.start()
        found["ready_s"] = round(time.monotonic() - began, 2)
        process = psutil.Process(self.daemon.pid)
        found["ready_cpu_s"] = round(cpu_s(process), 2)
        found["settled_s"] = round(self._settle(process), 2)
        found["start_lag_ms"] = self._loop.seen()["lag_ms"]
        found["rss_mb"] = _mb(process)
        say("watching it rest")
        found |= self._rest(process)
        say("asking for the status of all")
        found["status_s"] = [self._status() for _ in range(3)]
        found["status_lag_ms"] = self._loop.seen()["lag_ms"]
        say("adding and removing one")
        found["add"] = self._timed("add")
        found["remove"] = self._timed("remove")
        found["rss_end_mb"] = _mb(process)
        return found | judged(found)

    def _settle(self, process: psutil.Process) -> float:
        """Wait until it used less than a twentieth of a core for two seconds; return when that began."""
        began, limit = time.monotonic(), time.monotonic() + LIMIT_S
        quiet = 0.0
        while True:
            if time.monotonic() > limit:
                raise TimeoutError("the daemon did not come to rest")
            before, quiet = cpu_s(process), time.monotonic() - began
            time.sleep(2)
            if cpu_s(process) - before < 0.1:
                return quiet

    def _rest(self, process: psutil.Process) -> Json:
        self._loop.pause()
        time.sleep(0.1)
        before, began = cpu_s(process), time.monotonic()
        time.sleep(self._idle_s)
        used, took = cpu_s(process) - before, time.monotonic() - began
        seen = self._loop.seen()
        time.sleep(2)
        return {
            "idle_cpu_percent": round(100 * used / took, 2),
            "idle_lag_ms": self._loop.seen()["lag_ms"],
            "poll": seen["poll"],
            "sweep": seen["sweep"],
            "awake": seen["awake"],
        }

    def _status(self) -> float:
        began = time.monotonic()
        answer = self.daemon.get("/v1/status")
        assert len(answer["projects"]) == len(self._roots), "a project is missing"
        return round(time.monotonic() - began, 2)

    def _timed(self, verb: str) -> Json:
        self._loop.seen()
        began = time.monotonic()
        self.daemon.verb(verb, self._one)
        took = time.monotonic() - began
        time.sleep(1)  # whatever follows, for as long as a look of others would take to begin
        seen = self._loop.seen()
        others = {
            root for root in map(str, self._roots) if any(one.startswith(root) for one in seen["opened"])
        }
        return {"ms": round(took * 1000, 1), "others_looked_at": len(others), "lag_ms": seen["lag_ms"]}


def _mb(process: psutil.Process) -> float:
    return round(process.memory_info().rss / 2**20, 1)


def judged(found: Json) -> Json:
    """Return the goals, and which of them what was found misses."""
    lags = {f"{name}_p99": found[name]["p99"] for name in ("start_lag_ms", "idle_lag_ms", "status_lag_ms")}
    values = {**found, **lags, "poll_ms": found["poll"]["loop_ms"], "sweep_ms": found["sweep"]["loop_ms"]}
    missed = [name for name, limit in GOAL.items() if values[name] >= limit]
    missed += [verb for verb in ("add", "remove") if found[verb]["others_looked_at"]]
    return {"goal": GOAL, "missed": missed}


def measure(projects: int, idle_s: float, *, own: bool = False) -> Json:
    """Return what one run of the benchmark finds; leaves nothing behind."""
    base = Path(tempfile.mkdtemp(prefix="handoffd-scale-"))
    try:
        scale = Scale(base, projects, idle_s, own=own)
        with contextlib.closing(scale.daemon), bounded(LIMIT_S):
            return scale.run()
    finally:
        shutil.rmtree(base, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it measured, 1 when it could not or, with --check, missed a goal."""
    parser = argparse.ArgumentParser(prog="scale", description=str(__doc__).splitlines()[0])
    parser.add_argument("--projects", type=int, default=10_000, help="projects at rest (10000)")
    parser.add_argument(
        "--idle", type=float, default=30, help="seconds to watch it rest (30: a sweep is in that)"
    )
    parser.add_argument("--own", action="store_true", help="give each settings of its own")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="fail when a goal is missed")
    given = parser.parse_args(arguments)
    try:
        found = measure(given.projects, given.idle, own=given.own)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # whatever it is: nothing was measured
        say(f"not measured: {error!r}")
        return 1
    print(json.dumps(found, indent=2) if given.json else _text(found))
    return 1 if given.check and found["missed"] else 0


def _text(found: Json) -> str:
    shown = {key: value for key, value in found.items() if key not in {"machine", "goal"}}
    return "\n".join(f"{key:<22} {value}" for key, value in shown.items())


if __name__ == "__main__":
    sys.exit(main())
