"""The verbs that only look: from the project's files, without daemon or journal, at every level."""

from __future__ import annotations

import os
from collections.abc import Mapping
from shlex import quote
from typing import Any

from handoffd.orchestrator.arguments import Words
from handoffd.orchestrator.printing import js_json
from handoffd.orchestrator.said import FAILED, Said, as_json, broken, refused
from handoffd.orchestrator.statefile import BadState, NoState, read_state

LEVELS = ("not adopted", "adopted in part", "adopted in full")
NOBODY = "No projects found with .ai/STATE.json"

_OF_STATE = (
    "project", "task_type", "story", "step", "next_step", "status", "attempt", "max_attempts", "reason",
    "tests", "lint_pass", "files_changed", "blocked_by", "human_note", "last_error",
)  # fmt: skip


def status(words: Words, _: Mapping[str, str]) -> Said:
    """Print STATE.json."""
    try:
        shown = read_state(words.root())
    except (NoState, BadState) as error:
        return broken(str(error))
    return as_json(shown.values, *shown.mended)


def query(words: Words, _: Mapping[str, str]) -> Said:
    """Print where the project stands, with what its memory says comes next."""
    try:
        return as_json(queried(words.root()))
    except BadState as error:
        return broken(str(error))


def queried(root: str) -> dict[str, Any]:
    """Return where the project at `root` stands. Raises BadState."""
    from handoffd.inspection.project_status import query_project_status

    found = plain(query_project_status(root))
    try:
        values = read_state(root).values
    except NoState:
        gone = {"next_step", "last_error", "warnings"}
        files = {name: value for name, value in found.items() if name not in gone}
        return {**files, "status": "not_initialized"}
    values["next_step"] = found["next_step"]
    told: dict[str, Any] = {name: values[name] for name in _OF_STATE if name in values}
    rest = {name: found[name] for name in ("memory_summary", "has_framework")}
    return {**told, **rest}


def detect(words: Words, _: Mapping[str, str]) -> Said:
    """Print which of the protocol's files are there."""
    found = framework(words.root())
    return as_json(found, f"Framework adoption: Level {found['level']} ({LEVELS[found['level']]})")


def framework(root: str) -> dict[str, Any]:
    """Return which of the protocol's files a project has."""
    from handoffd.inspection.framework import detect_framework

    return plain(detect_framework(root))


def list_projects(words: Words, _: Mapping[str, str]) -> Said:
    """Print the projects of a folder."""
    found = listed(words.root())
    return as_json(found) if found else Said((NOBODY,))


def listed(folder: str) -> list[dict[str, Any]]:
    """Return the projects in `folder`; none for what is no folder."""
    from handoffd.errors import NotFound
    from handoffd.inspection import workspace

    try:
        return [plain(project) for project in workspace.list_projects(folder)]
    except NotFound:
        return []


def check_prereqs(words: Words, _: Mapping[str, str]) -> Said:
    """Print which of the files the step reads are missing, and where they would have been made."""
    root = words.root()
    try:
        read_state(root)
    except (NoState, BadState) as error:
        return broken(str(error))
    from handoffd.inspection.prerequisites import check_prerequisites

    found = plain(check_prerequisites(root))
    keys = ("ok", "missing", "warnings", "suggested_rollback")
    answer = {key: found[key] for key in keys}
    return Said((*_in_words(answer), js_json(answer)))


def _in_words(found: dict[str, Any]) -> list[str]:
    if found["ok"]:
        return ["All prerequisite files present."]
    lines = [f"Missing {len(found['missing'])} prerequisite file(s):"]
    lines += [f"  {warning}" for warning in found["warnings"]]
    if found["suggested_rollback"]:
        lines.append(f"Suggested action: orchestrator rollback . {found['suggested_rollback']}")
    return lines


def review(words: Words, _: Mapping[str, str]) -> Said:
    """Print the prompt for a health check."""
    from handoffd.inspection.sessions import review as prompt_of

    root = words.root()
    if (missing := no_folder(root)) is not None:
        return refused("review", missing, FAILED)
    found = plain(prompt_of(root))
    return Said((found["prompt"],), (f"[review] fw_lv={found['fw_lv']}",))


def triage(words: Words, _: Mapping[str, str]) -> Said:
    """Print the prompt for a plan from the open issues of the project's memory."""
    from handoffd.errors import Refused
    from handoffd.inspection.sessions import triage as prompt_of

    root = words.root()
    if (missing := no_folder(root)) is not None:
        return refused("triage", missing, FAILED)
    try:
        found = plain(prompt_of(root))
    except Refused as error:
        told = {"type": "error", "code": error.code, "message": error.message, "recoverable": False}
        return refused("triage", {**told, "next_command": error.hint})
    count = len(found["issues"])
    return Said((found["prompt"],), (f"[triage] {count} issue(s), fw_lv={found['fw_lv']}",))


def no_folder(root: str) -> dict[str, Any] | None:
    """Return the error for a project whose folder is not there; None if it is."""
    if os.path.isdir(root):
        return None
    look = f"ls {quote(os.path.dirname(root))}"
    return {"code": "NOT_FOUND", "message": f"{root} is no folder", "next_command": look}


def plain(value: Any) -> dict[str, Any]:
    """Return a value of the inspection as JSON values."""
    from pydantic import TypeAdapter

    dumped: dict[str, Any] = TypeAdapter(type(value)).dump_python(value, mode="json", by_alias=True)
    return dumped
