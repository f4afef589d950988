"""What watching costs: from a change to its hint, at rest, in memory, and in a sweep of everything.

    python -m tests.benchmarks.watching [--projects 1000 10000] [--rounds 300] [--idle 10] [--json]

The watcher by itself in a process of its own, over folders of projects at rest; files are replaced by
another process. Each back end has its own run, they take turns. docs/explanation/performance.md has the
figures.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args

import anyio
from tests.benchmarks.fleet import idle_projects
from tests.benchmarks.measures import machine, summary

from handoffd.settings.model import WatchSettings
from handoffd.watch.watcher import Watcher

Json = dict[str, Any]
BackEnd = Literal["inotify", "watchfiles"]
LIMIT_S = 600
BEAT_S = 0.001
_WRITER = """
import os, sys, time
for line in sys.stdin:
    folder = line.rstrip("\\n")
    with open(folder + "/.temp", "w") as file:
        file.write("x")
    now = time.monotonic_ns()
    os.rename(folder + "/.temp", folder + "/HANDOFF.md")
    print(now, flush=True)
"""


class Hinted:
    """When each project was last hinted, in nanoseconds of the monotonic clock."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}
        self.came = anyio.Event()

    def take(self, root: str) -> None:
        """Note a hint."""
        self.at[root] = time.monotonic_ns()
        self.came.set()


async def _until(hinted: Hinted, count: int) -> None:
    while len(hinted.at) < count:
        hinted.came = anyio.Event()
        await hinted.came.wait()


async def measure(back_end: BackEnd, roots: Sequence[str], rounds: int, idle_s: float) -> Json:
    """Return what it costs to have `roots` watched; MB are 2**20 bytes."""
    hinted, before_kb = Hinted(), _resident_kb()
    watcher = Watcher(hinted.take, WatchSettings(backend=back_end, sweep_s=3600))
    found: Json = {"back_end": back_end, "projects": len(roots)}
    async with anyio.create_task_group() as group:
        group.start_soon(watcher.run)
        began = time.monotonic()
        for root in roots:
            watcher.add(root)
        await _until(hinted, len(roots))
        found["set_up_s"] = round(time.monotonic() - began, 2)
        await anyio.sleep(1)
        found["bytes_each"] = round((_resident_kb() - before_kb) * 1024 / len(roots))
        found["idle_cpu_percent"] = await _idle(idle_s)
        found["hint_ms"] = asdict(summary(await _latencies(hinted, roots, rounds)))
        found["one_more_ms"] = await _one_more(watcher, hinted, roots[0])
        found["sweep"] = await _sweep(watcher)
        group.cancel_scope.cancel()
    return found


async def _idle(seconds: float) -> float:
    before, began = time.process_time(), time.monotonic()
    await anyio.sleep(seconds)
    return round(100 * (time.process_time() - before) / (time.monotonic() - began), 3)


async def _latencies(hinted: Hinted, roots: Sequence[str], rounds: int) -> list[float]:
    """Return the seconds from each rename, one after the other, to its hint."""
    found = []
    dice = random.Random(1)
    async with await anyio.open_process([sys.executable, "-I", "-S", "-c", _WRITER]) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for _ in range(rounds):
            await anyio.sleep(dice.uniform(0.11, 0.14))  # at any point of a step, with every project up
            root = dice.choice(roots)
            hinted.at.pop(root, None)
            await writer.stdin.send(f"{root}/.ai\n".encode())
            renamed = int(await writer.stdout.receive())
            await _until(hinted, len(roots))
            found.append((hinted.at[root] - renamed) / 1e9)
        writer.terminate()
    return found


async def _one_more(watcher: Watcher, hinted: Hinted, root: str) -> float:
    """Return how long it takes until a project that is added is watched."""
    count = len(hinted.at)
    watcher.remove(root)
    await anyio.sleep(1)
    hinted.at.pop(root)
    began = time.monotonic()
    watcher.add(root)
    await _until(hinted, count)
    return round((time.monotonic() - began) * 1000, 2)


async def _sweep(watcher: Watcher) -> Json:
    """Return what a sweep over all costs, and what of it is the event loop's own time."""
    beats: list[float] = []
    await anyio.sleep(0.1)
    async with anyio.create_task_group() as group:
        group.start_soon(_beat, beats)
        await anyio.sleep(0.2)
        beats.clear()
        began, cpu, own = time.monotonic(), time.process_time(), time.thread_time()
        await watcher.sweep_now()
        took, cpu, own = (
            time.monotonic() - began, time.process_time() - cpu, time.thread_time() - own,
        )  # fmt: skip
        group.cancel_scope.cancel()
    longest = max(beats, default=0.0)
    return {
        "wall_ms": round(took * 1000, 1), "cpu_ms": round(cpu * 1000, 1),
        "loop_ms": round(own * 1000, 1), "longest_ms": round(longest * 1000, 1),
    }  # fmt: skip


async def _beat(late: list[float]) -> None:
    """Note how much later than asked for the loop comes round, again and again."""
    while True:
        before = time.monotonic()
        await anyio.sleep(BEAT_S)
        late.append(time.monotonic() - before - BEAT_S)


def _resident_kb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def in_a_process(back_end: str, listed: Path, rounds: int, idle_s: float) -> Json:
    """Return what `measure` finds in a process of its own."""
    words = ["--only", back_end, "--list", str(listed), "--rounds", str(rounds), "--idle", str(idle_s)]
    argv = [sys.executable, "-m", "tests.benchmarks.watching", *words]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=LIMIT_S)
    found: Json = json.loads(done.stdout)
    return found


def table(found: Json) -> str:
    """Return the findings for people."""
    on = found["machine"]
    lines = [
        f"{on['cores']} cores, Linux {on['kernel']}, Python {on['python']}, {on['file_system']}, "
        f"load {on['load']}"
    ]
    for one in found["runs"]:
        hint, sweep = one["hint_ms"], one["sweep"]
        lines += [
            f"\n{one['back_end']}, {one['projects']:,} projects",
            f"  change to hint      p50 {hint['p50']:.2f} ms, p99 {hint['p99']:.2f} ms, n {hint['n']}",
            f"  at rest             {one['idle_cpu_percent']:g} % of a core, without sweeps",
            f"  memory              {one['bytes_each']} bytes a project",
            f"  all watched after   {one['set_up_s']:g} s; one more after {one['one_more_ms']:g} ms",
            f"  a sweep             {sweep['wall_ms']:g} ms, {sweep['cpu_ms']:g} ms of CPU, of these "
            f"{sweep['loop_ms']:g} ms on the loop, which was late by {sweep['longest_ms']:g} ms at most",
        ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--projects", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--idle", type=float, default=10, help="seconds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=get_args(BackEnd), help=argparse.SUPPRESS)
    parser.add_argument("--list", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.only:
        roots = given.list.read_text().splitlines()
        print(json.dumps(anyio.run(measure, given.only, roots, given.rounds, given.idle)))
        return
    with tempfile.TemporaryDirectory(prefix="watching-") as folder:
        base, runs = Path(folder), []
        for count in given.projects:
            listed = base / f"{count}.txt"
            roots = idle_projects(base / str(count), count)
            listed.write_text("".join(f"{root}\n" for root in roots))
            runs += [in_a_process(one, listed, given.rounds, given.idle) for one in get_args(BackEnd)]
        found = {"machine": machine(base), "runs": runs}
    print(json.dumps(found) if given.json else table(found))


if __name__ == "__main__":
    main()
