"""The step verify: are all scenarios tested, do the tests pass, is the change merged into the design?

The tests are really run, by the project's own Python if it has one. In the sample these are all of
its tests; in any other project only those the rehearsal wrote, since nobody here knows what the
others need or cost. Tests in another language than Python are left to the daemon, which measures them.
"""

from __future__ import annotations

import os
import re
import sys
from typing import NamedTuple

from handoffd.rehearsal.assignment import Assignment
from handoffd.rehearsal.coding import by_pytest, ids_of_tests, story_tests
from handoffd.rehearsal.documents import DESIGN
from handoffd.rehearsal.handover import Counts, Report
from handoffd.rehearsal.programs import run
from handoffd.rehearsal.workspace import Workspace

_LIMIT_S = 240  # below the step's own five minutes, so that it ends with a hand-off
_SUMMARY = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")


class _Outcome(NamedTuple):
    """What is known of the tests, and how; `problem` when they were to be run and could not."""

    tests: Counts
    failing: tuple[str, ...] = ()
    how: str = "run by pytest"
    problem: str | None = None


def measured(workspace: Workspace, assignment: Assignment) -> Report:
    """Merge the change into the design and run the tests; failing when one of them fails."""
    return _verify(workspace, assignment, run_tests=True)


def claimed(workspace: Workspace, assignment: Assignment) -> Report:
    """Merge the change into the design and claim that the tests pass."""
    return _verify(workspace, assignment, run_tests=False)


def _verify(workspace: Workspace, assignment: Assignment, *, run_tests: bool) -> Report:
    merged = _merge_delta(workspace, assignment)
    names = tuple(filter(workspace.exists, story_tests(workspace, assignment)))
    written = ids_of_tests(workspace, names)
    claim = _Outcome(Counts(passed=len(written)), how="claimed, not run")
    asked = run_tests and names and by_pytest(workspace, assignment)
    outcome = (_run_tests(workspace, names) or claim) if asked else claim
    tests = outcome.tests
    good = not tests.failed and outcome.problem is None
    design = f"merged into {DESIGN}" if merged else f"missing, so nothing is merged into {DESIGN}"
    return Report(
        summary=f"{tests.passed} tests pass" if good else outcome.problem or f"{tests.failed} tests fail",
        status="pass" if good else "failing",
        files=(DESIGN,) if merged else (),
        tests=tests,
        failing=outcome.failing,
        notes=(
            f"Completeness: {_scenarios(workspace, assignment)} scenarios, {len(written)} tests.",
            f"Correctness: {tests.passed} pass, {tests.failed} fail, {tests.skipped} skip ({outcome.how}).",
            f"Coherence: the change is {design}.",
        ),
    )


def _scenarios(workspace: Workspace, assignment: Assignment) -> int:
    text = workspace.read(f"docs/bdd/{assignment.label}.md") or ""
    return len(re.findall(r"^### Scenario:", text, re.MULTILINE))


def _merge_delta(workspace: Workspace, assignment: Assignment) -> bool:
    """Put the change at the end of the design, once; False when there is no change to merge."""
    delta = workspace.read(f"docs/deltas/{assignment.label}.md")
    if delta is None:
        return False
    heading = f"## Since {assignment.label}\n"
    design = workspace.read(DESIGN) or "# Software design\n"
    if heading not in design:
        items = [line for part in ("ADDED", "MODIFIED", "REMOVED") for line in _items(delta, part)]
        workspace.write(DESIGN, design.rstrip("\n") + "\n\n" + heading + "\n".join(items) + "\n")
    return True


def _items(delta: str, part: str) -> list[str]:
    match = re.search(rf"^## {part}\s*\n(.*?)(?=^## |\Z)", delta, re.MULTILINE | re.DOTALL)
    lines = match[1].splitlines() if match else []
    entries = [line[2:].strip() for line in lines if line.startswith("- ")]
    return [f"- {part.lower()}: {entry}" for entry in entries if entry != "nothing"]


def _run_tests(workspace: Workspace, names: tuple[str, ...]) -> _Outcome | None:
    """Return what pytest tells, or None where there is no pytest to ask."""
    own = os.path.join(workspace.root, ".venv", "bin", "python")
    python = own if os.access(own, os.X_OK) else sys.executable
    argv = [python, "-m", "pytest", "-q", "-rfE", "--color=no", "-p", "no:cacheprovider", *names]
    ended = run(argv, workspace.root, limit_s=_LIMIT_S)
    last = ended.output.strip().rpartition("\n")[2]
    if last.endswith("No module named pytest"):
        return None
    counts = {word.rstrip("s"): int(number) for number, word in _SUMMARY.findall(last)}
    return _Outcome(
        tests=Counts(
            passed=counts.get("passed", 0),
            failed=counts.get("failed", 0) + counts.get("error", 0),
            skipped=counts.get("skipped", 0),
        ),
        failing=tuple(re.findall(r"^(?:FAILED|ERROR) (\S+)", ended.output, re.MULTILINE)),
        problem=None if counts else f"the tests could not be run: {last[:200]}",
    )
