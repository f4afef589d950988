"""Level 1: a step is done by a person or another tool, and handed in.

They take the prompt of the next turn, and from then on the attempt is theirs: STATE says `running`,
no process of ours runs, and the hand-off they leave is judged like any other.
"""

from __future__ import annotations

from handoffd.engine.advice import way_on
from handoffd.engine.commands import command
from handoffd.engine.decision import Decision, Situation, row
from handoffd.engine.dispatching import take_turn, timed_out, without_story
from handoffd.engine.events import HandoffArrived
from handoffd.engine.judging import hear_external
from handoffd.engine.requests import LevelChosen, PostChecked, PromptTaken
from handoffd.engine.results import Dispatched
from handoffd.engine.wording import accept, refuse
from handoffd.protocol.handoff import Found
from handoffd.protocol.state import Status


def hand_out(situation: Situation, event: PromptTaken) -> Decision:
    """Take the track as far as it goes; where that is a dispatch, the step is theirs who asked."""
    if (overdue := _overdue(situation)) is not None:
        return overdue
    if not _sets_up(situation) and (waits := without_story(situation)) is not None:
        return waits
    return take_turn(
        situation,
        event.unmet,
        lambda here: _hand_out(situation, here, event),
        keeps_gate=event.keeps_gate,
    )


def _sets_up(situation: Situation) -> bool:
    """Return whether it is the project itself that is to be set up: that is no story's step."""
    state = situation.state
    return state.step == situation.pipeline(state.task_type).bootstrap


def _overdue(situation: Situation) -> Decision | None:
    """Return the end of an attempt of others that has had its time: they may have no daemon to end it."""
    state = situation.state
    theirs = state.status is Status.RUNNING and situation.ledger.dispatch is None
    if not theirs or state.dispatched_at is None or not state.timeout_min:
        return None
    elapsed_min = (situation.now - state.dispatched_at).total_seconds() / 60
    if elapsed_min <= state.timeout_min:
        return None
    return timed_out(situation, elapsed_min, "no hand-off came in time", short=elapsed_min < 1)


def _hand_out(before: Situation, situation: Situation, event: PromptTaken) -> Decision:
    if situation.ledger.automatic:
        advice = command("level", "1")
        message = "handoffd dispatches this project itself (level 2); its steps are yours at level 1"
        return refuse(before, "SUPERVISED", message, advice)
    track = situation.track.with_state(
        status=Status.RUNNING, dispatched_at=situation.now, completed_at=None, reason=None
    ).with_ledger(told=None, session=None, handed_out=event.dispatch)
    state = situation.state
    result = Dispatched(
        project=state.project, story=state.story, step=state.step, attempt=state.attempt,
        dispatch=event.dispatch, next_command=command("apply"),
        caller_instruction=f"{state.step} attempt {state.attempt} is yours: have its prompt carried out, to"
        " where .ai/HANDOFF.md is written; then hand it in, and go to no other step before",
    )  # fmt: skip
    why = f"{state.step} attempt {state.attempt} of {state.max_attempts} was taken by {event.by}"
    limit = row(state.step, "timeout_min", f"{situation.rule.timeout_min:g}")
    return Decision(track=track, result=result, why=why, grounds=(limit,))


def choose_level(situation: Situation, event: LevelChosen) -> Decision:
    """Go on by itself, or leave the steps to people; what runs goes on as it is."""
    automatic = event.level == 2
    track = situation.track.with_ledger(automatic=automatic, by_hand=not automatic)
    who = "handoffd dispatches its steps" if automatic else "its steps are dispatched by people"
    return accept(track, f"level {event.level} from now on: {who}")


def post_checked(situation: Situation, event: PostChecked) -> Decision:
    """Note how the step's post_check came out; nothing follows from it."""
    dispatch = situation.ledger.dispatch
    if dispatch is not None:
        advice = way_on(situation.track, situation.rules)
        return refuse(
            situation, "ALREADY_RUNNING", f"{dispatch.id} is in flight and checked by itself", advice
        )
    track = situation.track.with_state(lint_pass=event.passed)
    return accept(track, f"post_check of {situation.state.step} {'passed' if event.passed else 'failed'}")


def handoff_arrived(situation: Situation, event: HandoffArrived) -> Decision:
    """Judge a hand-off for a dispatch that a person or another tool made; each counts once."""
    state = situation.state
    if situation.ledger.dispatch is not None:
        return refuse(situation, "STALE_FACT", "the running executor is ours")
    if not isinstance(event.reading, Found):
        return refuse(situation, "NO_HANDOFF", "no hand-off for the running attempt")
    if event.step is not None:
        if (event.step, event.attempt) != (state.step, state.attempt):
            return refuse(situation, "STALE_FACT", f"it was for {event.step} attempt {event.attempt}")
        if event.mark == situation.ledger.last_mark:
            return refuse(situation, "STALE_FACT", "it was applied already")
    return hear_external(situation, event)
