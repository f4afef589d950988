"""The files of the protocol as values: a STATE checked and written, a hand-off read, a prompt made.

What is written here is a file and nothing else. handoffd looks at it as at any edit from outside: it is
adopted, held where it passes a human step, or undone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from handoffd.engine.track import Facts, Ledger, Track, TrackKey
from handoffd.errors import InvalidFile, Problem, Refused
from handoffd.files import projection
from handoffd.files.rooted import read_project_file
from handoffd.inspection.own_files import settings_of, templates_for
from handoffd.library.asking import Root, path_of
from handoffd.library.table import get_rule, table
from handoffd.protocol.document import STATE_FILE, ParsedState, parse_state, render_state
from handoffd.protocol.handoff import HANDOFF_FILE, MAX_FILE_BYTES, RESULT_FILE, Found, Handoff, Malformed
from handoffd.protocol.prompt import render_prompt
from handoffd.protocol.reading import HandoffTexts, read_claims
from handoffd.protocol.rules import DONE, Language, Rule
from handoffd.protocol.state import State
from handoffd.supervise.prompting import prompt_context

StateLike = State | Mapping[str, Any]
"""A STATE as a value, or as the JSON object of the file."""


def sanitize(state: StateLike) -> ParsedState:
    """Return the `state` that is meant, and in `warnings` what had to be read otherwise than it is written.

    Raises InvalidFile for what means nothing.
    """
    return parse_state(render_state(state) if isinstance(state, State) else json.dumps(dict(state)))


def validate(state: StateLike, root: Root | None = None) -> State:
    """Return a STATE whose every value is one of the protocol's, and whose step is one of the table's.

    Of a project's own step table with `root`. Raises InvalidFile, also for what `sanitize` would mend.
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
    """Replace STATE.json whole, by a valid state. It is taken as an edit from outside.

    A running daemon looks at it at once, else the next verb does: it is adopted, held until `handoffd
    confirm` where it passes a human step, and undone while an executor runs.
    Raises InvalidFile, StoreError; the old file then stays.
    """
    path = path_of(root)
    projection.write_state(Path(path), projection.MAIN, render_state(validate(state, path)))


def parse_handoff(root: Root) -> Handoff | None:
    """Return what HANDOFF.md and executor-result say together, whatever attempt they are of.

    None when neither is there. Nothing is judged by it: that is what `apply_handoff` does.
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
    """Return the prompt for the step at which a STATE is, by `rule` or the one of the table.

    With `root` by the project's own table and templates, with warnings of files that are missing there. What
    the journal knows of the story (`peek` has it) is not in it, nor the id of a dispatch.
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
