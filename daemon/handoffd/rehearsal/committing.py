"""The step commit: one conventional commit with the files of the story, and no others.

Naming the files keeps a person's unfinished work out of it. PROJECT_MEMORY.md and the history are
written by the next step and are never part of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from handoffd.rehearsal.assignment import Assignment
from handoffd.rehearsal.coding import code_files, file_of_tests
from handoffd.rehearsal.documents import CONTRACT, DESIGN, title
from handoffd.rehearsal.handover import Report, previous_facts
from handoffd.rehearsal.programs import Ran, run
from handoffd.rehearsal.workspace import Workspace

_LIMIT_S = 60


def commit(workspace: Workspace, assignment: Assignment) -> Report:
    """Commit the story's files; when that is done already, name the commit that did it."""
    tests, _ = previous_facts(workspace, assignment.story)
    if not os.path.lexists(os.path.join(workspace.root, ".git")):
        return Report(summary="nothing to commit to: the project is no git repository", tests=tests)
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
    return run(["git", *arguments], workspace.root, limit_s=_LIMIT_S)
