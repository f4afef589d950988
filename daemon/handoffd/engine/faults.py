"""What follows from an end that left no valid hand-off, by the table in `ends.py`, at no cost of an attempt.

The attempt is repeated, is asked once more for just its hand-off, or goes to the next executor; else the
project is paused until the fault is over, or a person is asked. What costs an attempt is judged in
`judging.py`; a limit of the account is waited for in `limits.py`.
"""

from __future__ import annotations

from dataclasses import replace
from shlex import quote

from handoffd.engine.commands import command
from handoffd.engine.decision import Blocked, Decision, Ground, Situation, ground
from handoffd.engine.ends import FREE_REPEATS, POLICIES, REMOTE, AnyEnd, End, Fault, OwnEnd, Standby, Then
from handoffd.engine.events import CauseEnded
from handoffd.engine.limits import REFUSAL_PAUSES, pause
from handoffd.engine.track import Asking, Track
from handoffd.engine.wording import accept, ask_human, notice, refuse, until_words
from handoffd.protocol.state import Status

_OF_MEMORY = frozenset({End.OUT_OF_MEMORY, End.MEMORY_LIMIT})


def spared(situation: Situation, end: AnyEnd, why: str, standby: Standby | None = None) -> Decision | None:
    """Return what follows from an end that costs no attempt; None for one that is to be judged."""
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


def faulty(situation: Situation, end: End, executor: str, why: str, standby: Standby | None) -> Decision:
    """Go on with the next executor that is named; without one, pause the project until that fault is over.

    Without `standby` it is paused until a person resumes it.
    """
    if standby is None:
        return _paused(situation, end, executor, why)
    fault = _met(situation, end, executor, standby)
    if standby.instead is not None and end not in _OF_MEMORY:  # which is no fault of the executor
        return _passed_on(situation, fault, why, standby)
    faults = (*(one for one in standby.lacking if one.executor != executor), fault)
    return _paused(situation, end, executor, why, faults)


def _met(situation: Situation, end: End, executor: str, standby: Standby) -> Fault:
    """Return the fault of an executor: anew, or the same once more after it was tried again."""
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
    told = (notice(track, "warning", message, why=why, action=remedy),) if fault.answers == 1 else ()
    return accept(track, message, why=f"{fault.text}: {why}").also(*told).because(_row(fault.end))


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
        return refuse(situation, "STALE_FACT", f"no fault of {', '.join(event.executors)} is to be tried")
    faults = tuple(replace(one, trying=one.trying or one in due) for one in ledger.faults)
    # The remedy stays: it says that the pause has not proved to be over.
    track = situation.track.without_own_pause().with_ledger(faults=faults, remedy=ledger.remedy)
    return accept(track, f"{', '.join(one.executor for one in due)} is tried again, as its fault may be over")


def _paused(
    situation: Situation, end: End, executor: str, why: str, faults: tuple[Fault, ...] = ()
) -> Decision:
    """Dispatch nothing more of the project until its environment is mended.

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


def asked_again(situation: Situation, problem: str) -> Decision:
    """Make the attempt pending once more, for just the hand-off that it owes: its work may be complete."""
    state = situation.state
    asking = Asking(step=state.step, attempt=state.attempt, problem=problem)
    track = _pending(situation, problem).with_ledger(asking=asking)
    told = f"{state.step} attempt {state.attempt} is asked once more, for just its hand-off: {problem}"
    return accept(track, told).because(_row(End.CLEAN))


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
