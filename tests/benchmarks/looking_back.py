"""How long a report of a night takes, and other questions about the past, with a long history.

    python -m tests.benchmarks.looking_back [--projects 10000] [--runs 100000] [--check]

A real daemon over many projects at rest, whose journal has that many runs spread over ten days, each with its
events. The report is asked for over HTTP, again and again. docs/explanation/performance.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.fleet import idle_projects
from tests.benchmarks.handoff_latency import bounded, say
from tests.benchmarks.measures import machine, summary
from tests.benchmarks.rows import Row, table
from tests.benchmarks.seeding import seed
from tests.support.daemon import Daemon

from handoffd.journal.codec import moment
from handoffd.journal.database import open_database

LIMIT_S: Final = 900
DAYS: Final = 10
LAPS: Final = 5
STEPS: Final = ("bdd", "sdd-delta", "contract", "scaffold", "impl", "verify", "update-memory")
TAIL: Final = "a line that an agent has printed\n" * 40

_EVENT: Final = """INSERT INTO events (at, project, track, kind, event, result, why, step_before,
    status_before, step_after, status_after, grounds, story, awaits)
    VALUES (?, ?, 'main', ?, ?, '{"type": "accepted"}', 'it was its turn', ?, ?, ?, ?, '{}', ?, ?)"""
_RUN: Final = """INSERT INTO dispatches (id, seq, project, track, story, step, attempt, executor, decided_at,
    started_at, ended_at, exit, result, why, input_tokens, output_tokens, cache_read_tokens,
    cache_write_tokens, cost_usd)
    VALUES (?, ?, ?, 'main', ?, ?, 1, 'claude', ?, ?, ?, ?, ?, '12 tests pass', 1000, 500, 0, 0, 0.05)"""
"""Past `Journal`, one row at a time: it would take an hour."""


def remember(journal: Path, roots: Sequence[Path], runs: int) -> None:
    """Put runs into a journal, the last one just now, each of a story of one of the projects."""
    journal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    begin = datetime.now(UTC) - timedelta(days=DAYS)  # noqa: TID251  (the daemon's clock)
    with closing(open_database(journal)) as db:
        db.execute("BEGIN")
        for number in range(runs):
            at = begin + timedelta(days=DAYS) * number / runs
            _remember(db, number, roots[number % len(roots)], number // len(roots), at)
        db.execute("COMMIT")


def _remember(db: sqlite3.Connection, number: int, root: Path, turn: int, at: datetime) -> None:
    run, step, story = f"d{number}", STEPS[turn % len(STEPS)], f"US-{turn // len(STEPS) + 1:03}"
    first = None
    for kind, event, awaits, after_s in _events(run):
        status = "pass" if kind == "checks_finished" else "running"
        moved = (step, "running", step, status, story, awaits)
        row = (moment(at + timedelta(seconds=after_s)), str(root), kind, json.dumps(event), *moved)
        first = first or db.execute(_EVENT, row).lastrowid
    ended, how = moment(at + timedelta(seconds=300)), json.dumps({"code": 0, "tail": TAIL})
    verdict = "pass" if number % 9 else "failing"
    db.execute(_RUN, (run, first, str(root), story, step, moment(at), moment(at), ended, how, verdict))


def _events(run: str) -> Iterator[tuple[str, dict[str, Any], str, float]]:
    """Yield the events of an attempt, as large as they are: kind, event, what is waited for, seconds."""
    claim = {"status": "pass", "tests": {"pass": 12, "fail": 0}, "files_changed": ["shop/cart.py"]}
    reading = {"kind": "found", "handoff": claim, "source": "front-matter"}
    tests = {"counts": {"pass": 12, "fail": 0}, "tail": TAIL}
    yield "advanced", {"dispatch": run}, "agent", 0
    yield "executor_started", {"dispatch": run, "pid": 7}, "agent", 0.1
    yield "executor_exited", {"dispatch": run, "exit": {"tail": TAIL}, "reading": reading}, "checks", 300
    yield "checks_finished", {"dispatch": run, "tests": tests}, "slot", 330


def rows(base: Path, projects: int, runs: int) -> list[Row]:
    """Return how long the questions take, in milliseconds."""
    roots = idle_projects(base / "projects", projects)
    daemon = Daemon(base)
    say(f"remembering {runs:,} runs of {projects:,} projects")
    remember(daemon.state_dir / "journal.db", roots, runs)
    seed(daemon.state_dir / "journal.db", roots)
    with closing(daemon):
        daemon.start()
        daemon.get("/v1/status")  # which reads every project once

        def took(path: str, **query: str) -> float:
            began = time.perf_counter()
            daemon.get(path, **query)
            return time.perf_counter() - began

        def usually(path: str, **query: str) -> float:
            return summary([took(path, **query) for _ in range(LAPS)]).p50

        ended = daemon.get("/v1/report", since="12h")["cost"]["runs"]
        return [
            Row(what=f"report of 12 h, {ended:,} runs", value=usually("/v1/report", since="12h"), unit="ms",
                at_most=1000),
            Row(what="report of 24 h", value=usually("/v1/report", since="24h"), unit="ms"),
            Row(what="stories", value=usually("/v1/stories"), unit="ms"),
            Row(what="events of one story", value=usually("/v1/events", story="US-001"), unit="ms"),
            Row(what="runs since 12 h", value=usually("/v1/runs", since="12h"), unit="ms"),
        ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it measured, 1 when, with --check, a goal is missed."""
    parser = argparse.ArgumentParser(prog="looking_back", description=str(__doc__).splitlines()[0])
    parser.add_argument("--projects", type=int, default=10_000, help="projects at rest (10000)")
    parser.add_argument("--runs", type=int, default=100_000, help="runs in the journal (100000)")
    parser.add_argument("--check", action="store_true", help="fail when a goal is missed")
    given = parser.parse_args(arguments)
    base = Path(tempfile.mkdtemp(prefix="handoffd-past-"))
    try:
        with bounded(LIMIT_S):
            found = rows(base, given.projects, given.runs)
        print(table("looking back", found, [str(machine(base))]))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if given.check and any(row.met is False for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
