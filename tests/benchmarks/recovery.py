"""How long a daemon needs, after kill -9, until every track of its projects is recovered.

    python -m tests.benchmarks.recovery [--projects 1000] [--rounds 5] [--tables] [--json] [--check]

A real daemon knows many projects and is killed. The time runs from the start of the next one's
program (its imports included) until it has been round all projects. A repaired STATE.json shows that it
has visited a project: every fiftieth project and the last one have a text from before the latest commit, as
after a crash. The report also has the time of the imports in a program that does nothing else. With
`--tables` every project has its own step table, too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil
from tests.benchmarks.fleet import idle_projects
from tests.benchmarks.measures import cpu_s, machine
from tests.support.daemon import Daemon

Json = dict[str, Any]
GOAL_S = 2.0
LIMIT_S = 120.0
_EVERY = 50
_TABLE = {"steps": {"bdd": {"max_attempts": 4}}}


class Recovery:
    """One daemon with many projects, killed and started again."""

    def __init__(self, base: Path, projects: int, *, tables: bool) -> None:
        self._base = base
        self._projects = idle_projects(base / "projects", projects)
        for root in self._projects if tables else ():
            (root / ".ai/step-rules.yaml").write_text(json.dumps(_TABLE))  # JSON is YAML
        self._behind = [*self._projects[::_EVERY], self._projects[-1]]
        self._daemon = Daemon(base, {"schedule": {"poll_s": 30}})
        self._stale: dict[Path, bytes] = {}

    def run(self, rounds: int) -> Json:
        """Return what was measured in `rounds` recoveries."""
        self._daemon.start()
        try:
            self._fill()
            found = [self._recover() for _ in range(rounds)]
            floor = [_import_s() for _ in range(rounds)]
        finally:
            self._daemon.close()
        return {
            "machine": machine(self._base),
            "projects": len(self._projects),
            "recovered_s": round(median(one["recovered_s"] for one in found), 2),
            "slowest_s": round(max(one["recovered_s"] for one in found), 2),
            "answers_s": round(median(one["answers_s"] for one in found), 2),
            "cpu_s": round(median(one["cpu_s"] for one in found), 2),
            "imports_s": round(median(floor), 2),
            "goal_s": GOAL_S,
        }

    def _fill(self) -> None:
        """Have every project known, and some with a STATE.json before their latest one."""
        with self._client() as client:
            for root in self._projects:
                client.post("/v1/verbs/add", json={"project": str(root)}).raise_for_status()
            for root in self._behind:
                self._stale[root] = (root / ".ai/STATE.json").read_bytes()
                client.post(
                    "/v1/verbs/note", json={"project": str(root), "text": "Mind the gap."}
                ).raise_for_status()

    def _recover(self) -> Json:
        latest = {root: (root / ".ai/STATE.json").read_bytes() for root in self._behind}
        self._daemon.kill()
        for root, text in self._stale.items():
            (root / ".ai/STATE.json").write_bytes(text)
        began = time.monotonic()
        self._daemon.start()
        answers = time.monotonic()
        left = set(self._behind)
        while left:
            left = {root for root in left if (root / ".ai/STATE.json").read_bytes() != latest[root]}
            if time.monotonic() - began > LIMIT_S:
                raise TimeoutError(f"{len(left)} projects were not recovered within {LIMIT_S:.0f} s")
            time.sleep(0.01)
        recovered = time.monotonic()
        used = cpu_s(psutil.Process(self._daemon.pid))
        return {"answers_s": answers - began, "recovered_s": recovered - began, "cpu_s": used}

    def _client(self) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(self._daemon.socket))
        return httpx.Client(transport=transport, base_url="http://handoffd", timeout=60)


def _import_s() -> float:
    """Return how long a program lives that only imports what a daemon consists of: the floor."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import handoffd.app.daemon"], check=True)
    return time.monotonic() - began


def measure(projects: int, rounds: int, *, tables: bool) -> Json:
    """Return what one run of the benchmark finds; leaves nothing behind."""
    base = Path(tempfile.mkdtemp(prefix="handoffd-recovery-"))
    try:
        return Recovery(base, projects, tables=tables).run(rounds)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it measured, 1 when, with --check, the goal was missed."""
    parser = argparse.ArgumentParser(prog="recovery", description=str(__doc__).splitlines()[0])
    parser.add_argument("--projects", type=int, default=1000, help="how many there are (1000)")
    parser.add_argument("--rounds", type=int, default=5, help="how often it is killed (5)")
    parser.add_argument("--tables", action="store_true", help="every project has its own step table")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="fail when the goal is missed")
    given = parser.parse_args(arguments)
    found = measure(given.projects, given.rounds, tables=given.tables)
    print(json.dumps(found, indent=2) if given.json else text(found))
    return 1 if given.check and found["recovered_s"] >= GOAL_S else 0


def text(found: Json) -> str:
    """Return the result for people."""
    return (
        f"{found['projects']:,} projects recovered {found['recovered_s']} s after the start of the program"
        f" (slowest {found['slowest_s']} s; it answers after {found['answers_s']} s;"
        f" {found['cpu_s']} s of processor time; its imports alone take {found['imports_s']} s;"
        f" goal {found['goal_s']:g} s)"
    )


if __name__ == "__main__":
    sys.exit(main())
