"""What the rehearsal was asked to do, found in the prompt as a real agent would find it; and the hand-off.

Prompts come in several languages and may be overridden by a project; what they share is the
template of the front matter to hand over, filled with `story`, `step`, `attempt` and `dispatch`.
The last such block counts. What is missing there is looked up in the environment and STATE.json.

HANDOFF.md is read by machines (the front matter) and by the next session (the body). Each file is
written by a rename, so a reader gets all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from handoffd.rehearsal.workspace import Workspace

_LINE = re.compile(r"\s*([a-z_]+)\s*:(?:\s+(.*?))?\s*$")
_COMMENT = re.compile(r"\s+#.*$")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOTHING = {"", "null", "~", "None"}


class BadAssignment(Exception):
    """Neither the prompt nor the project names the step."""


class Assignment(NamedTuple):
    """One dispatch. `label` names the story in paths (`US-013`, also for story `013`)."""

    step: str
    story: str | None
    attempt: int
    dispatch: str | None
    prompt: str
    task: Mapping[str, Any] | None = None
    """The task of a flow that it is for; None: it is for a step."""

    @property
    def label(self) -> str:
        """The story as file names spell it."""
        story = self.story or "000"
        return story if story.startswith(("US-", "CUSTOM-")) else f"US-{story}"

    @property
    def slug(self) -> str:
        """The story as identifiers spell it, such as `us_013`."""
        return re.sub(r"[^a-z0-9]+", "_", self.label.lower()).strip("_")


def understand(prompt: str, environ: Mapping[str, str], workspace: Workspace) -> Assignment:
    """Return the assignment in `prompt`; `BadAssignment` when no step can be found or a name is unusable."""
    said = _front_matter(prompt)
    state = _state(workspace) if {"step", "story", "attempt"} - said.keys() else {}
    step = said.get("step") or state.get("step")
    if not step:
        raise BadAssignment("neither the prompt's front matter template nor .ai/STATE.json names a step")
    attempt = said.get("attempt") or state.get("attempt") or "1"
    return Assignment(
        step=_name("step", step),
        story=_optional_name("story", said["story"] if "story" in said else state.get("story")),
        attempt=int(attempt) if attempt.isdecimal() else 1,
        dispatch=_optional_name("dispatch", said.get("dispatch") or environ.get("HANDOFFD_RUN")),
        prompt=prompt,
    )


def _front_matter(prompt: str) -> dict[str, str | None]:
    """Return the keys of the last `---` block that has a `dispatch` line; empty when there is none.

    Lines quoted by `>` belong to none: what people and files say must not pass for the assignment.
    """
    lines = [line.strip() for line in prompt.splitlines()]
    fences = [number for number, line in enumerate(lines) if line == "---"]
    for start, end in reversed(list(pairwise([*fences, len(lines)]))):
        found = _pairs(lines[start + 1 : end])
        if "dispatch" in found:
            return found
    return {}


def _pairs(lines: Iterable[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for line in lines:
        match = _LINE.match(line)
        if match and match[1] not in found:
            value = _COMMENT.sub("", " " + (match[2] or "")).strip().strip("\"'`")
            found[match[1]] = None if value in _NOTHING else value
    return found


def _state(workspace: Workspace) -> dict[str, str]:
    try:
        state = json.loads(workspace.read(".ai/STATE.json") or "{}")
    except ValueError:
        return {}
    if not isinstance(state, dict):
        return {}
    return {key: str(state[key]) for key in ("story", "step", "attempt") if state.get(key) is not None}


def _optional_name(what: str, value: str | None) -> str | None:
    return None if value is None else _name(what, value)


def _name(what: str, value: str) -> str:
    # These become parts of paths, and the prompt may have been written by a stranger.
    if not _NAME.fullmatch(value) or ".." in value:
        raise BadAssignment(f"{what} {value!r} is not a name (letters, digits, '.', '_', '-'; no '..')")
    return value


# --- the end of a session: HANDOFF.md, executor-result and the checklist -----------------------------
HANDOFF = ".ai/HANDOFF.md"
RESULT = ".ai/executor-result"
CHECKLIST = ".ai/CHECKLIST.md"

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_RESERVED = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
_BOX = re.compile(r"^(\s*[-*] )\[ \]", re.MULTILINE)


class Counts(NamedTuple):
    """Numbers of test results."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0


class Report(NamedTuple):
    """What a session claims. `files` are the ones it answers for, whether or not it had to change them."""

    summary: str
    status: str = "pass"
    reason: str | None = None
    files: tuple[str, ...] = ()
    tests: Counts = Counts()
    failing: tuple[str, ...] = ()
    commit: str | None = None
    notes: tuple[str, ...] = ()
    outcome: str | None = None
    fields: Mapping[str, Any] = {}
    remarks: tuple[Mapping[str, str], ...] = ()
    """Notes for other tasks of a flow, in the front matter."""


def hand_over(workspace: Workspace, assignment: Assignment, report: Report) -> None:
    """Write HANDOFF.md and last of all executor-result, each whole and each with a new inode."""
    workspace.replace(HANDOFF, (front_matter(assignment, report) + body(assignment, report)).encode())
    workspace.replace(RESULT, result_text(report).encode())


def front_matter(assignment: Assignment, report: Report) -> str:
    """Return the block for machines, with every field of the protocol."""
    fields: list[tuple[str, str | int | tuple[str, ...] | None]] = [
        ("story", assignment.story),
        ("step", assignment.step),
        ("attempt", assignment.attempt),
        ("dispatch", assignment.dispatch),
        ("status", report.status),
        ("reason", report.reason),
        ("files_changed", report.files),
        ("tests_pass", report.tests.passed),
        ("tests_fail", report.tests.failed),
        ("tests_skip", report.tests.skipped),
        ("failing_tests", report.failing),
        ("summary", report.summary),
    ]
    if report.commit:
        fields.append(("commit_hash", report.commit))
    if report.outcome:
        fields.append(("outcome", report.outcome))
    lines = [f"{key}:{_yaml(value)}\n" for key, value in fields]
    for key, value in (("fields", report.fields), ("notes", report.remarks)):
        lines += [f"{key}: {json.dumps(value, ensure_ascii=False)}\n"] if value else []
    return "---\n" + "".join(lines) + "---\n"


def body(assignment: Assignment, report: Report) -> str:
    """Return the part for the next session."""
    lines = [f"\n# {assignment.step} of {assignment.story or 'this project'}\n", report.summary]
    if report.files:
        lines += ["\n## Files\n", *(f"- `{name}`" for name in report.files)]
    lines += ["\n## Notes for the next session\n", *(f"- {note}" for note in report.notes)]
    lines.append("- Written by the rehearsal executor: no model was asked.")
    return "\n".join(lines) + "\n"


def result_text(report: Report) -> str:
    """Return the flat form, for readers without a YAML parser."""
    reason = f"reason: {report.reason}\n" if report.reason else ""
    reason += f"outcome: {report.outcome}\n" if report.outcome else ""
    return f"status: {report.status}\n{reason}summary: {report.summary}\n"


def previous_facts(workspace: Workspace, story: str | None) -> tuple[Counts, str | None]:
    """Return the test counts and the commit of the present hand-off, if it is about `story`."""
    found = dict(re.findall(r"^([a-z_]+): *\"?([^\"\n]*)\"?$", workspace.read(HANDOFF) or "", re.MULTILINE))
    if found.get("story") != story:
        return Counts(), None
    counts = (found.get(key, "") for key in ("tests_pass", "tests_fail", "tests_skip"))
    return Counts(*(int(count) if count.isdecimal() else 0 for count in counts)), found.get("commit_hash")


def tick(workspace: Workspace, step: str) -> None:
    """Tick the boxes of `step` in the checklist: under its heading, else where a line names it."""
    text = workspace.read(CHECKLIST)
    if text is None:
        return
    names_step = re.compile(rf"(?<![\w-]){re.escape(step)}(?![\w-])")
    lines = text.splitlines(keepends=True)
    owners = _headings(lines)
    under_heading = any(names_step.search(heading) for heading in owners)
    ticked = [
        _BOX.sub(r"\1[x]", line) if names_step.search(heading if under_heading else line) else line
        for heading, line in zip(owners, lines, strict=True)
    ]
    workspace.write(CHECKLIST, "".join(ticked))


def _headings(lines: Iterable[str]) -> list[str]:
    """Return for each line the heading above it."""
    found, current = [], ""
    for line in lines:
        if line.startswith("#"):
            # The title names the story, and no step; a story called `commit` must not own every box.
            current = "" if line.startswith("# ") else line
        found.append(current)
    return found


def _yaml(value: str | int | tuple[str, ...] | None) -> str:
    if isinstance(value, tuple):
        return "".join(f"\n  - {_scalar(item)}" for item in value) if value else " []"
    return f" {'null' if value is None else _scalar(value)}"


def _scalar(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    # A JSON string is a YAML string. Quoted whatever could be read as a number, a date or a boolean.
    plain = _PLAIN.fullmatch(value) and value.lower() not in _RESERVED
    return value if plain else json.dumps(value, ensure_ascii=False)
