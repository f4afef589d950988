"""How a run ends without a verdict: we end it, or it left no valid hand-off and costs no attempt.

A running executor is ended for its time, its caps, silence, a hand-off that is complete, or a stop of our
own. That is only ordered here; the attempt is judged when the last process is gone. Silence is measured
outside: an agent that waits for an answer that never comes would hold its slot until the timeout, which
some steps do not have. So the daemon sends a notice at half of the allowed time, and ends it at the end.

An end without a hand-off follows a row of `POLICIES` in `run.py`: the attempt is repeated, is asked again for
just its hand-off, or goes to the next executor; otherwise the project is paused until the fault is over, or
a person is asked. What costs an attempt is judged in `judging.py`; a limit of the account is waited
for in `limits.py`.
"""

from __future__ import annotations

from shlex import quote

from msgspec.structs import replace

from handoffd.engine.decision import (
    Blocked,
    Decision,
    Ground,
    NeedsHuman,
    Notify,
    Situation,
    StopTree,
    TimedOut,
    accept,
    ask_human,
    ground,
    next_command,
    notice,
    refuse,
    row,
    way_on,
)
from handoffd.engine.events import (
    CapReached,
    CauseEnded,
    DeadlinePassed,
    ExecutorQuiet,
    ExecutorStalled,
    HandoffSettled,
    Interrupted,
    NoticeGivenUp,
)
from handoffd.engine.limits import REFUSAL_PAUSES, cap_ground, pause
from handoffd.engine.run import (
    FREE_REPEATS,
    POLICIES,
    REMOTE,
    AnyEnd,
    End,
    Finding,
    OwnEnd,
    Printed,
    Silence,
    Then,
    with_line,
)
from handoffd.engine.track import Asking, Fault, Phase, Standby, StopReason, Track
from handoffd.engine.wording import command, counted, first_few, limit_in_words, time_in_words, until_words
from handoffd.protocol.state import Status


# --- ending a run -------------------------------------------------------------------------------------
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
    stopping = replace(
        dispatch, phase=phase, stop=reason, stopped_by=by, stop_detail=detail, cap=cap or dispatch.cap
    )
    track = situation.track.with_ledger(dispatch=stopping)
    return accept(track, f"stopping {dispatch.executor}: {why}").also(
        StopTree(dispatch=dispatch.id, why=reason)
    )


def deadline_passed(situation: Situation, event: DeadlinePassed) -> Decision:
    """End an attempt at its deadline. Another tool's attempt has no processes for us to end."""
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


def executor_quiet(situation: Situation, event: ExecutorQuiet) -> Decision:
    """Tell people, while there still is time to look at it."""
    if situation.dispatch.phase is not Phase.EXECUTING:
        return refuse(situation, "STALE_FACT", "the executor has ended")
    silence, step = event.silence, situation.state.step
    told = f"{step}: {situation.dispatch.executor} shows no sign of life for {silence.quiet_min:.1f} min"
    why = f"{silence.signs}; it is ended after {silence.limit_min:g} min of that"
    look = command("log")
    telling = notice(situation.track, "warning", told, why=why, action=look)
    decision = accept(situation.track, told, why=why, do="see what it printed last").also(telling)
    return replace(decision, result=replace(decision.result, next_command=look)).because(_allowed(silence))


def executor_stalled(situation: Situation, event: ExecutorStalled) -> Decision:
    """End it; the attempt is judged when its last process is gone."""
    if situation.dispatch.phase is not Phase.EXECUTING:
        return refuse(situation, "STALE_FACT", "the executor has ended")
    silence = event.silence
    detail = f"it showed no activity for {silence.quiet_min:.1f} min: {silence.signs}"
    return stop(situation, StopReason.STALL, detail, detail=detail).because(_allowed(silence))


def _allowed(silence: Silence) -> Ground:
    return ground("settings.execute.stall_min", f"{silence.limit_min:g}")


# --- its time is over, or a person aborts it ----------------------------------------------------------
HANDOFF_MIN = 5.0
"""The most minutes that an executor has for just its hand-off."""


def time_limit_min(track: Track) -> float:
    """Return how long the attempt in flight may take, in minutes; 0 for no limit."""
    dispatch, limit_min = track.ledger.dispatch, track.state.timeout_min if track.state is not None else 0
    if dispatch is None or dispatch.ask == "step":
        return limit_min
    return min(limit_min or HANDOFF_MIN, HANDOFF_MIN)


def timed_out(
    situation: Situation, elapsed_min: float, why: str, printed: Printed | None = None, *, short: bool
) -> Decision:
    """Return the decision for an attempt that reached its limit and whose processes are gone.

    The notice quotes its last output, so that a person sees what it was doing. `short`: give less than a
    minute in seconds; False replays the decisions of an earlier release, which rounded up to minutes.
    """
    state = situation.state
    if short:
        message = f"{state.step} ran out of time after {time_in_words(elapsed_min)}"
        message += f" (limit {limit_in_words(state.timeout_min)})"
    else:
        message = f"{state.step} ran out of time after {max(round(elapsed_min), 1)} min"
        message += f" (limit {state.timeout_min:g} min)"
    track = (
        situation.track.without_dispatch()
        .with_state(
            status=Status.TIMEOUT,
            completed_at=situation.over_at,
            last_error=with_line(message, printed) if printed else message,
        )
        .with_ledger(ends={step: ends for step, ends in situation.ledger.ends.items() if step != state.step})
    )
    why = with_line(why, printed) if printed else why
    result = TimedOut(
        step=state.step,
        elapsed_min=round(elapsed_min, 1),
        message=message,
        caller_instruction=f"{message}; a person may try again: {command('retry')}",
    )
    decision = Decision(track=track, result=result, why=why)
    following = next_command(track, situation.rules)
    told = decision.also(notice(track, "timeout", message, why=why, action=following))
    return told.because(row(state.step, "timeout_min", f"{state.timeout_min:g}"))


def abort_ordered(situation: Situation) -> Decision | None:
    """Return the end of the story where a person ordered it during this dispatch, which is over now."""
    dispatch = situation.dispatch
    return (
        aborted(situation, dispatch.stopped_by or "a person") if dispatch.stop is StopReason.ABORT else None
    )


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


# --- ends that cost no attempt ------------------------------------------------------------------------
def spared(situation: Situation, end: AnyEnd, why: str, standby: Standby | None = None) -> Decision | None:
    """Return the decision about an end that costs no attempt; None for an end to be judged."""
    policy, repeats = POLICIES[end], situation.ledger.free_repeats + 1
    if repeats <= policy.free:
        return _repeated(situation, end, why, repeats)
    match policy.then:
        case Then.REPEAT:
            return _repeated(situation, end, why, situation.ledger.free_repeats)
        case Then.PAUSE:
            assert isinstance(end, End)
            return faulty(situation, end, situation.dispatch.executor, why, standby)
        case Then.PERSON:
            return _given_up(situation, end, why, repeats)
    return None


def _repeated(situation: Situation, end: AnyEnd, why: str, repeats: int) -> Decision:
    """Make the same attempt pending again: what ended it was not the agent's doing."""
    track = _pending(situation, why).with_ledger(free_repeats=min(repeats, FREE_REPEATS))
    state = situation.state
    told = f"{state.step} attempt {state.attempt} is repeated: {why}"
    return accept(track, told).because(_free(end, repeats))


def _given_up(situation: Situation, end: AnyEnd, why: str, repeats: int) -> Decision:
    track = _pending(situation, why).with_ledger(free_repeats=FREE_REPEATS)
    return ask_human(
        situation.at(track.with_state(status=Status.NEEDS_HUMAN)),
        f"{situation.state.step} could not be run {repeats} times in a row: {why}",
        why="faults of the environment cost no attempt, but are not repeated for ever",
    ).because(_free(end, repeats))


def asked_again(situation: Situation, problem: str) -> Decision:
    """Make the attempt pending again, for just the hand-off that it owes: its work may be complete."""
    state = situation.state
    asking = Asking(step=state.step, attempt=state.attempt, problem=problem)
    track = _pending(situation, problem).with_ledger(asking=asking)
    told = f"{state.step} attempt {state.attempt} is asked again, for just its hand-off: {problem}"
    return accept(track, told).because(_row(End.CLEAN))


# --- executors that cannot be used --------------------------------------------------------------------
_OF_MEMORY = frozenset({End.OUT_OF_MEMORY, End.MEMORY_LIMIT})


def faulty(situation: Situation, end: End, executor: str, why: str, standby: Standby | None) -> Decision:
    """Go on with the next executor that is named; without one, pause the project until that fault is over.

    Without `standby` it is paused until a person resumes it.
    """
    if standby is None:
        return _paused(situation, end, executor, why)
    fault = _met(situation, end, executor, standby)
    if standby.instead is not None and end not in _OF_MEMORY:  # the executor is not at fault
        return _passed_on(situation, fault, why, standby)
    faults = (*(one for one in standby.lacking if one.executor != executor), fault)
    return _paused(situation, end, executor, why, faults)


def _met(situation: Situation, end: End, executor: str, standby: Standby) -> Fault:
    """Return the fault of an executor: a new one, or the same again after another try."""
    now = situation.now
    tried = next((one for one in situation.ledger.faults if one.trying and one.executor == executor), None)
    before = tried if tried is not None and tried.end is end else None
    answers = before.answers + 1 if before is not None else 1
    return Fault(
        executor=executor,
        end=end,
        since=before.since if before is not None else now,
        sign=standby.sign,
        answers=answers,
        again_at=now + pause("refusal", answers) if standby.tries_again and _passes(end, answers) else None,
        met_at=now,
    )


def _passes(end: End, answers: int) -> bool:
    """Return whether a fault may be over by the next trial although nothing has changed here.

    A want of memory may come from the work itself, and each trial does that work: there are a few only.
    """
    return end in REMOTE or (end is End.OUT_OF_MEMORY and answers <= len(REFUSAL_PAUSES))


def _passed_on(situation: Situation, fault: Fault, why: str, standby: Standby) -> Decision:
    """Give the attempt to the next executor of the list, with a notice that waits for no answer."""
    others = tuple(one for one in situation.ledger.faults if one.executor != fault.executor)
    track = _pending(situation, why).without_own_pause()
    track = track.with_ledger(faults=(*others, fault), free_repeats=0, told=None)
    state, remedy = situation.state, POLICIES[fault.end].remedy.format(executor=quote(fault.executor))
    takes_over = f"{standby.instead} takes over"
    if standby.until is not None:
        takes_over = f"{standby.instead} is waited for, {until_words(standby.until, situation.now)}"
    message = f"{fault.text}: {takes_over} at {state.step} of {state.story}, no attempt was spent"
    notices = (notice(track, "warning", message, why=why, action=remedy),) if fault.answers == 1 else ()
    return accept(track, message, why=f"{fault.text}: {why}").also(*notices).because(_row(fault.end))


def cause_ended(situation: Situation, event: CauseEnded) -> Decision:
    """Try executors again whose faults are over, and end our own pause with them; a person's pause stays."""
    ledger = situation.ledger
    if event.trial:
        return _tried(situation, event)
    left = tuple(fault for fault in ledger.faults if fault.executor not in event.executors)
    if left == ledger.faults:
        return refuse(situation, "STALE_FACT", f"no fault of {', '.join(event.executors)} is known")
    over = ", ".join(fault.executor for fault in ledger.faults if fault not in left)
    track = situation.track.unpaused().with_ledger(faults=left)
    return accept(track, f"{over} can be tried again")


def _tried(situation: Situation, event: CauseEnded) -> Decision:
    """Let executors be tried although nothing has changed here; if they cannot be used, the pause goes on."""
    ledger = situation.ledger
    due = [one for one in ledger.faults if one.executor in event.executors and not one.trying]
    if not due:
        return refuse(situation, "STALE_FACT", f"no fault of {', '.join(event.executors)} is due for a trial")
    faults = tuple(replace(one, trying=one.trying or one in due) for one in ledger.faults)
    # The remedy stays: it says that the pause has not proved to be over.
    track = situation.track.without_own_pause().with_ledger(faults=faults, remedy=ledger.remedy)
    return accept(track, f"{', '.join(one.executor for one in due)} is tried again, as its fault may be over")


def _paused(
    situation: Situation, end: End, executor: str, why: str, faults: tuple[Fault, ...] = ()
) -> Decision:
    """Pause the project until its environment is fixed.

    A person's pause stays theirs; else the pause ends with one of the `faults`.
    The free repetitions begin anew after it.
    """
    policy, state = POLICIES[end], situation.state
    fault = "; ".join(one.text for one in faults) or f"{executor} {policy.fault}"
    remedy = policy.remedy.format(executor=quote(executor))
    before = situation.ledger
    ours = bool(faults) and (before.paused_by is None or before.self_paused)
    track = _pending(situation, why).with_ledger(
        paused_by=f"handoffd: {fault}" if ours else before.paused_by or f"handoffd: {fault}",
        remedy=remedy, free_repeats=0, self_paused=ours, faults=faults,
    )  # fmt: skip
    following = f"{remedy} && {command('resume')}"
    message = f"{state.project} is paused, no attempt was spent: {fault}"
    result = Blocked(
        step=state.step,
        reason=message,
        next_command=following,
        caller_instruction=f"A person must act: {message}. Show this to them: {following}",
    )
    decision = Decision(track=track, result=result, why=f"{fault}: {why}").because(_row(end))
    if faults and faults[-1].answers > 1:
        return decision  # the notice of the first time still holds
    return decision.also(notice(track, "blocked", message, why=why, action=following))


def _pending(situation: Situation, why: str) -> Track:
    return situation.track.without_dispatch().with_state(
        status=Status.PENDING, last_error=why, completed_at=situation.over_at
    )


def _free(end: AnyEnd, repeats: int) -> Ground:
    """Return the limit that a free repetition rests on."""
    if isinstance(end, OwnEnd):
        return ground("limits.free_repeats", f"{repeats} of {FREE_REPEATS}")
    return ground(f"ends.{end}.free", f"{repeats} of {POLICIES[end].free}")


def _row(end: AnyEnd) -> Ground:
    """Return the row of the table that says what follows from an end."""
    return ground(f"ends.{end}", POLICIES[end].then)


# --- what an attempt was not to change ----------------------------------------------------------------
def told_of_undone(track: Track, step: str) -> tuple[Notify, ...]:
    """Return the notices about files that were put back, and about handoffd's own that were not."""
    wrote, told = track.ledger.wrote, list[Notify]()
    if wrote is not None and wrote.undone:
        what = counted(wrote.undone, "file was", "files were")
        text = f"{what} put back that {step} may not write: {first_few(wrote.reverted, count=wrote.undone)}"
        why = f"as {step} left them, they are in {wrote.kept}"
        told.append(notice(track, "warning", text, why=why, action=command("snapshots")))
    if wrote is not None and wrote.own:
        text = f"while {step} was at work, {first_few(wrote.own)} changed"
        why = "its agent or others did that: look at it before you trust an edit"
        told.append(notice(track, "warning", text, why=why, action=command("status")))
    return tuple(told)


# --- notices that reached no person -------------------------------------------------------------------
def notice_given_up(situation: Situation, event: NoticeGivenUp) -> Decision:
    """Return the decision that only remembers: telling of it by the same way would be lost as well."""
    many = "a notice was" if event.count == 1 else f"{event.count} notices were"
    why = f"{many} given up, {event.sink} did not take {'it' if event.count == 1 else 'them'}: {event.why}"
    decision = accept(situation.track, why, do="correct `notify` in the settings")
    return replace(decision, memorable=True)
