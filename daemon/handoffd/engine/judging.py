"""From the end of an executor to the verdict on its attempt.

An executor's word is a claim. It is heard when its whole process tree is gone; checks may lower it,
nothing raises it. What ended for our own reasons costs no attempt.
"""

from __future__ import annotations

from datetime import datetime

from handoffd.engine.advice import next_command, way_on
from handoffd.engine.aftermath import asked_again, spared
from handoffd.engine.budgeting import cap_ground, capped, spend
from handoffd.engine.caps import Finding
from handoffd.engine.changing import changed
from handoffd.engine.decision import Decision, Ground, Situation, ground, row
from handoffd.engine.dispatching import open_gate, time_limit_min, timed_out
from handoffd.engine.effects import RunChecks, StopTree
from handoffd.engine.ends import POLICIES, AnyEnd, End, OwnEnd, Standby, Then
from handoffd.engine.events import (
    CapReached,
    ChecksFinished,
    DeadlinePassed,
    ExecutorExited,
    Exit,
    HandoffArrived,
    HandoffSettled,
    Interrupted,
    SpawnRefused,
)
from handoffd.engine.limits import LIMITS
from handoffd.engine.parking import heard_from, park
from handoffd.engine.results import NeedsHuman
from handoffd.engine.track import EXTERNAL, AgentSession, Dispatch, Phase, StopReason, Track
from handoffd.engine.usage import Footprint
from handoffd.engine.verdict import Verdict, verdict_on
from handoffd.engine.wording import accept, ask_human, refuse, time_in_words, with_line
from handoffd.protocol.handoff import Found, Handoff, Malformed, Reading, Stale
from handoffd.protocol.rules import Expectation
from handoffd.protocol.state import Status

_WITH_EXECUTOR = frozenset({Phase.STARTING, Phase.EXECUTING, Phase.STOPPING})
"""The phases in which the end of an executor can be news; told again later, it was judged already."""


def executor_exited(situation: Situation, event: ExecutorExited) -> Decision:
    """Judge what an executor left when its last process was gone."""
    dispatch = situation.dispatch
    if dispatch.phase not in _WITH_EXECUTOR:
        return refuse(situation, "STALE_FACT", f"{dispatch.id} has no executor now")
    session = _session_left(situation.ledger.session, dispatch, event)
    booked = spend(heard_from(situation, event), event.exit.usage)
    heard = situation.at(
        _over(booked, event, situation.now).with_ledger(last_mark=event.mark, session=session)
    )
    if dispatch.stop is StopReason.ABORT:
        return aborted(heard, dispatch.stopped_by or "a person")
    if isinstance(event.reading, Found):
        return _hear(heard, _completed(event.reading.handoff, event.exit))
    if dispatch.cap is not None:
        return capped(heard, dispatch.cap)
    if dispatch.stop is StopReason.SHUTDOWN:
        return _spared(heard, OwnEnd.INTERRUPTED, "the daemon was told to stop its executors")
    if event.exit.end is not None and POLICIES[event.exit.end].then is Then.PARK:
        return park(heard, event.exit, event.standby)  # also when it has spent its time on trying again
    if dispatch.stop is StopReason.STALL and event.exit.by != "itself":
        return _hear(heard, _failed(heard, _how_it_stalled(dispatch, event.exit)))
    if dispatch.stop is StopReason.TIMEOUT or event.exit.by == "deadline":
        return _out_of_time(heard, event.exit)
    if dispatch.stop is StopReason.SETTLED:
        why = "it was ended because its hand-off was there, and then it was not"
        return _spared(heard, OwnEnd.WITHDRAWN, why)
    if event.exit.by == "lost":
        return _spared(heard, OwnEnd.LOST, "its process vanished and nobody saw how")
    if event.exit.by == "outside":
        return _spared(heard, OwnEnd.LOST, "it was ended from outside, as at a shutdown of the machine")
    return _left_nothing(heard, event)


def _over(track: Track, event: ExecutorExited, now: datetime) -> Track:
    """Return the track with when its executor ended, and with what it printed last if it left no hand-off."""
    dispatch, exit_ = track.ledger.dispatch, event.exit
    assert dispatch is not None
    if exit_.line is None:  # an earlier release kept neither
        return track
    # Clocks are set: an attempt neither ends before it was decided, nor later than now.
    ended_at = None if exit_.at is None else min(max(exit_.at, dispatch.decided_at), now)
    printed = None if isinstance(event.reading, Found) else exit_.tail or None
    return track.with_ledger(
        dispatch=changed(dispatch, ended_at=ended_at), facts=changed(track.ledger.facts, output_tail=printed)
    )


def _session_left(
    before: AgentSession | None, dispatch: Dispatch, event: ExecutorExited
) -> AgentSession | None:
    """Return the session that a retry may continue; None where there is none, or it may be the cause."""
    exit_ = event.exit
    name = exit_.session or dispatch.session
    if name is None or (exit_.end is not None and POLICIES[exit_.end].fresh):
        return None
    used = exit_.usage
    if before is not None and name == dispatch.session and before.used is not None:
        used = before.used + used if used is not None else before.used
    cut = dispatch.stop in {StopReason.CAP, StopReason.STALL} or exit_.end in LIMITS
    unfinished = cut and not isinstance(event.reading, Found)
    return AgentSession(
        step=dispatch.step, executor=dispatch.executor, id=name, used=used, unfinished=unfinished
    )


def _out_of_time(situation: Situation, exit_: Exit) -> Decision:
    if situation.dispatch.ask == "handoff":
        return _hear(situation, _failed(situation, "no hand-off was there when the time for it was over"))
    why = "no valid hand-off was there at the deadline"
    return timed_out(situation, exit_.seconds / 60, why, exit_, short=exit_.line is not None)


def _left_nothing(situation: Situation, event: ExecutorExited) -> Decision:
    """Return what follows from an executor that ended by itself and left no valid hand-off."""
    problem, end = _problem(event.exit, event.reading), _class_of(situation.dispatch, event.exit)
    if end is None:
        return _hear(situation, _failed(situation, problem))
    if POLICIES[end].then is Then.ASK and situation.dispatch.ask == "step":
        return asked_again(situation, problem)
    free = spared(situation, end, problem, event.standby)
    if free is not None:
        return free
    return _hear(situation, _failed(situation, problem)).because(ground(f"ends.{end}", Then.FAILING))


def _class_of(dispatch: Dispatch, exit_: Exit) -> End | None:
    """Return the class of an end; who continued no session cannot have missed one."""
    if exit_.end is End.SESSION_GONE and dispatch.session is None:
        return End.FAILED
    return exit_.end


def _failed(situation: Situation, problem: str) -> Handoff:
    """Return the verdict of an attempt that ends without a hand-off, with what it was asked for before."""
    asking = situation.track.asking
    if asking is not None:
        problem = f"{asking.problem}; asked once more for just that: {problem}"
    return Handoff(status=Status.FAILING, error=problem)


def _completed(handoff: Handoff, exit_: Exit) -> Handoff:
    """Return a hand-off of the old format with the status that its exit code gives it."""
    if handoff.status is not None:
        return handoff
    clean = exit_.code == 0 or exit_.by in {"stop", "outside"}
    if clean and not exit_.stream_error:
        return handoff.model_copy(update={"status": Status.PASS})
    return handoff.model_copy(update={"status": Status.FAILING, "error": _how_it_ended(exit_)})


def _problem(exit_: Exit, reading: Reading) -> str:
    """Return how it ended, and what is wrong with what it left."""
    if isinstance(reading, Malformed):
        return str(reading.problem)
    if isinstance(reading, Stale):
        return f"{_how_it_ended(exit_)}, only a stale hand-off: {reading.why}"
    return f"{_how_it_ended(exit_)}, without a hand-off"


def _how_it_ended(exit_: Exit) -> str:
    taken = exit_.footprint or Footprint()
    if exit_.end is End.MEMORY_LIMIT:
        return with_line(f"ended by the kernel at its memory limit ({taken.memory_limit})", exit_)
    ended = (
        f"killed by signal {exit_.signal}" if exit_.signal is not None else f"exited with code {exit_.code}"
    )
    return with_line(f"{ended}; {taken.limits_met}" if taken.limits_met else ended, exit_)


def _how_it_stalled(dispatch: Dispatch, exit_: Exit) -> str:
    return with_line(f"ended without a hand-off, {dispatch.stop_detail or 'it stood still'}", exit_)


def _hear(situation: Situation, claim: Handoff) -> Decision:
    """Take the claim, and have it checked where the step asks for it."""
    rule, state, dispatch = situation.rule, situation.state, situation.dispatch
    passing = claim.status is Status.PASS
    wrote = claim.status is not Status.NEEDS_HUMAN and claim.error is None
    tests = rule.tests if wrote or passing else None
    post_check = rule.post_check if passing else None
    if tests is None and post_check is None:
        unchecked = ChecksFinished(dispatch=dispatch.id)
        return conclude(situation, verdict_on(claim, rule, situation.ledger, unchecked))
    order = RunChecks(
        dispatch=dispatch.id,
        story=state.story,
        step=state.step,
        attempt=state.attempt,
        tests=tests,
        check_timeout_min=rule.check_timeout_min,
        post_check=post_check,
        post_check_timeout_s=rule.post_check_timeout_s,
    )
    checking = changed(dispatch, phase=Phase.CHECKING, claim=claim)
    track = situation.track.with_ledger(dispatch=checking)
    checks = _checks_of(state.step, tests, post_check)
    return accept(track, f"{claim.status} claimed, now checked").also(order).because(*checks)


def _checks_of(step: str, tests: Expectation | None, post_check: str | None) -> tuple[Ground, ...]:
    """Return the rows of the step table that ask for checks."""
    return (
        *((row(step, "tests", tests),) if tests is not None else ()),
        *((row(step, "post_check", post_check),) if post_check is not None else ()),
    )


def checks_finished(situation: Situation, event: ChecksFinished) -> Decision:
    """Judge a claim by what was measured."""
    dispatch = situation.dispatch
    if dispatch.phase is not Phase.CHECKING:
        return refuse(situation, "STALE_FACT", f"{dispatch.id} is not being checked")
    if dispatch.stop is StopReason.ABORT:
        return aborted(situation, dispatch.stopped_by or "a person")
    assert dispatch.claim is not None
    rule, step = situation.rule, situation.state.step
    verdict = verdict_on(dispatch.claim, rule, situation.ledger, event)
    measured = _checks_of(
        step, rule.tests if event.tests else None, rule.post_check if event.post_check else None
    )
    return conclude(situation, verdict).because(*measured)


def conclude(situation: Situation, verdict: Verdict) -> Decision:
    """Write the verdict into the track; what follows from it is decided at its next turn.

    The note that the prompt carried is dropped once its step has passed; until then it is carried on.
    """
    state, ledger = situation.state, situation.ledger
    attempts = {**ledger.facts.attempts, state.step: ledger.facts.attempts.get(state.step, 0) + 1}
    passed = verdict.status is Status.PASS
    track = situation.track.with_state(
        status=verdict.status, reason=verdict.reason, completed_at=situation.over_at, tests=verdict.tests,
        failing_tests=verdict.failing_tests, files_changed=verdict.files_changed, lint_pass=verdict.lint_pass,
        last_error=verdict.error, human_note=None if passed else state.human_note,
    ).with_ledger(
        free_repeats=0, asking=None, measured=verdict.measured,
        facts=changed(verdict.facts, attempts=attempts),
        red_done=ledger.red_done or verdict.red_shown,
        new_tests=ledger.new_tests if verdict.new_tests is None or not passed else verdict.new_tests,
    ).without_dispatch()  # fmt: skip
    if verdict.status is Status.NEEDS_HUMAN:
        return ask_human(
            situation.at(track),
            f"{state.step} asks for a person: {verdict.error or verdict.reason or 'see its hand-off'}",
            why=verdict.why,
        )
    message = f"{state.step} attempt {state.attempt}: {verdict.status}"
    if passed and situation.dispatch.keeps_gate and situation.at_gate:
        gate = open_gate(situation.at(track), keeps_gate=True)
        return changed(gate, why=f"{message}, {verdict.why}; {gate.why} since it was begun")
    return accept(track, message, why=verdict.why)


def spawn_refused(situation: Situation, event: SpawnRefused) -> Decision:
    """Repeat a start that the environment refused, a few times; not one whose program is not there."""
    dispatch = situation.dispatch
    if dispatch.phase not in _WITH_EXECUTOR:
        return refuse(situation, "STALE_FACT", f"{dispatch.id} has no executor now")
    end = event.end if event.end is End.MISSING_BINARY else OwnEnd.NOT_STARTED
    return _spared(situation, end, f"the executor could not be started: {event.error}", event.standby)


def _spared(situation: Situation, end: AnyEnd, why: str, standby: Standby | None = None) -> Decision:
    """Return what follows from an end whose row of the table costs no attempt in any case."""
    decision = spared(situation, end, why, standby)
    assert decision is not None, f"{end} costs an attempt"
    return decision


def aborted(situation: Situation, by: str) -> Decision:
    """Close the track."""
    message = f"aborted by {by}"
    track = (
        situation.track.without_dispatch()
        .with_state(status=Status.NEEDS_HUMAN, last_error=message, completed_at=situation.over_at)
        .with_ledger(closed=True, held_edit=None)
    )
    following = next_command(track, situation.rules)
    result = NeedsHuman(
        step=situation.state.step,
        message=message,
        next_command=following,
        caller_instruction=f"{message}; next: {following}",
    )
    return Decision(track=track, result=result, why=message)


def stop(
    situation: Situation,
    reason: StopReason,
    why: str,
    *,
    by: str | None = None,
    detail: str | None = None,
    cap: Finding | None = None,
) -> Decision:
    """Order the end of the executor; the attempt is judged, with `detail`, when its last process is gone."""
    dispatch = situation.dispatch
    if dispatch.stop is not None and not (
        reason is StopReason.ABORT and dispatch.stop is not StopReason.ABORT
    ):
        advice = way_on(situation.track, situation.rules)
        return refuse(situation, "STOPPING", f"{dispatch.id} is being stopped already", advice)
    phase = dispatch.phase if dispatch.phase in {Phase.BASELINE, Phase.CHECKING} else Phase.STOPPING
    stopping = changed(
        dispatch, phase=phase, stop=reason, stopped_by=by, stop_detail=detail, cap=cap or dispatch.cap
    )
    track = situation.track.with_ledger(dispatch=stopping)
    return accept(track, f"stopping {dispatch.executor}: {why}").also(
        StopTree(dispatch=dispatch.id, why=reason)
    )


def deadline_passed(situation: Situation, event: DeadlinePassed) -> Decision:
    """End an attempt that has had its time. One that is not ours has no processes to end."""
    if event.dispatch is None:
        return timed_out(
            situation, event.elapsed_min, "no hand-off came in time", short=event.limit_min is not None
        )
    if situation.dispatch.phase not in {Phase.STARTING, Phase.EXECUTING}:
        return refuse(situation, "STALE_FACT", "the executor has ended")
    told = f"{event.elapsed_min:.0f} min" if event.limit_min is None else time_in_words(event.elapsed_min)
    over = f"its time was over after {told}"
    decision = stop(situation, StopReason.TIMEOUT, over)
    limit_min = time_limit_min(situation.track)
    return decision.because(row(situation.state.step, "timeout_min", f"{limit_min:g}"))


def cap_reached(situation: Situation, event: CapReached) -> Decision:
    """End an attempt for which, or for something it is a part of, no more may be spent."""
    if situation.dispatch.phase not in {Phase.STARTING, Phase.EXECUTING}:
        return refuse(situation, "STALE_FACT", "the executor has ended, or is being ended")
    decision = stop(situation, StopReason.CAP, event.finding.text, cap=event.finding)
    return decision.because(cap_ground(event.finding))


def handoff_settled(situation: Situation, event: HandoffSettled) -> Decision:
    """End an executor that has handed over and does nothing more."""
    if situation.dispatch.phase is not Phase.EXECUTING:
        return refuse(situation, "STALE_FACT", "the executor has ended")
    still = f"its hand-off is there and it was still for {event.quiet_s:g} s"
    decision = stop(situation, StopReason.SETTLED, still)
    return decision.because(ground("settings.execute.handoff_grace_s", f"{event.quiet_s:g}"))


def interrupted(situation: Situation, event: Interrupted) -> Decision:
    """End an executor for our own reasons; its attempt will be repeated."""
    if situation.ledger.dispatch is None or situation.dispatch.phase not in {Phase.STARTING, Phase.EXECUTING}:
        return refuse(situation, "NOTHING_RUNS", "no executor of ours runs")
    return stop(situation, StopReason.SHUTDOWN, "the daemon stops its executors", by=event.by)


def hear_external(situation: Situation, event: HandoffArrived) -> Decision:
    """Take the claim of an attempt that a person or another tool made (Level 1); its reading is `Found`."""
    state = situation.state
    assert isinstance(event.reading, Found)
    dispatch = Dispatch(
        id=event.dispatch, story=state.story, step=state.step, attempt=state.attempt, executor=EXTERNAL,
        decided_at=situation.now, phase=Phase.CHECKING, keeps_gate=event.keeps_gate,
    )  # fmt: skip
    track = situation.track.with_ledger(dispatch=dispatch, handed_out=None, last_mark=event.mark)
    return _hear(situation.at(track), _completed(event.reading.handoff, Exit(code=0)))
