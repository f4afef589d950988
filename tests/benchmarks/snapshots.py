"""What a snapshot of a repository costs, beside `git status` of the same one.

    python -m tests.benchmarks.snapshots [--files 1000,50000] [--rounds 15] [--json] [--check]

Before each, 20 files are changed; after it, what these are is found out. The two take turns, so that a busy
machine slows both.
`--check`: the exit code is 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from tests.benchmarks.handoff_latency import count_of
from tests.benchmarks.measures import machine, summary
from tests.benchmarks.rows import Row, ratio, table
from tests.support.repositories import git

from handoffd.clock import SystemClock
from handoffd.git.labels import BEGUN, Label
from handoffd.git.snapshots import Snapshots

GOALS_MS = {1_000: 40.0, 50_000: 250.0}
"""At most, p50, by the number of files."""
CHANGED = 20
_IN_A_FOLDER = 50


def rows(base: Path, files: int, rounds: int) -> list[Row]:
    """Return what snapshots of a repository with `files` files cost, below `base`."""
    root, chance = base / f"repository-{files}", Random(files)
    paths = repository(root, files)
    snapshots = Snapshots(str(root), base / "state", dict(os.environ))
    first, laps, statuses, looks = lap(lambda: _take(snapshots, 0)), [], [], []
    for number in range(1, rounds + 1):
        _take(snapshots, number, BEGUN)
        for path in chance.sample(paths, CHANGED):
            path.write_text(f"{number} {chance.random()}")
        laps.append(lap(lambda: _take(snapshots, number)))  # noqa: B023  (called at once)
        looks.append(lap(lambda: snapshots.measured("US-001", "impl", durable=False)))
        statuses.append(lap(lambda: git(root, "status", "--porcelain")))
    taken, status = summary(laps), summary(statuses)
    return [
        Row(what="snapshot, p50", value=taken.p50, unit="ms", at_most=GOALS_MS.get(files)),
        Row(what="snapshot, p90", value=taken.p90, unit="ms"),
        Row(what="the first one", value=first * 1000, unit="ms"),
        Row(what="what a step has changed, p50", value=summary(looks).p50, unit="ms"),
        Row(what="git status, p50", value=status.p50, unit="ms"),
        Row(what="snapshot ÷ git status", value=ratio(taken.p50, status.p50), unit="×"),
    ]


def repository(root: Path, files: int) -> list[Path]:
    """Make a folder a repository with one commit of `files` files, and return their paths."""
    paths = [root / f"part{place // _IN_A_FOLDER:04}" / f"file{place}.txt" for place in range(files)]
    for place, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"line of file {place}\n" * 20)
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "-m", "all of them")):
        assert 0 == git(root, *words)
    return paths


def _take(snapshots: Snapshots, number: int, result: str = "failing") -> None:
    at, run = SystemClock().now(), None if result == BEGUN else f"run-{number}"
    snapshots.take(Label(story="US-001", step="impl", result=result, run=run, at=at))


def lap(work: Callable[[], object]) -> float:
    """Return how many seconds something takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def measured(
    name: str,
    purpose: str,
    measure: Callable[[Path, int, int], list[Row]],
    rounds: int,
    arguments: Sequence[str] | None,
) -> int:
    """Measure repositories of several sizes and print; 1 when a goal is missed and `--check` was given."""
    parser = argparse.ArgumentParser(prog=name, description=purpose)
    parser.add_argument("--files", default="1000,50000", help="how many files, with commas between")
    parser.add_argument("--rounds", type=count_of, default=rounds, help=f"{name} of each ({rounds})")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="fail when a goal is missed")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="handoffd-bench-") as folder:
        base = Path(folder)
        on = machine(base)
        found = {int(files): measure(base, int(files), given.rounds) for files in given.files.split(",")}
    if given.json:
        told = {str(files): [row.as_json() for row in some] for files, some in found.items()}
        print(json.dumps({"machine": on, "files": told}, indent=2))
    else:
        print("\n".join(table(f"{files:,} files, {on}", some) for files, some in found.items()))
    return 1 if given.check and any(row.met is False for some in found.values() for row in some) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure snapshots and print."""
    return measured("snapshots", str(__doc__).splitlines()[0], rows, 15, arguments)


if __name__ == "__main__":
    sys.exit(main())
