"""The verbs that only read: from the project's files, without daemon or journal, at every level.

Reading STATE.json uses the standard library only, because scripts ask for it again and again. What the
reference corrects when it reads (a near-miss of a status, a reason where none belongs), we show corrected
and leave unchanged in the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any, Final

from msgspec import Struct

from handoffd.files.rooted import open_file
from handoffd.orchestrator.console import FAILED, Said, Words, as_json, broken, js_json, refused

# --- STATE.json --------------------------------------------------------------------------------------
STATE = ".ai/STATE.json"
RULES = ".ai/step-rules.yaml"

STEPS: Final = (
    "bootstrap", "bdd", "sdd-delta", "contract", "review", "scaffold", "impl", "verify",
    "acceptance", "commit", "update-memory", "custom", "done",
)  # fmt: skip
"""The steps that ship. A project with a step table of its own may have others."""
STATUSES: Final = ("pending", "running", "pass", "failing", "needs_human", "timeout")
REASONS: Final = (
    "constitution_violation", "needs_clarification", "nfr_missing", "scope_warning", "test_timeout",
)  # fmt: skip
NEAR: Final[Mapping[str, str]] = {
    **dict.fromkeys(("passing", "passed", "done", "complete", "completed"), "pass"),
    **dict.fromkeys(("failed", "fail", "failure"), "failing"),
    **dict.fromkeys(("timed_out", "timedout"), "timeout"),
    **dict.fromkeys(("human", "blocked"), "needs_human"),
}

_MOST_BYTES = 1024 * 1024


class NoState(Exception):
    """There is no STATE.json."""


class BadState(Exception):
    """STATE.json cannot be understood."""


class Shown(Struct, frozen=True):
    """A STATE.json as JSON values in the order of the file; `corrections` names the values that differ."""

    values: dict[str, Any]
    corrections: tuple[str, ...] = ()


def read_state(root: str) -> Shown:
    """Return what STATE.json says. Raises NoState, BadState, and StoreError if it is not a file."""
    text = _text(root)
    if text is None:
        raise NoState(f"there is no {STATE} in {root}: orchestrator init {root} NAME")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadState(f"{STATE} is not valid JSON ({str(error)[:200]})") from None
    if not isinstance(values, dict):
        raise BadState(f"{STATE} is not a JSON object")
    corrections = tuple(_correct(values))
    _check(values, own_steps=os.path.lexists(os.path.join(root, RULES)))
    return Shown(values, corrections)


def _text(root: str) -> bytes | None:
    if not os.path.isdir(root):
        return None
    with open_file(Path(root), STATE) as handle:
        if handle is None:
            return None
        with open(handle, "rb", closefd=False) as file:
            content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise BadState(f"{STATE} is larger than {_MOST_BYTES:,} bytes")
    return content.removeprefix(b"\xef\xbb\xbf")


def _correct(values: dict[str, Any]) -> list[str]:
    said = []
    status = values.get("status")
    if isinstance(status, str) and status not in STATUSES and status.lower() in NEAR:
        values["status"] = NEAR[status.lower()]
        said.append(f'status "{status}" is shown as "{values["status"]}"')
    reason, allowed = values.get("reason"), values.get("status") in ("failing", "needs_human")
    if reason is not None and not (allowed and reason in REASONS):
        values["reason"] = None
        said.append(f"reason {str(reason)[:80]!r} is not shown: it does not belong to the status")
    values.setdefault("reason", None)
    return said


def _check(values: Mapping[str, Any], *, own_steps: bool) -> None:
    step, status = values.get("step"), values.get("status")
    if not values.get("project"):
        raise BadState(f"{STATE} names no project")
    if not isinstance(step, str) or not step or (step not in STEPS and not own_steps):
        raise BadState(f"{STATE} has an unknown step {str(step)[:80]!r} (allowed: {', '.join(STEPS)})")
    if status not in STATUSES:
        raise BadState(f"{STATE} has an unknown status {str(status)[:80]!r} (allowed: {', '.join(STATUSES)})")
    for name, least in (("attempt", 0), ("max_attempts", 1)):
        value = values.get(name, least)
        if isinstance(value, int | float) and value < least:
            raise BadState(f"{name} in {STATE} must be at least {least}, not {value}")


# --- the verbs ---------------------------------------------------------------------------------------
LEVELS = ("not adopted", "adopted in part", "adopted in full")
NO_PROJECTS = "No projects found with .ai/STATE.json"

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
    return as_json(shown.values, *shown.corrections)


def query(words: Words, _: Mapping[str, str]) -> Said:
    """Print the project's status and the next step by its memory."""
    try:
        return as_json(queried(words.root()))
    except BadState as error:
        return broken(str(error))


def queried(root: str) -> dict[str, Any]:
    """Return the status of the project at `root`. Raises BadState."""
    from handoffd.inspection.project_status import query_project_status
    from handoffd.protocol.state import plain

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
    """Print which of the protocol's files exist."""
    found = framework(words.root())
    return as_json(found, f"Framework adoption: Level {found['level']} ({LEVELS[found['level']]})")


def framework(root: str) -> dict[str, Any]:
    """Return which of the protocol's files a project has."""
    from handoffd.inspection.framework import detect_framework
    from handoffd.protocol.state import plain

    return plain(detect_framework(root))


def list_projects(words: Words, _: Mapping[str, str]) -> Said:
    """Print the projects of a folder."""
    found = listed(words.root())
    return as_json(found) if found else Said((NO_PROJECTS,))


def listed(folder: str) -> list[dict[str, Any]]:
    """Return the projects in `folder`; none if it is not a folder."""
    from handoffd.errors import NotFound
    from handoffd.inspection import discovery
    from handoffd.protocol.state import plain

    try:
        return [plain(project) for project in discovery.list_projects(folder)]
    except NotFound:
        return []


def check_prereqs(words: Words, _: Mapping[str, str]) -> Said:
    """Print which files of the step's input are missing, and which step would have made them."""
    root = words.root()
    try:
        read_state(root)
    except (NoState, BadState) as error:
        return broken(str(error))
    from handoffd.inspection.project_status import check_prerequisites
    from handoffd.protocol.state import plain

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
    from handoffd.protocol.state import plain

    root = words.root()
    if (missing := no_folder(root)) is not None:
        return refused("review", missing, FAILED)
    found = plain(prompt_of(root))
    return Said((found["prompt"],), (f"[review] fw_lv={found['fw_lv']}",))


def triage(words: Words, _: Mapping[str, str]) -> Said:
    """Print the prompt for a plan from the open issues of the project's memory."""
    from handoffd.errors import Refused
    from handoffd.inspection.sessions import triage as prompt_of
    from handoffd.protocol.state import plain

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
    """Return the error for a project whose folder is missing; None if it exists."""
    if os.path.isdir(root):
        return None
    look = f"ls {quote(os.path.dirname(root))}"
    return {"code": "NOT_FOUND", "message": f"{root} is not a folder", "next_command": look}
