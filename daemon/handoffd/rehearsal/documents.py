"""The steps that write documents: bootstrap, bdd, sdd-delta, contract, custom, and update-memory.

For the sample's own story the documents are the ones that ship with it; for every other story they are
placeholders in the right form, in the right place. A file that a person wrote is never overwritten.
"""

from __future__ import annotations

import json
import os
import re

from handoffd.rehearsal import placeholders
from handoffd.rehearsal.assignment import Assignment, Counts, Report, previous_facts
from handoffd.rehearsal.workspace import MARK, STORY, Workspace, is_sample, story_file

MEMORY = "PROJECT_MEMORY.md"
DESIGN = "docs/sdd.md"
CONTRACT = "docs/api/openapi.yaml"

_SKELETONS = {
    "PROJECT_CONTEXT.md": placeholders.CONTEXT,
    DESIGN: placeholders.DESIGN,
    "docs/constitution.md": placeholders.CONSTITUTION,
    "docs/nfr.md": placeholders.REQUIREMENTS,
    MEMORY: placeholders.MEMORY,
}


def bootstrap(workspace: Workspace, assignment: Assignment) -> Report:
    """Write what is missing of context, design, constitution and memory; make the folders."""
    names = [name for name in workspace.names(".") if not name.startswith(".")]
    values = {
        "note": placeholders.NOTE,
        "name": os.path.basename(workspace.root),
        "structure": "\n".join(f"- `{name}`" for name in names[:40]) or "- nothing yet",
        "story": assignment.label if assignment.story else "Nothing in progress",
    }
    for folder in ("docs/bdd", "docs/deltas", "docs/api"):
        os.makedirs(workspace.path(folder), exist_ok=True)
    for name, text in _SKELETONS.items():
        if not workspace.exists(name):
            workspace.write(name, text.format(**values))
    ours = tuple(name for name in _SKELETONS if MARK in (workspace.read(name) or ""))
    return Report(summary="context, design, constitution and memory are there", files=ours)


def bdd(workspace: Workspace, assignment: Assignment) -> Report:
    """Write the story's scenarios."""
    return _document(
        workspace, assignment, f"docs/bdd/{assignment.label}.md", placeholders.SCENARIOS, "the scenarios"
    )


def sdd_delta(workspace: Workspace, assignment: Assignment) -> Report:
    """Write what the story changes in the design."""
    return _document(
        workspace,
        assignment,
        f"docs/deltas/{assignment.label}.md",
        placeholders.DELTA,
        "the changes to the design",
    )


def contract(workspace: Workspace, assignment: Assignment) -> Report:
    """Add the story's path, and its schema if it has one, to the OpenAPI document."""
    if belongs_to_sample(workspace, assignment):
        paths = story_file("docs/api/paths.yaml")
        schemas = story_file("docs/api/schemas.yaml")
    else:
        paths, schemas = placeholders.CONTRACT_PATH.format(label=assignment.label, mark=MARK), ""
    empty = placeholders.CONTRACT.format(name=json.dumps(os.path.basename(workspace.root)))
    text = workspace.read(CONTRACT) or empty
    added = _insert(_insert(text, "paths:", paths), "  schemas:", schemas)
    if added is None:
        name = f"docs/api/{assignment.label}.yaml"
        workspace.write_new(name, f"# {MARK}: for the paths of {CONTRACT}\n{paths}")
        return Report(
            summary=f"{CONTRACT} has no plain list of paths; the addition is in {name}", files=(name,)
        )
    workspace.write(CONTRACT, added)
    return Report(summary=f"the contract has the path of {assignment.label}", files=(CONTRACT,))


def custom(workspace: Workspace, assignment: Assignment) -> Report:
    """Write the person's instruction into a note: what it asks for, only an agent could do."""
    name = f"docs/notes/{assignment.label}.md"
    quoted = "\n".join(
        f"> {line}".rstrip() for line in _instruction(workspace, assignment).splitlines()[:200]
    )
    text = placeholders.INSTRUCTION.format(label=assignment.label, note=placeholders.NOTE, quoted=quoted)
    if workspace.write_new(name, text):
        return Report(summary=f"the instruction is noted in {name}", files=(name,))
    return _left_alone(name)


WORK = {"bootstrap": bootstrap, "bdd": bdd, "sdd-delta": sdd_delta, "contract": contract, "custom": custom}


def belongs_to_sample(workspace: Workspace, assignment: Assignment) -> bool:
    """Is this the sample's own story, the one with a real feature?"""
    return assignment.label == STORY and is_sample(workspace)


def title(workspace: Workspace, assignment: Assignment) -> str:
    """Return what the story is called in its scenarios or in the project's memory."""
    heading = rf"^# {re.escape(assignment.label)} (.+)$"
    entry = rf"^[-*] (?:\[.\] )?{re.escape(assignment.label)}[: ]+(.+)$"
    for name, pattern in ((f"docs/bdd/{assignment.label}.md", heading), (MEMORY, entry)):
        match = re.search(pattern, workspace.read(name) or "", re.MULTILINE)
        if match:
            return match[1].split(":")[0].strip()
    return "a rehearsed task" if assignment.step == "custom" else "a rehearsed story"


def _document(workspace: Workspace, assignment: Assignment, name: str, template: str, what: str) -> Report:
    if belongs_to_sample(workspace, assignment):
        if not workspace.exists(name):
            workspace.write(name, story_file(name))
        return Report(summary=f"{what} of {assignment.label} are written", files=(name,))
    text = template.format(
        label=assignment.label,
        slug=assignment.slug,
        title=title(workspace, assignment),
        note=placeholders.NOTE,
    )
    if workspace.write_new(name, text):
        return Report(summary=f"{what} of {assignment.label} are written", files=(name,))
    return _left_alone(name)


def _left_alone(name: str) -> Report:
    return Report(summary=f"{name} is a person's file and was left as it is")


def _insert(text: str | None, under: str, block: str) -> str | None:
    """Return `text` with `block` as the first thing under the key line `under`; None without such a line."""
    if text is None or not block or block in text:
        return text
    match = re.search(rf"^{re.escape(under)}(?: *\{{\}})? *(?:#.*)?\n", text, re.MULTILINE)
    if match is None:
        return None
    return f"{text[: match.start()]}{under}\n{block}{text[match.end() :]}"


def _instruction(workspace: Workspace, assignment: Assignment) -> str:
    """Return the person's words: STATE.json has them, else the quoted part of the prompt, else all of it."""
    try:
        state = json.loads(workspace.read(".ai/STATE.json") or "{}")
    except ValueError:
        state = {}
    note = state.get("human_note") if isinstance(state, dict) else None
    if isinstance(note, str) and note.strip():
        return note
    quoted = [line[1:].strip() for line in assignment.prompt.splitlines() if line.startswith(">")]
    return "\n".join(quoted) or assignment.prompt


# --- update-memory: what was done goes from NOW to DONE, with the facts, and into the history --------
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
    """Return counts and commit: as the prompt states them as measured, else as handed over before."""
    tests, commit = previous_facts(workspace, assignment.story)
    measured, committed = _MEASURED.search(assignment.prompt), _COMMITTED.search(assignment.prompt)
    if measured:
        tests = Counts(*map(int, measured.groups()))
    return tests, committed[1] if committed else commit


def _section(text: str, heading: str) -> re.Match[str] | None:
    return re.search(rf"^(#+ [^\n]*\b{heading}\b[^\n]*\n)(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)


def _without(text: str, heading: str, label: str | None) -> list[str]:
    """Return the lines of a section, but for blank ones, fillers and lines that begin with `label`."""
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
