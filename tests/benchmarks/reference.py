"""The reference CLI, measured in the same run: its route from one executor to the next, its rate, its status.

It comes from npm, once, as for `make differential`. If it is unavailable, the rows stay empty, with a note.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.benchmarks.executor import Stub, stamps
from tests.differential.reference import VERSION, NotInstalled, installed

from handoffd.clock import SystemClock, rfc3339

Json = dict[str, Any]

LIMIT_S = 300
HERE = Path(__file__).parent
_STEPS = ("impl", "verify", "commit")


def found() -> tuple[Path | None, str]:
    """Return the reference's program, and a sentence for the report; None if it is unavailable."""
    if shutil.which("node") is None:
        return None, "the reference was not measured: there is no node, which runs it"
    try:
        return installed(), f"reference: orchestrator-core {VERSION} on node"
    except (NotInstalled, OSError, subprocess.SubprocessError, ValueError, LookupError) as why:
        return None, f"the reference was not measured: {why}"


def cycles_per_second(cli: Path, base: Path, projects: int, rounds: int) -> float:
    """Return the rate of hand-offs with the dispatch after them, inside the reference's library."""
    script = [str(HERE / "cycles.cjs"), str(cli.with_name("index.js")), str(base), str(projects), str(rounds)]
    done = subprocess.run(
        ["node", *script], capture_output=True, text=True, timeout=LIMIT_S, check=True
    )  # fmt: skip
    said = json.loads(done.stdout)
    return float(said["cycles"] / said["seconds"])


def rename_to_exec(cli: Path, base: Path, stub: Stub, laps: int) -> list[float]:
    """Return seconds from an executor's hand-off to the next one's first instruction.

    The route is its hook's, with a loop outside of it that loses no time: when the executor has ended,
    `apply-handoff`, then `dispatch`, then the next executor. Each lap has two hand-offs.
    """
    root = base / "reference"
    (root / ".ai").mkdir(parents=True)
    times: list[float] = []
    for _ in range(laps):
        _stand_at_impl(root)
        os.truncate(stub.log, 0)
        subprocess.run(["/bin/sh", "-e", "-c", _loop(cli, stub)], cwd=root, timeout=LIMIT_S, check=True)
        seen = stamps(stub.log)
        times += [after.started - before.renamed for before, after in pairwise(seen)]
    os.truncate(stub.log, 0)
    return times


def _loop(cli: Path, stub: Stub) -> str:
    turn = " ; ".join(f"node {cli} {verb} . >/dev/null 2>&1" for verb in ("apply-handoff", "dispatch"))
    names = "HANDOFFD_RUN=r HANDOFFD_STORY=US-001 HANDOFFD_ATTEMPT=1"
    runs = [f"{names} HANDOFFD_STEP={step} {' '.join(stub.argv)}" for step in _STEPS]
    return f"; {turn}; ".join(runs)


def _stand_at_impl(root: Path) -> None:
    state: Json = {
        "project": "reference", "story": "US-001", "step": _STEPS[0], "attempt": 1, "max_attempts": 5,
        "status": "running", "reason": None, "dispatched_at": rfc3339(SystemClock().now()),
        "completed_at": None, "timeout_min": 10, "tests": None, "failing_tests": [], "lint_pass": None,
        "files_changed": [], "blocked_by": [], "human_note": None, "last_error": None, "task_type": "story",
        "agent_teams": False, "reopened_from": None,
    }  # fmt: skip
    (root / ".ai" / "STATE.json").write_text(json.dumps(state, indent=2) + "\n")
    (root / ".ai" / "hook.log").unlink(missing_ok=True)
