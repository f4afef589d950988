"""The steps that run other programs: verify (the tests) and commit (git).

A module of its own because importing `subprocess` costs a third of the rehearsal's start-up, and only these
two steps run anything.

verify: are all scenarios tested, do the tests pass, is the change merged into the design? The tests are
really run, by the project's own Python if it has one. In the sample these are all of its tests; in any
other project only the rehearsal's own, since nothing here knows what the others need or cost. Tests in
another language than Python are left to the daemon, which measures them.

commit: one conventional commit with the files of the story, and no others. Naming the files keeps a
person's unfinished work out of it. PROJECT_MEMORY.md and the history are written by the next step and are
never part of it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from handoffd.rehearsal.assignment import Assignment, Counts, Report, previous_facts
from handoffd.rehearsal.coding import by_pytest, code_files, file_of_tests, ids_of_tests, story_tests
from handoffd.rehearsal.documents import CONTRACT, DESIGN, title
from handoffd.rehearsal.workspace import Workspace

# --- verify ------------------------------------------------------------------------------------------
_TESTS_LIMIT_S = 240  # below the step's own five minutes, so that it ends with a hand-off
_SUMMARY = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")


class _Outcome(NamedTuple):
    """The results of the tests, and their source; `problem` when they could not be run."""

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
    ended = run(argv, workspace.root, limit_s=_TESTS_LIMIT_S)
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


# --- commit ------------------------------------------------------------------------------------------
_GIT_LIMIT_S = 60


def commit(workspace: Workspace, assignment: Assignment) -> Report:
    """Commit the story's files; when that is done already, name the commit that did it."""
    tests, _ = previous_facts(workspace, assignment.story)
    if not os.path.lexists(os.path.join(workspace.root, ".git")):
        return Report(summary="nothing to commit to: the project is not a git repository", tests=tests)
    files = _present(workspace, assignment)
    if not files:
        return Report(summary="nothing to commit: the story has written no files", tests=tests)
    message = f"feat: {_subject(title(workspace, assignment))} ({assignment.label})"
    _git(workspace, ["add", "--", *files])
    if _git(workspace, ["diff", "--cached", "--quiet", "--", *files]).code != 0:
        ended = _git(workspace, [*_identity(workspace), "commit", "--quiet", "-m", message, "--", *files])
        if ended.code != 0:
            last = ended.output.strip().rpartition("\n")[2]
            return Report(summary=f"git would not commit: {last}", status="failing", tests=tests)
    named = ["log", "-1", "--format=%H", "--fixed-strings", f"--grep=({assignment.label})"]
    found = _git(workspace, named).output.strip()
    if not found:
        return Report(summary="nothing to commit: the story's files are committed already", tests=tests)
    return Report(summary=message, tests=tests, commit=found, notes=("Committed: " + ", ".join(files) + ".",))


def _present(workspace: Workspace, assignment: Assignment) -> tuple[str, ...]:
    """Return the files the earlier steps of this story wrote, as far as they are there and git wants them."""
    label, test = assignment.label, file_of_tests(workspace, assignment)
    names = (
        f"docs/bdd/{label}.md", f"docs/deltas/{label}.md", CONTRACT, f"docs/api/{label}.yaml", DESIGN,
        f"docs/rehearsal/{label}-tests.md", f"docs/rehearsal/{label}-code.md", f"docs/notes/{label}.md",
        *((test, *code_files(workspace, assignment)) if test else ()),
    )  # fmt: skip
    there = [name for name in names if workspace.exists(name)]
    ignored = _git(workspace, ["check-ignore", "--", *there]).output.splitlines()
    return tuple(name for name in there if name not in ignored)


def _identity(workspace: Workspace) -> list[str]:
    # Signing may ask a person for a passphrase, and there is none.
    options = ["-c", "commit.gpgsign=false"]
    if _git(workspace, ["config", "user.email"]).code != 0:
        options += ["-c", "user.name=handoffd rehearsal", "-c", "user.email=rehearsal@localhost"]
    return options


def _subject(text: str) -> str:
    return text[:1].lower() + text[1:60]


def _git(workspace: Workspace, arguments: Sequence[str]) -> Ran:
    return run(["git", *arguments], workspace.root, limit_s=_GIT_LIMIT_S)


# --- running a program to its end, with a limit ------------------------------------------------------
class Ran(NamedTuple):
    """How a program ended; `code` is None when it could not be started or passed its limit."""

    code: int | None
    output: str


def run(argv: Sequence[str], cwd: str, *, limit_s: float) -> Ran:
    """Run `argv` in `cwd` without input and return its exit code and its output, both streams together."""
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C.UTF-8",
    }
    try:
        ended = subprocess.run(
            argv,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ran(None, f"{argv[0]} was not done after {limit_s:g} s")
    except OSError as error:
        return Ran(None, f"{argv[0]}: {error.strerror}")
    return Ran(ended.returncode, ended.stdout.decode("utf-8", "replace"))
