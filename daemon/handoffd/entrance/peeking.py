"""What the next turn of a folder that is not supervised would be, by its own files.

A look changes nothing, so the folder is neither supervised for it nor is its STATE.json written as handoffd
would write it: what it says is decided on in memory, as it would be if a verb took the folder in.
"""

from __future__ import annotations

from dataclasses import replace

from handoffd.api.reads import is_bootstrapped, peek_json
from handoffd.clock import SystemClock
from handoffd.engine.decide import decide
from handoffd.engine.decision import Decision, Dispatched
from handoffd.engine.events import Advanced, Event, PromptTaken, StateEdited
from handoffd.engine.routing import MAX_ATTEMPTS
from handoffd.engine.track import EXTERNAL, Track, TrackKey
from handoffd.errors import Json
from handoffd.inspection.finished import finished_before
from handoffd.inspection.own_files import settings_of, table_of, templates_for
from handoffd.inspection.project_status import state_of
from handoffd.project.status import peek_at
from handoffd.protocol.prompt import render_prompt
from handoffd.protocol.rules import Language, RuleBook
from handoffd.protocol.state import Status
from handoffd.track.ai_folder import reopenings
from handoffd.track.prompt_context import prompt_context


def peek(root: str, language: Language) -> Json:
    """Return what the next turn of the project at `root` would do, and the prompt that it would give.

    `language` is that of the prompt where the project's settings name none. Raises Refused (NOT_INITIALIZED),
    InvalidFile, StoreError.
    """
    rules = table_of(root)
    decision = _turn(root, rules)
    prompt, warnings = _prompt(root, decision, rules, settings_of(root).language or language)
    done = decision.track.ledger.stories_done
    found = peek_at(root, decision, rules, done, bootstrapped=is_bootstrapped(root))
    return peek_json(replace(found, prompt=prompt, warnings=warnings))


def _turn(root: str, rules: RuleBook) -> Decision:
    state, now = state_of(root), SystemClock().now()
    found = StateEdited(state=state, policy="adopt", done=finished_before(root, state))
    track = decide(Track(), found, rules, now).track
    done = {*track.ledger.stories_done, MAX_ATTEMPTS}
    unmet = tuple(story for story in state.blocked_by if story not in done)
    turn: Event = PromptTaken(
        dispatch="", unmet=unmet, by="peek", keeps_gate=True, reopenings=reopenings(root)
    )
    if state.story is None:  # taken, it would be the bootstrap's prompt; a story may begin elsewhere
        turn = Advanced(dispatch="", executor=EXTERNAL, unmet=unmet, keeps_gate=True)
    return decide(track, turn, rules, now)


def _prompt(
    root: str, decision: Decision, rules: RuleBook, language: Language
) -> tuple[str | None, tuple[str, ...]]:
    state = decision.track.state
    assert state is not None
    if not isinstance(decision.result, Dispatched) and state.status is not Status.RUNNING:
        return None, ()
    context = prompt_context(TrackKey(root), decision.track, None, rules, language)
    return render_prompt(context, templates_for(root)), tuple(
        f"{path} is missing" for path in context.missing
    )
