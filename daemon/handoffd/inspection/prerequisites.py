"""Files a step wants to read and cannot: said as a warning, never a reason to stop."""

from __future__ import annotations

import os
from dataclasses import dataclass

from handoffd.engine.wording import command_for
from handoffd.errors import Refused
from handoffd.inspection.own_files import table_of
from handoffd.inspection.project_status import state_of
from handoffd.protocol.rules import DONE, Rule, RuleBook
from handoffd.protocol.state import State
from handoffd.protocol.story import expand, relative_path

HANDOFF = ".ai/HANDOFF.md"

_MADE_BY = (
    ("bdd/", "bdd"),
    ("deltas/", "sdd-delta"),
    ("api/", "contract"),
    ("sdd.md", "bootstrap"),
    ("PROJECT_MEMORY", "bootstrap"),
)
"""Which step makes what is missing, by the folder or the beginning of the file's name; the first counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prerequisites:
    """What a step reads, what of it is missing, and the step that would make that."""

    reads: tuple[str, ...]
    missing: tuple[str, ...]
    rollback_target: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrerequisiteCheck:
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
        message = f"the step table has no step {state.step[:80]!r}, at which the story stands"
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
