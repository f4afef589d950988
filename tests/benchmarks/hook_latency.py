"""How long Claude Code waits for a hook, beside the floor: a Python that does nothing.

    python -m tests.benchmarks.hook_latency [--rounds 40] [--json] [--check]

Each lap starts `handoffd hook` as Claude Code does, and ends with its exit. The kinds take turns, so a busy
machine slows all of them; the processor time of a hook depends on that less.
`--check`: the exit code is 1 if a kind that no check is waited for in has its p50 at 120 ms or more.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.benchmarks.measures import machine, summary
from tests.support.commands import environment, program
from tests.support.daemon import Daemon, running
from tests.support.eventually import eventually_sync
from tests.support.hooking import ARGV, event, hand_over, state_in

Json = dict[str, Any]
Lap = tuple[float, float]
"""Seconds by the clock, and of the processor."""
GOAL_MS = 120
FLOORS: Mapping[str, tuple[str, ...]] = {
    "floor: python -c pass": (sys.executable, "-c", "pass"),
    "floor: python -I -S -c pass": (sys.executable, "-I", "-S", "-c", "pass"),
}
AGO_S = 60
"""Agents work for a while: a hand-off from less than two seconds before a dispatch might be its own."""
LATER = "applied alone, until it is in STATE.json (not waited for)"


def measure(base: Path, rounds: int) -> Json:
    """Return how long each kind of hook takes, working below `base`."""
    with running(base, {"execute": {"settle_s": 600}}) as daemon:
        near = environment(daemon.runtime_dir, HANDOFFD_STATE_DIR=str(daemon.state_dir))
        (base / "alone").mkdir()
        far = environment(base / "alone")
        served, alone, resting = (_project(base / name) for name in ("served", "lonely", "resting"))
        daemon.verb("start", served, story="US-001", manual=True)
        daemon.verb("start", resting, story="US-001", manual=True)
        for words in (("start", "--manual", str(alone), "US-001"), ("dispatch", str(alone))):
            assert 0 == program(*words, env=far).code
        laps = _laps(rounds, daemon, (served, alone, resting), (near, far))
    return {
        "machine": machine(base),
        "rounds": rounds,
        "ms": {name: asdict(summary([clock for clock, _ in of])) for name, of in laps.items()},
        "cpu_ms": {name: summary([busy for _, busy in of]).p50 for name, of in laps.items()},
    }


def _laps(
    rounds: int,
    daemon: Daemon,
    roots: tuple[Path, Path, Path],
    envs: tuple[Mapping[str, str], Mapping[str, str]],
) -> dict[str, list[Lap]]:
    (served, alone, resting), (near, far) = roots, envs
    kinds: dict[str, Callable[[], Lap]] = {
        **{name: lambda argv=argv: _lap(argv, b"", near) for name, argv in FLOORS.items()},  # type: ignore[misc]
        "no project": lambda: _lap(ARGV, event("/"), near),
        "nothing runs": lambda: _lap(ARGV, event(resting), near),
        "a step runs, and is not handed over yet": lambda: _lap(ARGV, event(alone, "SubagentStop"), far),
        "the same, at the end of a turn": lambda: _lap(
            ARGV, event(alone, session_id=str(time.monotonic_ns())), far, 2
        ),
        "applied through the daemon": lambda: _served(daemon, served, near),
    }
    laps: dict[str, list[Lap]] = {name: [] for name in (*kinds, "applied alone", LATER)}
    for number in range(rounds + 1):
        for name, lap in kinds.items():
            took = lap()
            if number:  # the first of each finds cold files
                laps[name].append(took)
        for name, took in zip(("applied alone", LATER), _alone(alone, far), strict=True):
            if number:
                laps[name].append(took)
    return laps


def _served(daemon: Daemon, root: Path, env: Mapping[str, str]) -> Lap:
    daemon.verb("retry", root)
    assert "dispatched" == daemon.verb("dispatch", root)["type"]
    hand_over(root)
    seconds = _lap(ARGV, event(root), env)
    assert "pass" == state_in(root)["status"]
    return seconds


def _alone(root: Path, env: Mapping[str, str]) -> tuple[Lap, Lap]:
    """Return how long a hook takes that has a hand-off applied, and how long that takes in all."""
    hand_over(root)
    began = time.perf_counter()
    seconds = _lap(ARGV, event(root), env)
    eventually_sync(lambda: state_in(root)["status"] == "pass")
    whole = time.perf_counter() - began
    path = root / ".ai/HANDOFF.md"
    os.utime(path, (0, path.stat().st_mtime - AGO_S))
    for verb in ("retry", "dispatch"):
        assert 0 == program(verb, str(root), env=env).code
    return seconds, (whole, 0)


def _lap(argv: Sequence[str], raw: bytes, env: Mapping[str, str], code: int = 0) -> Lap:
    busy, began = _busy_s(), time.perf_counter()
    ended = subprocess.run(argv, input=raw, env=dict(env), capture_output=True, timeout=60, check=False)
    seconds = time.perf_counter() - began
    assert code == ended.returncode, ended
    return seconds, _busy_s() - busy


def _busy_s() -> float:
    """Return the processor time of every process that was waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _project(root: Path) -> Path:
    root.mkdir()
    (root / "PROJECT_CONTEXT.md").write_text("a shop", encoding="utf-8")
    return root


def text(found: Json) -> str:
    """Return the report for people."""
    about = ", ".join(f"{name} {value}" for name, value in found["machine"].items())
    rows = [
        f"{name:58} {ms['p50']:8.1f} {ms['p90']:8.1f} {ms['max']:8.1f} {found['cpu_ms'][name]:8.1f}"
        for name, ms in found["ms"].items()
    ]
    head = f"{'milliseconds, ' + str(found['rounds']) + ' laps':58}      p50      p90      max  cpu p50"
    return "\n".join([about, head, *rows])


def is_met(found: Json) -> bool:
    """Return whether the median of every wait is within the goal."""
    return all(ms["p50"] < GOAL_MS for name, ms in found["ms"].items() if name != LATER)


def main() -> None:
    """Measure, report, and exit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="handoffd-bench-") as base:
        found = measure(Path(base), given.rounds)
    print(json.dumps(found, indent=2) if given.json else text(found))
    sys.exit(1 if given.check and not is_met(found) else 0)


if __name__ == "__main__":
    main()
