"""The state machine: `decide(track, event, rules, now)`, a function of its arguments.

The table in `transitions` says what may happen to a track in which status; this module looks it up,
hands the event to the rule that knows it, and asserts that the rule stayed within the table. The
rules live by subject: `verbs`, `starting` and `queueing` (people), `dispatching` (a track's turn),
`judging` and `verdict` (the end of an attempt), `routing` (what follows), `edits` (STATE.json changed by
others).
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from handoffd.engine import (
    aftermath,
    budgeting,
    dispatching,
    edits,
    handing,
    judging,
    parking,
    queueing,
    stalling,
    starting,
    verbs,
)
from handoffd.engine.advice import next_command, way_on
from handoffd.engine.changing import changed
from handoffd.engine.commands import command
from handoffd.engine.decision import Basis, Decision, Ground, Situation, UnknownStepError
from handoffd.engine.events import (
    Advanced,
    BaselineMeasured,
    CapReached,
    CauseEnded,
    ChecksFinished,
    DeadlinePassed,
    DispatchFailed,
    Event,
    ExecutorExited,
    ExecutorStarted,
    Fact,
    HandoffArrived,
    HandoffSettled,
    Interrupted,
    NoticeGivenUp,
    Restored,
    SpawnRefused,
    StateEdited,
    Verb,
)
from handoffd.engine.requests import (
    Aborted,
    Approved,
    AutoContinueChosen,
    BacklogEdited,
    BacklogMoved,
    BacklogRemoved,
    BudgetRaised,
    Continued,
    EditConfirmed,
    ExecutorChosen,
    Initialised,
    LevelChosen,
    LimitLifted,
    Noted,
    Paused,
    PostChecked,
    PromptTaken,
    Rejected,
    Reopened,
    Resumed,
    Retried,
    RolledBack,
    Skipped,
    Started,
)
from handoffd.engine.results import Finished, Refusal
from handoffd.engine.silence import ExecutorQuiet, ExecutorStalled
from handoffd.engine.track import StopReason, Track
from handoffd.engine.transitions import TRANSITIONS
from handoffd.engine.wording import ask_human, notice_given_up, refuse
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import Status


def decide(track: Track, event: Event, rules: RuleBook, now: datetime) -> Decision:
    """Return the next track and what must be done about it. Same input, same output."""
    goes_on = isinstance(event, Advanced) and event.auto_continue
    reopenings = event.reopenings if isinstance(event, Advanced | PromptTaken) else None
    situation = Situation(track, rules, now, auto_continue=goes_on, reopenings=reopenings)
    decision = _decide(situation, event)
    grounds = decision.grounds or (_row_of(track, event, decision),)
    return changed(decision, grounds=grounds, basis=Basis(rules, now))


def _row_of(track: Track, event: Event, decision: Decision) -> Ground:
    """Return the row of the transition table, or the refusal, for what no other rule had a say in."""
    before, after = track.state, decision.track.state
    if isinstance(decision.result, Refusal):
        return Ground(rule=f"refusals.{decision.result.code}", value=event.kind)
    place = before.status.value if before is not None else "none"
    return Ground(
        rule=f"transitions.{place}.{event.kind}", value=after.status.value if after is not None else "none"
    )


def _decide(situation: Situation, event: Event) -> Decision:
    track = situation.track
    status = track.state.status if track.state is not None else None
    allowed = TRANSITIONS[status].get(event.kind)
    if allowed is None:
        return _out_of_place(situation, event, status)
    if _is_stale(track, event):
        return refuse(situation, "STALE_FACT", f"{event.kind} is about another dispatch")
    try:
        decision = (
            _rule_for_verb(situation, event) if isinstance(event, Verb) else _rule_for_fact(situation, event)
        )
    except UnknownStepError as missing:
        return _unknown_step(situation, event, str(missing))
    after = decision.track.state
    refused = isinstance(decision.result, Refusal)
    assert after is None or refused or after.status in allowed, (status, event.kind, after.status)
    return decision if refused else _advised(decision, situation.rules)


def _advised(decision: Decision, rules: RuleBook) -> Decision:
    """Return the decision with what a person would type next, unless its rule knew better."""
    result = decision.result
    if isinstance(result, Finished):  # it knows: where the next story starts by itself, nothing
        return decision
    following = result.next_command or next_command(decision.track, rules)
    return changed(decision, result=changed(result, next_command=following))


_OfOneDispatch = (
    BaselineMeasured
    | ExecutorStarted
    | SpawnRefused
    | HandoffSettled
    | DeadlinePassed
    | CapReached
    | ExecutorQuiet
    | ExecutorStalled
    | ExecutorExited
    | ChecksFinished
)


def _is_stale(track: Track, event: Event) -> bool:
    """Whether a fact about a dispatch is about another one than the one in flight."""
    if not isinstance(event, _OfOneDispatch):
        return False
    current = track.ledger.dispatch.id if track.ledger.dispatch is not None else None
    return event.dispatch != current


def _out_of_place(situation: Situation, event: Event, status: Status | None) -> Decision:
    track, rules = situation.track, situation.rules
    if status is None:
        return refuse(situation, "NOT_INITIALIZED", "the project has no STATE.json", command("init"))
    if status is Status.RUNNING:
        return refuse(situation, "ALREADY_RUNNING", f"{situation.state.step} runs", way_on(track, rules))
    if isinstance(event, Approved | Rejected):
        message = f"{situation.state.step} waits for nobody's decision"
        return refuse(situation, "WRONG_STEP", message, way_on(track, rules))
    if isinstance(event, Reopened):
        return verbs.not_done(situation, event)
    return refuse(situation, "STALE_FACT", f"{event.kind} changes nothing at {status}")


def _unknown_step(situation: Situation, event: Event, step: str) -> Decision:
    message, remedy = f"the step table has no step {step}", "mend .ai/step-rules.yaml"
    if not isinstance(event, ExecutorExited | ChecksFinished):
        told = f"{message}: {remedy}, or roll back to a step it has"
        return refuse(situation, "UNKNOWN_STEP", told, command("rules check"))
    # Its processes are gone and say so only once: refused, this fact would leave a track that runs for ever.
    track = situation.track.without_dispatch().with_state(
        status=Status.NEEDS_HUMAN, last_error=message, completed_at=situation.now
    )
    return ask_human(situation.at(track), message, why=f"{remedy}, then try again")


def _rule_for_verb(situation: Situation, event: Verb) -> Decision:
    match event:
        case Initialised():
            return verbs.initialise(situation, event)
        case Started():
            return starting.start(situation, event)
        case Approved():
            return verbs.approve(situation, event)
        case Rejected():
            return verbs.reject(situation, event)
        case Retried():
            return verbs.retry(situation, event)
        case Skipped():
            return verbs.skip(situation, event)
        case Aborted():
            return verbs.abort(situation, event)
        case Paused():
            return verbs.pause(situation, event)
        case Resumed():
            return verbs.resume(situation, event)
        case Noted():
            return verbs.note(situation, event)
        case RolledBack():
            return verbs.roll_back(situation, event)
        case Reopened():
            return verbs.reopen(situation, event)
        case EditConfirmed():
            return edits.edit_confirmed(situation, event)
        case ExecutorChosen():
            return verbs.use(situation, event)
        case LimitLifted():
            return parking.lift(situation, event)
        case BudgetRaised():
            return budgeting.raise_budget(situation, event)
        case PromptTaken():
            return handing.hand_out(situation, event)
        case LevelChosen():
            return handing.choose_level(situation, event)
        case PostChecked():
            return handing.post_checked(situation, event)
        case Continued():
            return queueing.go_on(situation, event)
        case BacklogMoved():
            return queueing.move(situation, event)
        case BacklogEdited():
            return queueing.edit(situation, event)
        case BacklogRemoved():
            return queueing.remove(situation, event)
        case AutoContinueChosen():
            return queueing.choose_auto_continue(situation, event)
        case _:
            assert_never(event)


def _rule_for_fact(situation: Situation, event: Fact) -> Decision:
    match event:
        case Advanced():
            return dispatching.advance(situation, event)
        case DispatchFailed():
            return dispatching.dispatch_failed(situation, event)
        case BaselineMeasured():
            return _unless_aborted(situation) or dispatching.baseline_measured(situation, event)
        case ExecutorStarted():
            return dispatching.executor_started(situation, event)
        case SpawnRefused():
            return _unless_aborted(situation) or judging.spawn_refused(situation, event)
        case HandoffSettled():
            return judging.handoff_settled(situation, event)
        case DeadlinePassed():
            return judging.deadline_passed(situation, event)
        case CapReached():
            return judging.cap_reached(situation, event)
        case ExecutorQuiet():
            return stalling.executor_quiet(situation, event)
        case ExecutorStalled():
            return stalling.executor_stalled(situation, event)
        case Interrupted():
            return judging.interrupted(situation, event)
        case ExecutorExited():
            return judging.executor_exited(situation, event)
        case ChecksFinished():
            return judging.checks_finished(situation, event)
        case HandoffArrived():
            return handing.handoff_arrived(situation, event)
        case StateEdited():
            return edits.state_edited(situation, event)
        case Restored():
            return edits.restored(situation, event)
        case NoticeGivenUp():
            return notice_given_up(situation, event)
        case CauseEnded():
            return aftermath.cause_ended(situation, event)
        case _:
            assert_never(event)


def _unless_aborted(situation: Situation) -> Decision | None:
    """Return the end of a dispatch that was aborted before its executor ran, if it was."""
    dispatch = situation.dispatch
    if dispatch.stop is not StopReason.ABORT:
        return None
    return judging.aborted(situation, dispatch.stopped_by or "a person")
