"""Where a project is in its story by its files alone; what its step cannot read; its name.

A missing or unreadable file that a step wants to read is a warning, and never a reason to stop.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from handoffd.engine.wording import command_for
from handoffd.errors import HandoffdError, Refused, StoreError
from handoffd.files.rooted import read_project_file
from handoffd.files.state_file import MAIN, read_state
from handoffd.inspection.framework import Framework, detect_framework, memory_summary, read_memory
from handoffd.inspection.own_files import book_of, shipped_layers, table_of
from handoffd.inspection.suites import toml_of
from handoffd.protocol.rules import DONE, Rule, RuleBook
from handoffd.protocol.state import ParsedState, State, TestCounts, parse_state
from handoffd.protocol.story import expand, relative_path

# --- where it is --------------------------------------------------------------------------------------
NOT_INITIALIZED = "not_initialized"
INVALID_STATE = "invalid_state"
NO_STEP = "none"
ERROR_CHARACTERS = 500
_T = TypeVar("_T")


class ProjectStatus(Struct, frozen=True, kw_only=True):
    """The status of a project. `status` is the one of STATE.json, or `not_initialized`, or `invalid_state`.

    Of the last two, `step` is `none` and the numbers are 0; `last_error` says what is wrong with an
    invalid one. `next_step` follows when the step passes; `warnings` name what was not taken as written.
    """

    project: str
    task_type: str = "unknown"
    story: str | None = None
    step: str = NO_STEP
    next_step: str | None = None
    status: str
    attempt: int = 0
    max_attempts: int = 0
    reason: str | None = None
    tests: TestCounts | None = None
    lint_pass: bool | None = None
    files_changed: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    human_note: str | None = None
    last_error: str | None = None
    memory_summary: str | None
    has_framework: Framework
    warnings: tuple[str, ...] = ()


def state_of(root: str, story: str | None = None) -> State:
    """Return the state of the project at `root`, or of a `story` with a track of its own.

    Raises Refused (NOT_INITIALIZED), InvalidFile for a STATE.json that means nothing, StoreError for
    one that cannot be read.
    """
    own = parsed_state(root, story) if story is not None else None
    parsed = own or parsed_state(root)
    if parsed is None:
        message = f"{root} has no STATE.json: nothing is in hand there"
        raise Refused(message, code="NOT_INITIALIZED", hint=command_for(root, "init"))
    return parsed.state


def parsed_state(root: str, track: str = MAIN) -> ParsedState | None:
    """Return the STATE of a project's track, near-misses normalised; None without one. It is never written.

    Raises InvalidFile and StoreError.
    """
    seen = read_state(Path(root), track)
    return None if seen is None else parse_state(seen.text)


def query_project_status(root: str) -> ProjectStatus:
    """Return the status of the project at `root`. The result names unusable files."""
    framework = detect_framework(root)
    memory = _or_none(lambda: read_memory(root))
    summary = None if memory is None else memory_summary(memory)
    try:
        parsed = parsed_state(root)
    except HandoffdError as error:
        return ProjectStatus(
            project=project_name(root),
            status=INVALID_STATE,
            last_error=one_line(error.message),
            memory_summary=summary,
            has_framework=framework,
        )
    if parsed is None:
        return ProjectStatus(
            project=project_name(root),
            status=NOT_INITIALIZED,
            memory_summary=summary,
            has_framework=framework,
        )
    return _as_written(root, parsed, summary, framework)


def _as_written(root: str, parsed: ParsedState, summary: str | None, framework: Framework) -> ProjectStatus:
    state = parsed.state
    return ProjectStatus(
        project=state.project,
        task_type=state.task_type,
        story=state.story,
        step=state.step,
        next_step=next_step(_table(root), state),
        status=state.status.value,
        attempt=state.attempt,
        max_attempts=state.max_attempts,
        reason=None if state.reason is None else state.reason.value,
        tests=state.tests,
        lint_pass=state.lint_pass,
        files_changed=state.files_changed,
        blocked_by=state.blocked_by,
        human_note=state.human_note,
        last_error=state.last_error,
        memory_summary=summary,
        has_framework=framework,
        warnings=parsed.warnings,
    )


def next_step(table: RuleBook, state: State) -> str | None:
    """Return the step that follows when the one in hand passes; None when it is done or not known."""
    rule = table.steps.get(state.step)
    return None if rule is None or state.step == DONE else rule.next_on_pass


def one_line(text: str) -> str:
    """Return a message in one line of at most 500 characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= ERROR_CHARACTERS else flat[: ERROR_CHARACTERS - 1] + "…"


def _table(root: str) -> RuleBook:
    """Return the project's step table; the shipped one where its own cannot be used."""
    return _or_none(lambda: table_of(root)) or book_of(shipped_layers(None))


def _or_none(read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except HandoffdError:
        return None


# --- what its step wants to read, and cannot ----------------------------------------------------------
HANDOFF = ".ai/HANDOFF.md"

_MADE_BY = (
    ("bdd/", "bdd"),
    ("deltas/", "sdd-delta"),
    ("api/", "contract"),
    ("sdd.md", "bootstrap"),
    ("PROJECT_MEMORY", "bootstrap"),
)
"""Which step makes what is missing, by the folder or the beginning of the file's name; the first counts."""


class Prerequisites(Struct, frozen=True, kw_only=True):
    """What a step reads, what of it is missing, and the step that would make that."""

    reads: tuple[str, ...]
    missing: tuple[str, ...]
    rollback_target: str | None


class PrerequisiteCheck(Struct, frozen=True, kw_only=True):
    """Whether the step in hand finds what it reads; `suggested_rollback` is the step that makes it.

    `next_command` goes there; None where the story cannot: the step is none of its earlier ones.
    """

    ok: bool
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    suggested_rollback: str | None = None
    next_command: str | None = None


def check_prerequisites(root: str) -> PrerequisiteCheck:
    """Return what the project's step in hand reads and cannot find.

    Raises Refused (NOT_INITIALIZED, UNKNOWN_STEP), InvalidFile for a STATE.json or a step table that is
    wrong, StoreError for files that cannot be read.
    """
    state = state_of(root)
    if state.step == DONE:
        return PrerequisiteCheck(ok=True)
    table = table_of(root)
    rule = table.steps.get(state.step)
    if rule is None:
        message = f"the step table has no step {state.step[:80]!r}, which is the story's current step"
        raise Refused(message, code="UNKNOWN_STEP", hint=command_for(root, "rules check"))
    needs = prerequisites(root, rule, state.story, state.attempt)
    warnings = tuple(f"Missing prerequisite: {path}" for path in needs.missing)
    return PrerequisiteCheck(
        ok=not needs.missing,
        missing=needs.missing,
        warnings=warnings,
        suggested_rollback=needs.rollback_target,
        next_command=_command(root, table, state, needs.rollback_target),
    )


def _command(root: str, table: RuleBook, state: State, target: str | None) -> str | None:
    path = table.path(state.task_type)
    if target not in path or state.step not in path or path.index(target) >= path.index(state.step):
        return None
    pipeline = table.pipelines.get(state.task_type) or table.pipelines["story"]
    return command_for(root, "rollback", target, *(("--force",) if target == pipeline.bootstrap else ()))


def prerequisites(root: str, rule: Rule, story: str | None, attempt: int) -> Prerequisites:
    """Return what `rule` reads for `story`; patterns and a first attempt's hand-off are not looked for."""
    reads = tuple(expand(path, story) for path in rule.claude_reads)
    concrete = [path for path in reads if not any(char in path for char in "*?[")]
    wanted = [path for path in concrete if not (path == HANDOFF and attempt == 1)]
    missing = tuple(path for path in wanted if relative_path(path) and not _exists(os.path.join(root, path)))
    return Prerequisites(reads=reads, missing=missing, rollback_target=_target(missing))


def _exists(path: str) -> bool:
    # Also False: a name too long, a folder that may not be looked into. An executor cannot read it.
    return os.path.exists(path)


def _target(missing: tuple[str, ...]) -> str | None:
    for part, step in _MADE_BY:
        if any(f"/{part}" in f"/{path}" for path in missing):
            return step
    return None


# --- what a project is called -------------------------------------------------------------------------
MAX_BYTES = 1024 * 1024


def project_name(root: str) -> str:
    """Return what a project calls itself: package.json, pyproject.toml, go.mod, Cargo.toml, the folder."""
    for file, reader in _NAMES:
        try:
            seen = read_project_file(Path(root), file, MAX_BYTES)
            name = reader(seen.content.decode("utf-8")) if seen is not None else None
        except (StoreError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # not our file: whether it is a link or broken is not our business
        if isinstance(name, str) and name.strip() and name.isprintable():
            return name.strip()[:100]
    return Path(root).name


def _from_package_json(text: str) -> object:
    return json.loads(text).get("name")


def _from_pyproject(text: str) -> object:
    table = toml_of(text)
    return table.get("project", {}).get("name") or table.get("tool", {}).get("poetry", {}).get("name")


def _from_go_mod(text: str) -> object:
    found = re.search(r"^module\s+(\S+)", text, re.MULTILINE)
    return found[1].rsplit("/", 1)[-1] if found else None


def _from_cargo(text: str) -> object:
    return toml_of(text).get("package", {}).get("name")


_NAMES: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("package.json", _from_package_json),
    ("pyproject.toml", _from_pyproject),
    ("go.mod", _from_go_mod),
    ("Cargo.toml", _from_cargo),
)
