"""A workspace at work for an hour, what it costs, and whether every promise was kept.

    python -m tests.soak [--minutes 62] [--projects 1000] [--restarts 30] [--slots 8] [--json] [--check]

A real daemon, started and ended as a service is, supervises many projects in which stories follow seeded
scripts; two attempts in a hundred go wrong. Seven tenths of the time are one long life, then come the
restarts. Then everything may end, and the journal, the projects, the processes and the delivered notices are
checked as in the chaos. docs/explanation/performance.md has the results.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.soak.campaign import Soak, plan
from tests.soak.report import curves, result, table
from tests.soak.workspace import workspace


def say(text: str) -> None:
    """Tell a person that waits; stdout is for the result."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as told; 1 when a promise was broken or, with --check, a goal was missed."""
    given = _parser().parse_args(arguments)
    base = Path(tempfile.mkdtemp(prefix="handoffd-soak-", dir=given.directory))
    house = workspace(base / "house", given.projects, given.slots)
    soak = Soak(house, Random(given.seed), plan(given.minutes, given.restarts), say)
    try:
        soak.run()
        found = result(soak, soak.judged())
    finally:
        soak.abandon()
    if given.curves:
        Path(given.curves).write_text(curves(soak), encoding="utf-8")
    print(json.dumps(found, indent=2) if given.json else table(found))
    broken = [*found["violations"], *found["faults"]]
    if broken:
        say("\n".join((f"kept in {base}", *broken[:50])))
    else:
        with suppress(OSError):
            shutil.rmtree(base)
    return 1 if broken or (given.check and not found["within_goal"]) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="soak", description=str(__doc__).splitlines()[0])
    parser.add_argument("--minutes", type=float, default=62, help="how long (62)")
    parser.add_argument("--projects", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--restarts", type=int, default=30, help="how often the daemon is restarted (30)")
    parser.add_argument("--slots", type=int, default=8, help="executors at once (8)")
    parser.add_argument("--seed", default="1", help="what is drawn follows from it (1)")
    parser.add_argument("--curves", metavar="FILE", help="write the curves there, as SVG")
    parser.add_argument("--directory", help="where to work (the temporary folder)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="fail when a goal is missed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
