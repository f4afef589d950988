"""From the end of an executor to the verdict on its attempt.

An executor's word is a claim. It is heard when its whole process tree is gone; checks may lower it,
nothing raises it. What ended for our own reasons costs no attempt. What follows from a verdict (the next
step, a repetition, a step back, a person) is in `routing.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from handoffd.engine.decision import (
    Decision,
    Ground,
    RunChecks,
    Situation,
    accept,
    ask_human,
    ground,
    open_gate,
    refuse,
    row,
)
from handoffd.engine.ends import abort_ordered, asked_again, spared, timed_out, told_of_undone
from handoffd.engine.events import (
    ChecksFinished,
    ExecutorExited,
    HandoffArrived,
    SpawnRefused,
    TestEvidence,
)
from handoffd.engine.limits import capped, heard_from, park, spend
from handoffd.engine.run import (
    LIMITS,
    POLICIES,
    AnyEnd,
    End,
    Exit,
    Footprint,
    OwnEnd,
    PostCheck,
    SameEnds,
    Then,
    Wrote,
    all_passed,
    said_last,
    steady,
    with_end,
    with_line,
)
from handoffd.engine.track import (
    EXTERNAL,
    AgentSession,
    Dispatch,
    Facts,
    Ledger,
    Phase,
    Standby,
    StopReason,
    Track,
)
from handoffd.engine.wording import checks_in_words, counted, first_few, shortened, strays_of
from handoffd.protocol.handoff import Found, Handoff, Malformed, Reading, Stale
from handoffd.protocol.rules import Commands, Expectation, Rule, commands_of, dotted
from handoffd.protocol.state import Reason, Status, TestCounts

MOST_FILES = 500
"""Files remembered per story; a story that changes more is not described by listing them."""
_COMMAND = 200
"""Characters of a command quoted in last_error."""
_OUR_FAULT = "a fault of the environment"

_WITH_EXECUTOR = frozenset({Phase.STARTING, Phase.EXECUTING, Phase.STOPPING})
"""The phases in which the end of an executor can be news; told again later, it was judged already."""


# --- the end of an executor ---------------------------------------------------------------------------
def executor_exited(situation: Situation, event: ExecutorExited) -> Decision:
    """Judge what an executor left when its last process was gone."""
    dispatch = situation.dispatch
    if dispatch.phase not in _WITH_EXECUTOR:
        return refuse(situation, "STALE_FACT", f"{dispatch.id} has no executor now")
    session = _session_left(situation.ledger.session, dispatch, event)
    booked = spend(heard_from(situation, event), event.exit.usage)
    ended = _over(booked, event, situation.now)
    task = ended.ledger.task and ended.ledger.task.heard(event.delivered)
    known = ended.with_ledger(last_mark=event.mark, session=session, wrote=event.wrote, task=task)
    heard = situation.at(known)
    if (aborted := abort_ordered(heard)) is not None:
        return aborted
    if isinstance(event.reading, Found):
        return _hear(heard, _completed(event.reading.handoff, event.exit))
    if dispatch.cap is not None:
        return capped(heard, dispatch.cap)
    if dispatch.stop is StopReason.SHUTDOWN:
        return _spared(heard, OwnEnd.INTERRUPTED, "the daemon stopped its executors")
    if event.exit.end is not None and POLICIES[event.exit.end].then is Then.PARK:
        return park(heard, event.exit, event.standby)  # also when it has spent its time on trying again
    if dispatch.stop is StopReason.STALL and event.exit.by != "itself":
        stalled = f"ended without a hand-off, {dispatch.stop_detail or 'it showed no activity'}"
        return _hear(heard, _failed(heard, with_line(stalled, event.exit)))
    if dispatch.stop is StopReason.TIMEOUT or event.exit.by == "deadline":
        return _out_of_time(heard, event.exit)
    if dispatch.stop is StopReason.SETTLED:
        why = "it was ended because its hand-off was there, and then it was not"
        return _spared(heard, OwnEnd.WITHDRAWN, why)
    if event.exit.by == "lost":
        return _spared(heard, OwnEnd.LOST, "its process vanished, and it is unknown how it ended")
    if event.exit.by == "outside":
        return _spared(heard, OwnEnd.LOST, "it was ended from outside, as at a shutdown of the machine")
    return _left_nothing(heard, event)


def _over(track: Track, event: ExecutorExited, now: datetime) -> Track:
    """Return the track with its executor's end time, and with its last output if there is no hand-off."""
    dispatch, exit_ = track.ledger.dispatch, event.exit
    assert dispatch is not None
    if exit_.line is None:  # an earlier release kept neither
        return track
    # Clocks are set: an attempt neither ends before it was decided, nor later than now.
    ended_at = None if exit_.at is None else min(max(exit_.at, dispatch.decided_at), now)
    printed = None if isinstance(event.reading, Found) else exit_.tail or None
    return track.with_ledger(
        dispatch=replace(dispatch, ended_at=ended_at), facts=replace(track.ledger.facts, output_tail=printed)
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
    """Return the verdict on an attempt without a hand-off, with the problem of the first request."""
    asking = situation.track.asking
    if asking is not None:
        problem = f"{asking.problem}; asked again for just that: {problem}"
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
    """Return how the attempt ended, and the problem with its hand-off."""
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


def spawn_refused(situation: Situation, event: SpawnRefused) -> Decision:
    """Repeat a start that the environment refused, a few times; not one whose program is not there."""
    if (ended := abort_ordered(situation)) is not None:
        return ended
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


# --- a claim, and its checks --------------------------------------------------------------------------
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
    dispatch = Dispatch(
        id=event.dispatch, story=state.story, step=state.step, attempt=state.attempt, executor=EXTERNAL,
        decided_at=situation.now, phase=Phase.CHECKING, keeps_gate=event.keeps_gate,
    )  # fmt: skip
    track = situation.track.with_ledger(dispatch=dispatch, handed_out=None, last_mark=event.mark, wrote=None)
    return _hear(situation.at(track), _completed(event.reading.handoff, Exit(code=0)))


def _hear(situation: Situation, claim: Handoff) -> Decision:
    """Take the claim, and have it checked where the step asks for it."""
    rule, state, dispatch = situation.rule, situation.state, situation.dispatch
    passing = claim.status is Status.PASS
    worked = claim.status is not Status.NEEDS_HUMAN and claim.error is None
    astray = rule.enforce_writes == "fail" and strays_of(state.step, situation.ledger.wrote) is not None
    tests = rule.tests if (worked or passing) and not astray else None
    post_check = rule.checks if passing and not astray else None
    if tests is None and post_check is None:
        unchecked = ChecksFinished(dispatch=dispatch.id)
        verdict = verdict_on(claim, rule, situation.ledger, unchecked, state.step)
        return conclude(situation, verdict).because(*_scope_of(situation))
    order = RunChecks(
        dispatch=dispatch.id,
        story=state.story,
        step=state.step,
        attempt=state.attempt,
        tests=tests,
        check_timeout_min=rule.check_timeout_min,
        post_check=post_check,
        post_check_timeout_s=rule.post_check_timeout_s,
        red=situation.ledger.red,
    )
    checking = replace(dispatch, phase=Phase.CHECKING, claim=claim)
    track = situation.track.with_ledger(dispatch=checking)
    decision = accept(track, f"{claim.status} claimed, now checked").also(order)
    return decision.because(*_checks_of(state.step, tests, post_check))


def _checks_of(step: str, tests: Expectation | None, post_check: Commands | None) -> tuple[Ground, ...]:
    """Return the rows of the step table that ask for checks."""
    rows = {} if tests is None else {"tests": str(tests)}
    rows |= {dotted("post_check", name): text for name, text in commands_of(post_check)}
    return tuple(row(step, key, value) for key, value in rows.items())


def checks_finished(situation: Situation, event: ChecksFinished) -> Decision:
    """Judge a claim by what was measured."""
    dispatch = situation.dispatch
    if dispatch.phase is not Phase.CHECKING:
        return refuse(situation, "STALE_FACT", f"{dispatch.id} is not being checked")
    if (ended := abort_ordered(situation)) is not None:
        return ended
    assert dispatch.claim is not None
    rule, step = situation.rule, situation.state.step
    verdict = verdict_on(dispatch.claim, rule, situation.ledger, event, step)
    tests, post_check = rule.tests if event.tests else None, rule.checks if event.checked else None
    return conclude(situation, verdict).because(*_checks_of(step, tests, post_check), *_scope_of(situation))


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
        facts=replace(verdict.facts, attempts=attempts), ends=_ends_with(situation, verdict),
        red_done=ledger.red_done or verdict.red_shown,
        new_tests=ledger.new_tests if verdict.new_tests is None or not passed else verdict.new_tests,
        red=situation.dispatch.id if verdict.red_held and passed else ledger.red,
        task=ledger.task and ledger.task.claimed(verdict.claim, verdict.status),
    ).without_dispatch()  # fmt: skip
    undone = told_of_undone(track, state.step)
    if verdict.status is Status.NEEDS_HUMAN:
        told = f"{state.step} asks for a person: {verdict.error or verdict.reason or 'see its hand-off'}"
        return ask_human(situation.at(track), told, why=verdict.why).also(*undone)
    message = f"{state.step} attempt {state.attempt}: {verdict.status}"
    if passed and situation.dispatch.keeps_gate and situation.at_gate:
        gate = open_gate(situation.at(track), keeps_gate=True)
        return replace(gate, why=f"{message}, {verdict.why}; {gate.why} since it was begun").also(*undone)
    return accept(track, message, why=verdict.why).also(*undone)


# --- the same end again ---------------------------------------------------------------------------------
def _ends_with(situation: Situation, verdict: Verdict) -> Mapping[str, SameEnds]:
    """Return how the steps have ended, with the end of an attempt that was judged.

    What a person or another tool has dispatched is theirs to stop.
    """
    ledger, step = situation.ledger, situation.state.step
    if situation.rules.identical_ends == 0 or situation.dispatch.executor == EXTERNAL:
        return ledger.ends
    if verdict.status is not Status.FAILING:
        return {name: ends for name, ends in ledger.ends.items() if name != step}
    mark, before = mark_of(verdict), ledger.ends.get(step)
    times = before.times + 1 if before is not None and before.mark == mark else 1
    return {**ledger.ends, step: SameEnds(mark=mark, times=times)}


def mark_of(verdict: Verdict) -> str:
    """Return a digest that two failures have in common if they are the same one.

    Measured tests alone show what fails. Without them the error counts, but for times, ids and the like.
    """
    told = [str(verdict.reason), *sorted({*verdict.failing_tests})]
    if verdict.measured is None or not verdict.failing_tests:
        told += [steady(verdict.error or ""), str(verdict.tests)]
    return hashlib.sha256("\0".join(told).encode("utf-8", "surrogatepass")).hexdigest()[:32]


# --- the verdict: a claim, lowered by what was measured -----------------------------------------------
class Verdict(Struct, frozen=True, kw_only=True):
    """The result of judging an attempt, and the facts that later prompts get from it."""

    status: Status
    why: str
    facts: Facts
    claim: Handoff = Handoff(status=None)
    reason: Reason | None = None
    error: str | None = None
    tests: TestCounts | None = None
    """Measured, else claimed."""
    measured: TestCounts | None = None
    failing_tests: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()
    lint_pass: bool | None = None
    red_shown: bool = False
    red_held: bool = False
    """Whether later green steps are held to the tests that it left."""
    new_tests: int | None = None
    """Tests beyond the baseline; None when it was not measured."""


def verdict_on(claim: Handoff, rule: Rule, ledger: Ledger, checks: ChecksFinished, step: str) -> Verdict:
    """Return the verdict on `claim`, given what the daemon measured (each part may be missing)."""
    verdict = _within_scope(_by_checks(claim, rule, ledger, checks), rule, step, ledger.wrote)
    lacks = ledger.task.lacks(claim) if ledger.task and verdict.status is Status.PASS else None
    if lacks is None:
        return verdict
    return replace(verdict, status=Status.FAILING, error=lacks, why=f"pass claimed, but {lacks}")


def _by_checks(claim: Handoff, rule: Rule, ledger: Ledger, checks: ChecksFinished) -> Verdict:
    evidence, bad = checks.tests, tuple(one for one in checks.checked if not one.passed)
    assert claim.status is not None
    measured = evidence.counts if evidence and evidence.verified else None
    verdict = Verdict(
        claim=claim,
        status=claim.status,
        why=claim.error or f"{claim.status} claimed",
        facts=_facts(claim, ledger, evidence),
        reason=claim.reason,
        error=claim.error,
        tests=measured or _claimed_tests(claim),
        measured=measured,
        failing_tests=evidence.failing if evidence else claim.failing_tests,
        files_changed=_files(claim, ledger.wrote),
        lint_pass=all_passed(checks.checked),
    )
    if evidence is None and _is_red_without_tests(claim, rule):
        why = "failing tests are what this step is for"
        return replace(verdict, status=Status.PASS, why=why, red_shown=True)
    if claim.status is not Status.PASS:
        return verdict
    if evidence is not None:
        verdict = _measured(verdict, rule, ledger, evidence)
    if not bad or verdict.status is not Status.PASS:
        return verdict
    if bad[0].name is not None:
        return _named_failed(verdict, bad)
    fault = with_line(bad[0].fault, bad[0]) if bad[0].fault else None
    return _fault(verdict, "post_check", fault) if fault else _lint_failed(verdict, bad[0], rule.checks)


# --- what a step has changed, and may not write -------------------------------------------------------
def is_known(wrote: Wrote | None) -> TypeGuard[Wrote]:
    """Return whether the daemon has found out what a step has changed."""
    return wrote is not None and wrote.unknown is None


def _within_scope(verdict: Verdict, rule: Rule, step: str, wrote: Wrote | None) -> Verdict:
    """Lower a pass where the step has changed what it may not write, or that is not known and must be."""
    if verdict.status is not Status.PASS or wrote is None:
        return verdict
    mode, strays = rule.enforcement(shared=wrote.shared), strays_of(step, wrote)
    lasting = rule.only_papers and not wrote.shared
    if mode != "warn" and (fault := wrote.unknown or wrote.fault) is not None:
        what = f"{strays}; nothing was put back" if strays else f"which files {step} has changed is not known"
        error = f"{what}: {fault} (enforce_writes: {mode})"
        return replace(verdict, status=Status.NEEDS_HUMAN, error=error, why=_OUR_FAULT)
    if strays is not None and (mode == "fail" or lasting):
        why, reason = f"pass claimed, but {strays}", Reason.SCOPE_WARNING
        # Where no test was run for that, what the agent counted is not shown as a result of tests.
        return replace(
            verdict, status=Status.FAILING, reason=reason, error=strays, why=why, tests=verdict.measured
        )
    stay = f"; not put back: {wrote.stay}" if wrote.stay else ""
    return verdict if strays is None else replace(verdict, why=f"{verdict.why}; {strays}{stay}")


def _scope_of(situation: Situation) -> tuple[Ground, ...]:
    """Return the row of the step table by which such files are judged, if there are any."""
    wrote, step = situation.ledger.wrote, situation.state.step
    found = is_known(wrote) and (wrote.strays or wrote.undone)
    return (row(step, "enforce_writes", situation.rule.enforce_writes),) if found else ()


def _claimed_tests(claim: Handoff) -> TestCounts | None:
    """Return the counts that were claimed; all zero means that no test was run, not that none exists."""
    counts = claim.tests
    return counts if counts and (counts.passed or counts.failed or counts.skipped) else None


def _fault(verdict: Verdict, what: str, fault: str) -> Verdict:
    """Ask a person: what cannot be run says nothing about the agent's work."""
    error = f"{what} could not be run: {fault}"
    return replace(verdict, status=Status.NEEDS_HUMAN, error=error, why=_OUR_FAULT)


def _changed_by(wrote: Wrote | None) -> str:
    """Return what a step has changed, in words that follow a fault: that may be its cause."""
    if not is_known(wrote) or not wrote.count:
        return ""
    files = first_few(wrote.files, count=wrote.count)
    return f"; {counted(wrote.count, 'file')} changed since the step began: {files}"


def _is_red_without_tests(claim: Handoff, rule: Rule) -> bool:
    """With no test command, an agent that reports its new tests as failing did what it should."""
    told_nothing_else = claim.reason is None and claim.error is None
    return rule.tests == "red" and claim.status is Status.FAILING and told_nothing_else


def _measured(verdict: Verdict, rule: Rule, ledger: Ledger, evidence: TestEvidence) -> Verdict:
    if evidence.fault is not None:
        return _fault(verdict, "the tests", with_line(evidence.fault, evidence) + _changed_by(ledger.wrote))
    if evidence.timed_out:
        error = "the tests did not end in time"
        return replace(verdict, status=Status.FAILING, reason=Reason.TEST_TIMEOUT, error=error, why=error)
    if rule.tests == "red":
        return _expect_red(replace(verdict, red_held=evidence.held), ledger, evidence)
    problem = green_problem(evidence)
    return _failed_check(verdict, problem, evidence.tail) if problem else _counted(verdict, evidence)


def _expect_red(verdict: Verdict, ledger: Ledger, evidence: TestEvidence) -> Verdict:
    if ledger.red_done and evidence.new_collected <= ledger.new_tests and evidence.unproven is None:
        return _counted(verdict, evidence)
    if problem := red_problem(evidence):
        return _failed_check(verdict, f"not red: {problem}", evidence.tail)
    why = f"red: {counted(evidence.new_failing, 'new test fails', 'new tests fail')}"
    return replace(verdict, why=why, red_shown=True, new_tests=evidence.new_collected)


def red_problem(evidence: TestEvidence) -> str | None:
    """Return why the new tests are not red, or None when they are.

    Red: at least one test outside the baseline fails, and nothing that passed in it fails now.
    """
    if evidence.regressed:
        return f"tests that passed before this story fail now: {first_few(evidence.regressed)}"
    if evidence.unproven is not None:
        return evidence.unproven
    if not evidence.verified:
        return None if evidence.failing else "the test command succeeded, so no new test fails"
    if evidence.new_failing == 0:
        return "no new test fails, so nothing shows what the next step must build"
    return None


def green_problem(evidence: TestEvidence) -> str | None:
    """Return why the tests are not green, or None when they are. Baseline failures do not count."""
    if evidence.unproven is not None:
        return evidence.unproven
    if evidence.failing and not evidence.verified:
        return with_end(evidence.failing[0], evidence.line or "")
    if evidence.failing:
        return f"{counted(len(evidence.failing), 'test fails', 'tests fail')}: {first_few(evidence.failing)}"
    if evidence.verified and evidence.collected == 0:
        return "the test command collected no test"
    return None


def _failed_check(verdict: Verdict, problem: str, tail: str = "") -> Verdict:
    facts, why = replace(verdict.facts, check_tail=tail or None), f"pass claimed, but {problem}"
    return replace(verdict, status=Status.FAILING, error=problem, why=why, facts=facts)


def _counted(verdict: Verdict, evidence: TestEvidence) -> Verdict:
    counts = evidence.counts
    known = f", {len(evidence.known_failing)} failed before this story" if evidence.known_failing else ""
    measured = (
        f"{counted(counts.passed, 'test passes', 'tests pass')}{known}"
        if evidence.verified
        else "the test command succeeded (unverified)"
    )
    measured = f"{measured}; {evidence.note}" if evidence.note else measured
    return replace(verdict, why=measured, new_tests=evidence.new_collected)


def _lint_failed(verdict: Verdict, post: PostCheck, command: Commands | None) -> Verdict:
    shown = shortened(command if isinstance(command, str) else "the command", _COMMAND)
    said = said_last(post) or f"{shown} exited with another code than 0, without any output"
    problem = "post_check did not end in time" if post.timed_out else f"post_check failed: {said}"
    return _failed_check(verdict, problem, post.tail)


def _named_failed(verdict: Verdict, bad: tuple[PostCheck, ...]) -> Verdict:
    """Name each check that did not pass. While one of them cannot be run, trying again does not help."""
    failed = tuple(one for one in bad if one.fault is None)
    verdict = replace(verdict, facts=replace(verdict.facts, failed_checks=failed))
    lower = _failed_check(verdict, f"post_check: {checks_in_words(bad)}")
    return lower if failed == bad else replace(lower, status=Status.NEEDS_HUMAN, why=_OUR_FAULT)


def _files(claim: Handoff, wrote: Wrote | None) -> tuple[str, ...]:
    """Return the changed files as they were found, else as they are claimed."""
    return wrote.files if is_known(wrote) else claim.files_changed


def _facts(claim: Handoff, ledger: Ledger, evidence: TestEvidence | None) -> Facts:
    measured = evidence is not None and evidence.fault is None and not evidence.timed_out
    old, wrote = ledger.facts, ledger.wrote
    return replace(
        old,
        files=tuple(dict.fromkeys((*old.files, *_files(claim, wrote))))[:MOST_FILES],
        files_measured=is_known(wrote) and (old.files_measured or not old.files),
        failing_tests=evidence.failing if measured and evidence else claim.failing_tests or old.failing_tests,
        tests=evidence.counts if measured and evidence and evidence.verified else old.tests,
        check_tail=_tail_kept(claim, evidence),
        failed_checks=(),
        commit_hash=claim.commit_hash or old.commit_hash,
        summary=claim.summary or old.summary,
    )


def _tail_kept(claim: Handoff, evidence: TestEvidence | None) -> str | None:
    """Return the end of the check that bears an honest `failing` out: the next attempt needs it as much.

    What a claimed pass failed at is added where that is judged.
    """
    if evidence is None or evidence.line is None:  # an earlier release kept none
        return None
    failed = bool(evidence.failing or evidence.counts.failed or evidence.timed_out)
    return evidence.tail or None if claim.status is not Status.PASS and failed else None
