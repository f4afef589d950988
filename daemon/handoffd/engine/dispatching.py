"""A track's turn, as docs/reference/protocol/turns.md orders it: to a dispatch, a gate, a wait, the end.

At level 2 the daemon takes the turn (`advance`). At level 1 a person or another tool takes the prompt of
it (`hand_out`): from then on the attempt is theirs, STATE says `running`, no process of ours runs, and
the hand-off that they leave is judged like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from handoffd.engine.decision import (
    AlreadyRunning,
    Decision,
    Dispatched,
    Ground,
    MeasureBaseline,
    Moved,
    Situation,
    Spawn,
    accept,
    ask_human,
    ground,
    is_unlanded,
    notice,
    open_gate,
    refuse,
    row,
    wait,
)
from handoffd.engine.ends import abort_ordered, faulty, time_limit_min, timed_out
from handoffd.engine.events import (
    Advanced,
    BaselineMeasured,
    DispatchFailed,
    ExecutorStarted,
    Paused,
    PromptTaken,
    Resumed,
)
from handoffd.engine.flow.tasks import is_over
from handoffd.engine.limits import over_budget
from handoffd.engine.routing import MAX_ATTEMPTS, finished, follow, unasked
from handoffd.engine.starting import start_from_backlog, taken_up
from handoffd.engine.track import BacklogPause, Dispatch, Phase, Track, next_parked, startable
from handoffd.engine.wording import command
from handoffd.protocol.rules import DONE
from handoffd.protocol.state import Status

_RESTED: Final = frozenset({Status.PENDING, Status.PASS})
"""Without a story in flight, a track in any other status waits for a person."""


# --- a track's turn -----------------------------------------------------------------------------------
def advance(situation: Situation, event: Advanced) -> Decision:
    """Take the track as far as it goes: to a dispatch, a gate, a wait or its end."""
    if (waits := without_story(situation)) is not None:
        return _continued(situation) or waits
    return take_turn(situation, event.unmet, lambda here: _dispatch(here, event), keeps_gate=event.keeps_gate)


def take_turn(
    situation: Situation,
    unmet: tuple[str, ...],
    dispatch: Callable[[Situation], Decision],
    *,
    keeps_gate: bool,
) -> Decision:
    """Take the track as far as it goes, and have `dispatch` decide where an attempt can begin.

    `unmet` are the stories that must be done first and are not. `keeps_gate`: a gate that opens stays one for
    its story, as it did not in an earlier release.
    """
    if (held := _held_back(situation)) is not None:
        return held
    if situation.done:
        return _after_the_end(situation)
    if unmet:
        return _blocked(situation, unmet)
    moved = follow(situation)
    if isinstance(moved, Decision):
        return moved
    here = situation.at(moved.track)
    if here.state.status is not Status.PENDING:
        return _waits_for_person(here)
    taken = open_gate(here, keeps_gate=keeps_gate) if here.at_gate else dispatch(here)
    why = taken.why if moved.why is None else f"{moved.why}; {taken.why}"
    return replace(taken, why=why).because(*moved.grounds)


def wants_turn(
    track: Track, *, auto_continue: bool = False, beside: bool = False, landing: bool = False
) -> bool:
    """Return whether `Advanced` could take the track anywhere by itself.

    `beside`: the next story can have a track of its own. So a story that could not be landed keeps this one,
    and so does one that the daemon is `landing`: in no other could it be taken up again.
    """
    state, ledger = track.state, track.ledger
    if state is None or not ledger.automatic:
        return False
    if ledger.paused_by or ledger.closed or ledger.held_edit:
        return False
    if ledger.task is not None and is_over(track):
        return False
    if state.story is None or state.step == DONE:
        waits = beside and landing
        keeps = waits or (beside and is_unlanded(track))
        upcoming = None if keeps else unasked(ledger, auto_continue=auto_continue)
        goes_on = state.status in _RESTED and upcoming is not None
        return goes_on or (state.step == DONE and not waits and next_parked(track) is not None)
    return state.status in {Status.PENDING, Status.PASS, Status.FAILING, Status.TIMEOUT}


def _held_back(situation: Situation) -> Decision | None:
    state, ledger = situation.state, situation.ledger
    if state.status is Status.RUNNING:
        return _already_running(situation)
    if ledger.paused_by:
        return wait(situation, f"paused by {ledger.paused_by}")
    if ledger.closed:
        return wait(situation, state.last_error or "aborted")
    if ledger.held_edit:
        return wait(situation, ledger.held_edit.why)
    return None


def without_story(situation: Situation) -> Decision | None:
    """Return the wait for a story, if that is what keeps the track from its turn."""
    if situation.state.story is not None or _held_back(situation) is not None:
        return None
    return wait(situation, "no story was started")


def _already_running(situation: Situation) -> Decision:
    state = situation.state
    started = state.dispatched_at
    elapsed = (situation.now - started).total_seconds() / 60 if started else 0.0
    result = AlreadyRunning(
        step=state.step,
        elapsed_min=round(max(elapsed, 0.0), 1),
        last_error=state.last_error,
        caller_instruction=f"{state.step} runs; wait for it, do not dispatch again",
    )
    return Decision(track=situation.track, result=result, why="an attempt is in flight")


def _after_the_end(situation: Situation) -> Decision:
    parked = next_parked(situation.track)
    if parked is not None:
        # Only taken up: what this turn knows (unmet stories, the baseline) is about the story that ended.
        return taken_up(situation, parked)
    if (continued := _continued(situation)) is not None:
        return continued
    result = finished(situation, f"{situation.state.story} is done")
    return Decision(track=situation.track, result=result, why="the pipeline has ended")


def _continued(situation: Situation) -> Decision | None:
    """Return the start of the next queued story, if it starts without a command."""
    if situation.state.status not in _RESTED:
        return None
    upcoming = unasked(situation.ledger, auto_continue=situation.auto_continue)
    if upcoming is None:
        return None
    asked = ("auto_continue", "on") if situation.auto_continue else ("schedule.overlap", "queue")
    return start_from_backlog(situation, upcoming).because(ground(*asked))


def _waits_for_person(situation: Situation) -> Decision:
    state = situation.state
    if MAX_ATTEMPTS in state.blocked_by:
        return wait(situation, f"{state.step} has no attempt left")
    message = state.last_error or f"{state.step} waits for a person"
    return ask_human(situation, message, why="it waits for a person", tell=False)


def _blocked(situation: Situation, unmet: tuple[str, ...]) -> Decision:
    names = ", ".join(unmet)
    reason = f"blocked by {names}, which is not done" if len(unmet) == 1 else f"blocked by {names}"
    decision = wait(situation, reason, command("status"))  # it goes on by itself when they are done
    decision = decision.because(ground("story.blocked_by", names))
    if situation.ledger.told == reason:
        return decision
    told = situation.track.with_ledger(told=reason)
    why = "it goes on by itself when that is done"
    return replace(decision, track=told).also(
        notice(told, "blocked", reason, why=why, action=command("status"))
    )


# --- a dispatch of ours -------------------------------------------------------------------------------
def _dispatch(situation: Situation, event: Advanced) -> Decision:
    state, rule, ledger = situation.state, situation.rule, situation.ledger
    if event.over is not None:
        return over_budget(situation, event.over)
    asking = situation.track.asking
    baseline = event.baseline and rule.tests == "red" and not ledger.red_done and asking is None
    dispatch = Dispatch(
        id=event.dispatch, story=state.story, step=state.step, attempt=state.attempt, executor=event.executor,
        decided_at=situation.now, phase=Phase.BASELINE if baseline else Phase.STARTING, mark=event.mark,
        session=_session(situation, event), ask="step" if asking is None else "handoff",
        account=event.account, group=event.group, keeps_gate=event.keeps_gate,
    )  # fmt: skip
    track = situation.track.with_state(
        status=Status.RUNNING, dispatched_at=situation.now, completed_at=None, reason=None
    ).with_ledger(
        dispatch=dispatch, handed_out=None, told=None, capped=None, approval=None,
        workspace=event.workspace or ledger.workspace,
    )  # fmt: skip
    result = Dispatched(
        project=state.project,
        story=state.story,
        step=state.step,
        attempt=state.attempt,
        dispatch=dispatch.id,
        caller_instruction=f"{state.step} attempt {state.attempt} is being started; wait for its end",
    )
    order = MeasureBaseline(dispatch=dispatch.id, story=state.story) if baseline else _spawn(track)
    why = f"{state.step} attempt {state.attempt} of {state.max_attempts}"
    if asking is not None:
        why = f"{why}, for just its hand-off"
    first = (
        row(state.step, "tests", "red")
        if baseline
        else row(state.step, "timeout_min", f"{rule.timeout_min:g}")
    )
    grounds: tuple[Ground, ...] = (first,)
    if event.passed_over:
        grounds = (first, ground("executor.passed_over", "; ".join(event.passed_over)))
    return Decision(track=track, result=result, why=why, effects=(order,), grounds=grounds)


def _session(situation: Situation, event: Advanced) -> str | None:
    """Return the session that the next run continues: only its own executor's, and of the same step."""
    last = situation.ledger.session
    if last is None or not event.resume:
        return None
    return last.id if (last.step, last.executor) == (situation.state.step, event.executor) else None


def _spawn(track: Track) -> Spawn:
    dispatch = track.ledger.dispatch
    assert dispatch is not None
    return Spawn(
        dispatch=dispatch.id,
        executor=dispatch.executor,
        story=dispatch.story,
        step=dispatch.step,
        attempt=dispatch.attempt,
        timeout_min=time_limit_min(track),
        session=dispatch.session,
    )


def dispatch_failed(situation: Situation, event: DispatchFailed) -> Decision:
    """Stop at the step that could not be dispatched: a person must fix its preparation.

    A fault of the executor pauses the project; a fault of the project's own files needs a person.
    """
    moved = Moved(track=situation.track) if situation.done else follow(situation)
    if isinstance(moved, Decision) or situation.done:
        return refuse(situation, "STALE_FACT", "there is nothing to dispatch")
    if event.end is not None and event.executor is not None:
        why = f"it could not be dispatched: {event.message}"
        decision = faulty(situation.at(moved.track), event.end, event.executor, why, event.standby)
        return decision.because(*moved.grounds)
    stuck = situation.at(moved.track.with_state(status=Status.NEEDS_HUMAN, last_error=event.message))
    message = f"{stuck.state.step} could not be dispatched: {event.message}"
    decision = ask_human(stuck, message, why=event.code)
    return decision.because(*moved.grounds, ground("preparation", event.code))


def baseline_measured(situation: Situation, event: BaselineMeasured) -> Decision:
    """Start the executor, now that the results of the tests before it are known."""
    if (ended := abort_ordered(situation)) is not None:
        return ended
    dispatch, state = situation.dispatch, situation.state
    if dispatch.phase is not Phase.BASELINE:
        return refuse(situation, "STALE_FACT", f"{dispatch.id} has its baseline")
    if event.fault is not None:
        track = situation.track.without_dispatch()
        return ask_human(
            situation.at(track.with_state(status=Status.NEEDS_HUMAN, last_error=event.fault)),
            f"the tests of {state.project} cannot be run: {event.fault}",
            why="an unusable test command is a fault of the environment; no attempt was spent",
        ).because(row(state.step, "tests", "red"))
    starting = replace(dispatch, phase=Phase.STARTING, mark=event.mark)
    track = situation.track.with_ledger(dispatch=starting)
    return accept(track, f"baseline measured, {state.step} starts").also(_spawn(track))


def executor_started(situation: Situation, event: ExecutorStarted) -> Decision:
    """Note that the process runs."""
    dispatch = situation.dispatch
    if dispatch.phase is not Phase.STARTING:
        return refuse(situation, "STALE_FACT", f"{dispatch.id} is known to run")
    track = situation.track.with_ledger(dispatch=replace(dispatch, phase=Phase.EXECUTING))
    return accept(track, f"{dispatch.executor} runs as process {event.pid}")


# --- a step that a person or another tool does (level 1) ----------------------------------------------
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
    """Return whether this step sets up the project itself, outside any story."""
    state = situation.state
    return state.step == situation.pipeline(state.task_type).bootstrap


def _overdue(situation: Situation) -> Decision | None:
    """Return the end of another tool's attempt that is past its deadline; that tool may have no daemon."""
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
    ).with_ledger(told=None, session=None, handed_out=event.dispatch, approval=None)
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


# --- pauses: of a project, or of one of its stories ------------------------------------------------------
def pause(situation: Situation, event: Paused) -> Decision:
    """Dispatch nothing more; what runs ends normally."""
    ledger = situation.ledger
    theirs = ledger.paused_by is not None and not ledger.self_paused
    if theirs and (event.alone or ledger.backlog_pause is None):
        return refuse(situation, "ALREADY_PAUSED", f"paused by {ledger.paused_by}", command("resume"))
    backlog = BacklogPause(by=None if ledger.self_paused else ledger.project_paused_by)
    track = situation.track.with_ledger(
        paused_by=event.by, self_paused=False, backlog_pause=backlog if event.alone else None
    )  # theirs from now on
    return accept(track, f"paused by {event.by}", do="nothing is dispatched until it is resumed")


def resume(situation: Situation, event: Resumed) -> Decision:
    """Lift a pause, make the track Level 2, and start the next of the backlog after a done story."""
    lifted = situation.track.unpaused()
    held = lifted.ledger.project_paused_by if event.alone else None
    track = lifted.with_ledger(
        paused_by=None, remedy=None, automatic=True, by_hand=False,
        backlog_pause=None if held is None else BacklogPause(by=held),
    )  # fmt: skip
    upcoming = startable(track.ledger)
    if situation.done and not held and upcoming is not None and next_parked(track) is None:
        return start_from_backlog(situation.at(track), upcoming)
    return accept(track, f"resumed by {event.by}")
