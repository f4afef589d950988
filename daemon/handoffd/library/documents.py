"""The files of the protocol as values: STATE, hand-off, prompt and step table.

These functions write files and nothing else. handoffd treats a written file like any edit from outside: it
adopts the edit, holds it where it passes a human step, or undoes it.

Without a `root` the step table is the one that ships. With one it is the table in that project's files,
including edits that handoffd holds until a person trusts them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from handoffd.engine.decision import is_unrouted
from handoffd.engine.track import Facts, Ledger, Track, TrackKey
from handoffd.errors import InvalidFile, Problem, Refused
from handoffd.files import state_file
from handoffd.files.rooted import read_project_file
from handoffd.inspection.own_files import book_of, settings_of, shipped_layers, table_of, templates_for
from handoffd.library.project import Root, path_of
from handoffd.protocol.handoff import HANDOFF_FILE, MAX_FILE_BYTES, RESULT_FILE, Found, Handoff, Malformed
from handoffd.protocol.prompt import render_prompt
from handoffd.protocol.reading import HandoffTexts, read_claims
from handoffd.protocol.rules import DONE, Complexity, Language, Rule, RuleBook, TeamRole
from handoffd.protocol.state import (
    STATE_FILE,
    ParsedState,
    Reason,
    State,
    near_reason,
    parse_state,
    render_state,
)
from handoffd.protocol.story import check_story_id, expand
from handoffd.track.prompts import prompt_context

StateLike = State | Mapping[str, Any]
"""A STATE as a value, or as the JSON object of the file."""


def sanitize(state: StateLike) -> ParsedState:
    """Return the `state` that is meant, with each value that was corrected in `warnings`.

    Raises InvalidFile for a state without a meaning.
    """
    return parse_state(render_state(state) if isinstance(state, State) else json.dumps(dict(state)))


def validate(state: StateLike, root: Root | None = None) -> State:
    """Return a STATE whose every value is one of the protocol's, and whose step is in the step table.

    With `root`, the project's own table. Raises InvalidFile, also for what `sanitize` would correct.
    """
    parsed = sanitize(state)
    problems = [Problem(file=STATE_FILE, message=warning) for warning in parsed.warnings]
    steps = (*table(root).steps, DONE)
    if parsed.state.step not in steps:
        message = f"the step table has no step {parsed.state.step[:80]!r}"
        problems.append(Problem(file=STATE_FILE, key="step", message=message, allowed=steps))
    if problems:
        raise InvalidFile(tuple(problems))
    return parsed.state


def write_state(root: Root, state: StateLike) -> None:
    """Replace STATE.json by a valid state, as an edit from outside.

    A running daemon reads it at once, else the next verb does: it adopts the edit, holds it until `handoffd
    confirm` where it passes a human step, and undoes it while an executor runs.
    Raises InvalidFile, StoreError; the old file then stays.
    """
    path = path_of(root)
    state_file.write_state(Path(path), state_file.MAIN, render_state(validate(state, path)))


def parse_handoff(root: Root) -> Handoff | None:
    """Return what HANDOFF.md and executor-result say together, of whichever attempt they are.

    None when neither exists. This judges nothing; `apply_handoff` does.
    Raises InvalidFile for a front matter that cannot be read, StoreError.
    """
    found = {
        name: read_project_file(Path(path_of(root)), name, MAX_FILE_BYTES)
        for name in (HANDOFF_FILE, RESULT_FILE)
    }
    handoff, result = (seen.content if seen is not None else None for seen in found.values())
    match read_claims(HandoffTexts(handoff=handoff, result=result)):
        case Found(handoff=said):
            return said
        case Malformed(problem=problem):
            raise InvalidFile((problem,))
        case _:
            return None


def build_prompt(
    state: StateLike, rule: Rule | None = None, *, root: Root | None = None, language: Language | None = None
) -> str:
    """Return the prompt for the step of a STATE, by `rule` or the rule in the table.

    With `root`, by the project's own table and templates, with warnings about files that are missing there.
    It has neither what the journal knows about the story (`peek` does) nor the id of a dispatch.
    Raises Refused (UNKNOWN_STEP, WRONG_STEP for a step that a person decides), InvalidFile, StoreError.
    """
    meant = sanitize(state).state
    chosen = rule or get_rule(meant.step, root)
    if chosen.requires_human:
        message = f"{meant.step} is decided by a person: there is no prompt for it"
        raise Refused(message, code="WRONG_STEP", hint="handoffd status")
    book = table(root)
    book = book.model_copy(update={"steps": {**book.steps, meant.step: chosen}})
    path = None if root is None else path_of(root)
    tongue = language or (None if path is None else settings_of(path).language) or "en"
    facts = Facts(failing_tests=meant.failing_tests, tests=meant.tests, files=meant.files_changed)
    track = Track(state=meant, ledger=Ledger(facts=facts))
    context = prompt_context(TrackKey(path or ""), track, None, book, tongue)
    if path is None:  # there is no folder in which anything could be missing
        context = replace(context, missing=(), rollback_target=None)
    return render_prompt(context, templates_for(path))


# --- the step table ----------------------------------------------------------------------------------
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
    """Return the step that a failure of `step` leads to; None where a person decides instead.

    Raises Refused (UNKNOWN_STEP, BAD_ARGUMENT for an unknown reason), InvalidFile, StoreError.
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
    """Return whether one executor or a team does a story whose scenarios have `parallel` `[P]`s.

    Raises Refused (UNKNOWN_STEP), InvalidFile, StoreError.
    """
    return get_rule(step, root).mode(complexity, parallel)


def resolve_paths(paths: Iterable[str], story: str) -> tuple[str, ...]:
    """Return path templates with the story's id in them: `US-{story}` of US-013 is US-013.

    Raises Refused (INVALID_STORY).
    """
    checked = check_story_id(story)
    return tuple(expand(path, checked) for path in paths)
