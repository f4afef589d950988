"""The step update-memory: what was done goes from NOW to DONE, with the facts, and into the history."""

from __future__ import annotations

import re

from handoffd.rehearsal.assignment import Assignment
from handoffd.rehearsal.documents import MEMORY, title
from handoffd.rehearsal.handover import Counts, Report, previous_facts
from handoffd.rehearsal.workspace import Workspace

HISTORY = ".ai/history.md"

# As the shipped prompts say them; what people said is quoted there and begins with `>`.
_MEASURED = re.compile(
    r"^- [^\d\n]*(?:[Tt]ests|測試)[^\d\n]*(\d+)[^\d\n]+(\d+)[^\d\n]+(\d+)[^\d\n]*$", re.MULTILINE
)
_COMMITTED = re.compile(r"^- (?:Commit|提交)[:：] *`?([0-9a-f]{7,64})`?$", re.MULTILINE)


def update_memory(workspace: Workspace, assignment: Assignment) -> Report:
    """Refresh NOW, NEXT, TESTS, DONE and LOG, and append one entry to the history."""
    tests, commit = facts(workspace, assignment)
    label, name = assignment.label, title(workspace, assignment)
    counts = f"{tests.passed} pass, {tests.failed} fail, {tests.skipped} skip"
    text = workspace.read(MEMORY) or "# Project memory\n"
    text = _set(text, "NOW", _without(text, "NOW", label) or ["- Nothing in progress"])
    text = _set(text, "NEXT", _without(text, "NEXT", label) or ["- Nothing planned"])
    text = _set(text, "TESTS", [f"- {counts}"])
    text = _set(text, "DONE", [*_without(text, "DONE", label), f"- {label} {name}"])
    text = _set(text, "LOG", _ending_with(_without(text, "LOG", None), f"- {label} done: {counts}"))
    workspace.write(MEMORY, text)
    entry = f"### {label} {name}\n- tests: {counts}\n" + (f"- commit: {commit}\n" if commit else "")
    history = workspace.read(HISTORY) or "# History\n"
    # Compared with the end only: the same story may rightly be done again after it was reopened.
    if not history.endswith(entry):
        workspace.write(HISTORY, f"{history.rstrip()}\n\n{entry}")
    return Report(
        summary=f"{label} is recorded as done", files=(MEMORY, HISTORY), tests=tests, commit=commit or None
    )


def facts(workspace: Workspace, assignment: Assignment) -> tuple[Counts, str | None]:
    """Return counts and commit: those the prompt states as measured, else those handed over before."""
    tests, commit = previous_facts(workspace, assignment.story)
    measured, committed = _MEASURED.search(assignment.prompt), _COMMITTED.search(assignment.prompt)
    if measured:
        tests = Counts(*map(int, measured.groups()))
    return tests, committed[1] if committed else commit


def _section(text: str, heading: str) -> re.Match[str] | None:
    return re.search(rf"^(#+ [^\n]*\b{heading}\b[^\n]*\n)(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)


def _without(text: str, heading: str, label: str | None) -> list[str]:
    """Return the lines of a section, but for blank ones, fillers and those that begin with `label`."""
    match = _section(text, heading)
    lines = [line for line in (match[2] if match else "").splitlines() if line.strip()]
    fillers = ("- Nothing in progress", "- Nothing planned")
    about = re.compile(rf"[-*] (?:\[.\] )?{re.escape(label)}(?![\w-])") if label else None
    return [line for line in lines if line not in fillers and not (about and about.match(line))]


def _set(text: str, heading: str, lines: list[str]) -> str:
    match = _section(text, heading)
    block = "\n".join(lines) + "\n"
    if match is None:
        return f"{text.rstrip()}\n\n## {heading}\n{block}"
    rest = text[match.end() :]
    return text[: match.start()] + match[1] + block + ("\n" + rest if rest else "")


def _ending_with(lines: list[str], last: str) -> list[str]:
    return lines if lines[-1:] == [last] else [*lines, last]
