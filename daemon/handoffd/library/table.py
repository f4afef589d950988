"""The step table: what each step reads, writes and must prove, and where it leads.

Without a `root` this is the table that ships. With one it is the table of that project's files: an edit of
them that handoffd holds until a person trusts it is in it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from handoffd.engine.wording import is_unrouted
from handoffd.errors import Refused
from handoffd.inspection.own_files import book_of, shipped_layers, table_of
from handoffd.library.asking import Root, path_of
from handoffd.protocol.rules import DONE, Complexity, Rule, RuleBook, TeamRole
from handoffd.protocol.state import Reason, near_reason
from handoffd.protocol.story import check_story_id, expand


def table(root: Root | None) -> RuleBook:
    """Return a project's step table, or the shipped one. Raises InvalidFile, StoreError."""
    return book_of(shipped_layers(None)) if root is None else table_of(path_of(root))


def get_rule(step: str, root: Root | None = None) -> Rule:
    """Return the rule of a step, a copy of your own.

    Raises Refused (UNKNOWN_STEP, also for `done`, which has no rule), InvalidFile, StoreError.
    """
    steps = table(root).steps
    if step in steps:
        return steps[step].model_copy(deep=True)
    known = ", ".join(steps)
    message = (
        f"{DONE} is the end of every pipeline and has no rule"
        if step == DONE
        else f"the step table has no step {step[:80]!r} (allowed: {known})"
    )
    raise Refused(message, code="UNKNOWN_STEP", hint="handoffd rules show")


def step_sequence(root: Root | None = None, task_type: str = "story") -> tuple[str, ...]:
    """Return the steps of a pipeline in passing order, without the bootstrap of a new project and `done`.

    Raises InvalidFile, StoreError.
    """
    book = table(root)
    path, first = book.path(task_type), (book.pipelines.get(task_type) or book.pipelines["story"]).first
    return path[path.index(first) :] if first in path else path


def fail_target(step: str, reason: Reason | str | None = None, root: Root | None = None) -> str | None:
    """Return the step that a failure of `step` leads to; None where a person is asked instead.

    Raises Refused (UNKNOWN_STEP, BAD_ARGUMENT for a reason that is none), InvalidFile, StoreError.
    """
    rule = get_rule(step, root)
    known = near_reason(reason) if reason else None
    if reason and known is None:
        message = f"unknown reason {str(reason)[:80]!r} (allowed: {', '.join(Reason)})"
        raise Refused(message, code="BAD_ARGUMENT", hint="handoffd reject --help")
    return None if is_unrouted(rule, known) else rule.target(known)


def team_roles(step: str = "impl", root: Root | None = None) -> Mapping[str, TeamRole]:
    """Return what each member of an agent team reads and writes at a step, by role.

    Raises Refused (UNKNOWN_STEP), InvalidFile, StoreError.
    """
    return get_rule(step, root).team_roles


def dispatch_mode(
    complexity: Complexity, parallel: int = 0, *, step: str = "impl", root: Root | None = None
) -> Literal["single", "team"]:
    """Return whether one executor or a team is meant for a story whose scenarios have `parallel` `[P]`s.

    Raises Refused (UNKNOWN_STEP), InvalidFile, StoreError.
    """
    return get_rule(step, root).mode(complexity, parallel)


def resolve_paths(paths: Iterable[str], story: str) -> tuple[str, ...]:
    """Return path templates with the story's id in them: `US-{story}` of US-013 is US-013.

    Raises Refused (INVALID_STORY).
    """
    checked = check_story_id(story)
    return tuple(expand(path, checked) for path in paths)
