"""How much sooner stories of one repository have landed side by side than one after the other.

    python -m tests.benchmarks.beside [--stories 6] [--parallel 3] [--rounds 3] [--work 2]

Agents only wait for `--work` seconds in each of two steps; every story gets a clone, commits, tests and its
landing, by a real daemon. The two ways take turns, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.measures import summary
from tests.support.agents import project_at, shell_agent
from tests.support.daemon import running
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER
from tests.support.repositories import git

TABLE = """\
steps:
  bdd: {next_on_pass: impl, timeout_min: 5}
  impl: {next_on_pass: done, timeout_min: 5}
"""
AGENT = f"""\
cat > /dev/null
sleep {{work}}
echo "$HANDOFFD_STEP" >> "$HANDOFFD_STORY.txt"
{HAND_OVER}"""


def project_of(base: Path, parallel: int) -> Path:
    """Return a repository whose stories the daemon lands, `parallel` of them at once."""
    settings = {
        "workspace": "clone",
        "auto_continue": True,
        "stories": {"parallel": parallel, "land": "auto"},
        "test": {"command": ["/bin/sh", "-c", "test -e begun"]},
    }
    project = project_at(base / "shop", TABLE, json.dumps(settings))
    (project / "begun").write_text("begun\n")
    (project / ".gitignore").write_text("/.ai\n")
    for words in (("init", "--quiet", "--initial-branch", "main"), ("add", "-A"), ("commit", "-qm", "begin")):
        assert 0 == git(project, *words)
    return project


def seconds(base: Path, stories: int, parallel: int, work_s: float) -> float:
    """Return how long it takes until all stories have landed."""
    base.mkdir()
    project = project_of(base, parallel)
    agent = shell_agent(base, AGENT.format(work=work_s))
    settings = {"executor": "agent", "executors": {"agent": agent}, "execute": {"slots": parallel}}
    with running(base, settings) as daemon:
        daemon.verb("init", project)
        names = [f"US-{number:03}" for number in range(1, stories + 1)]
        began = time.monotonic()
        daemon.verb("start", project, story=names[0], then=names[1:])
        landed = [f"handoffd/{name}" for name in names]
        eventually_sync(
            lambda: all(0 == git(project, "merge-base", "--is-ancestor", one, "main") for one in landed),
            within_s=600,
        )
        return time.monotonic() - began


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both, and their ratio."""
    parser = argparse.ArgumentParser(prog="beside", description=str(__doc__).splitlines()[0])
    parser.add_argument("--stories", type=int, default=6)
    parser.add_argument("--parallel", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=float, default=2.0)
    given = parser.parse_args(arguments)
    laps: dict[int, list[float]] = {1: [], given.parallel: []}
    with tempfile.TemporaryDirectory(prefix="handoffd-") as base:
        for number in range(given.rounds):
            for parallel, some in laps.items():
                name = f"{number}-{parallel}"
                some.append(seconds(Path(base, name), given.stories, parallel, given.work))
                print(f"{parallel} at once: {some[-1]:.1f} s", file=sys.stderr)
    middles = {parallel: summary(some).p50 for parallel, some in laps.items()}
    print(f"{given.stories} stories of 2 steps of {given.work:g} s:")
    for parallel, middle in middles.items():
        print(f"  {parallel} at once: p50 {middle / 1000:.1f} s")
    print(f"  ratio: {middles[1] / middles[given.parallel]:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
