"""What git adds to a step: from the end of one agent to the start of the next, with and without it.

    python -m tests.benchmarks.git_steps [--files 1000] [--changed 3] [--steps 12] [--rounds 5] [--check]

A real daemon drives stories of some steps in a repository. Each agent notes when it begins, changes a few
files, hands over, and notes when it ends. The kinds take turns, so that a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tests.benchmarks.measures import machine, summary
from tests.benchmarks.rows import Row, table
from tests.benchmarks.snapshots import repository
from tests.support.agents import project_at, shell_agent
from tests.support.daemon import Daemon, running
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER
from tests.support.repositories import git

KINDS = {
    "without git": {"workspace": "root", "snapshots": False},
    "snapshots": {"workspace": "root", "snapshots": True},
    "a clone, commits, snapshots": {"workspace": "clone", "snapshots": True},
}
GOAL_MS = 40.0
"""How much a clone, its commits and its snapshots may add to a step of a repository of 1,000 files."""

AGENT = f"""\
began=$(date +%s%N)
cat > /dev/null
for file in {{changed}}; do echo "$HANDOFFD_STEP" >> "$file"; done
{HAND_OVER}echo "$began $(date +%s%N)" >> {{times}}
"""

_RULE = "on_fail: {default: bdd}, step_instruction: {en: Do it.}"


def project_of(base: Path, kind: str, files: int, steps: int) -> Path:
    """Return a repository with a table of `steps` steps."""
    names = ["bdd", *(f"part-{number}" for number in range(1, steps)), "done"]
    lines = [f"  {one}: {{next_on_pass: {then}, {_RULE}}}" for one, then in pairwise(names)]
    settings = {**KINDS[kind], "auto_continue": True}
    if kind.startswith("a clone"):
        settings["commit"] = "step"
    project = project_at(base / "shop", "\n".join(["steps:", *lines, ""]), json.dumps(settings))
    (project / ".gitignore").write_text("/.ai\n")
    repository(project, files)
    assert 0 == git(project, "checkout", "--quiet", "-b", "work")
    return project


def gaps(base: Path, kind: str, files: int, changed: int, steps: int) -> list[float]:
    """Return the seconds between the end of each agent and the start of the next."""
    base.mkdir()
    project, times = project_of(base, kind, files, steps), base / "times"
    names = " ".join(f"part0000/file{number}.txt" for number in range(changed))
    agent = shell_agent(base, AGENT.format(changed=names, times=times))
    with running(base, {"executor": "agent", "executors": {"agent": agent}}) as daemon:
        daemon.verb("init", project)
        daemon.verb("start", project, story="US-001")
        eventually_sync(lambda: _is_over(daemon, times, steps), within_s=120)
    spans = [tuple(map(int, line.split())) for line in times.read_text().splitlines()]
    return [(begun - ended) / 1e9 for (_, ended), (begun, _) in pairwise(spans)]


def _is_over(daemon: Daemon, times: Path, steps: int) -> bool:
    return times.exists() and times.read_text().count("\n") >= steps


def rows(base: Path, files: int, changed: int, steps: int, rounds: int) -> list[Row]:
    """Return what each kind takes, and what it adds."""
    laps: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for place, kind in enumerate(KINDS):
            laps[kind] += gaps(base / f"{number}-{place}", kind, files, changed, steps)
    plain, *_, all_of_it = middles = [summary(laps[kind]).p50 for kind in KINDS]
    return [
        *(Row(what=f"{kind}, p50", value=one, unit="ms") for kind, one in zip(KINDS, middles, strict=True)),
        *(Row(what=f"{kind}, p90", value=summary(laps[kind]).p90, unit="ms") for kind in KINDS),
        Row(what="a clone adds, p50", value=all_of_it - plain, unit="ms", at_most=GOAL_MS),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; `--check` fails where the goal is missed."""
    parser = argparse.ArgumentParser(prog="git_steps", description=str(__doc__).splitlines()[0])
    for name, usual in (("files", 1000), ("changed", 3), ("steps", 12), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="handoffd-") as base:
        found = rows(Path(base), given.files, given.changed, given.steps, given.rounds)
        where = machine(Path(base))
    title = f"{given.steps} steps in a row, {given.files:,} files, {given.changed} changed in each"
    told = {"machine": where, "rows": [row.as_json() for row in found]}
    print(json.dumps(told) if given.json else table(title, found, [f"{where}"]))
    return 1 if given.check and any(row.met is False for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
