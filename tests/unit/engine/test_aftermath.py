"""Ends that cost no attempt: repeated, paused with a remedy, asked again; and stalls. All of it bounded."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace
from tests.support.playbook import (
    DISPATCH,
    T0,
    Playbook,
    dispatched,
    found,
    green,
    handoff,
    track_at,
    with_rule,
)

from handoffd.engine.decision import Ground, Spawn, StopTree, next_command, still_waits
from handoffd.engine.events import (
    Aborted,
    CauseEnded,
    DeadlinePassed,
    DispatchFailed,
    Event,
    ExecutorChosen,
    ExecutorQuiet,
    ExecutorStalled,
    Interrupted,
    Paused,
    Resumed,
    Retried,
    SpawnRefused,
    Started,
)
from handoffd.engine.run import POLICIES, End, Footprint, Silence, Then, Usage
from handoffd.engine.track import AgentSession, Asking, Fault, Phase, Standby, StopReason
from handoffd.engine.wording import command
from handoffd.errors import Problem
from handoffd.protocol.handoff import Absent, Malformed, Reading, Stale
from handoffd.protocol.state import Status

PAUSING = [end for end, policy in POLICIES.items() if policy.then is Then.PAUSE and not policy.free]

HALF = Malformed(problem=Problem(file=".ai/HANDOFF.md", line=7, key="status", message="is never closed"))


def ends(play: Playbook, end: End, reading: Reading | None = None, **exit_fields: object) -> Playbook:
    """Tell that the executor ended by itself, in a class, with nothing handed over."""
    code = 0 if end is End.CLEAN else 1
    return play.exits(reading, **{"code": code, "end": end, **exit_fields})  # type: ignore[arg-type]


# --- faults of the environment --------------------------------------------------------------------
@pytest.mark.parametrize("end", PAUSING)
def test_a_fault_of_the_environment_pauses_the_project_at_once(end: End) -> None:
    """No attempt is spent; one notice says what is wrong and what to type."""
    play = ends(Playbook(dispatched("impl", attempt=2)), end, tail="bad key")
    play.expect(status=Status.PENDING, attempt=2, result="blocked", orders="notify", completed_at=play.now)
    fault = f"rehearsal {POLICIES[end].fault}"
    assert f"handoffd: {fault}" == play.ledger.paused_by
    assert "exited with code 1 (bad key), without a hand-off" == play.state.last_error
    (notice,) = play.notices
    command = f"{POLICIES[end].remedy.format(executor='rehearsal')} && handoffd resume {{project}}"
    assert ("blocked", command) == (notice.notice, notice.action)
    assert fault in notice.text
    assert command == play.decision.result.next_command
    assert (Ground(rule=f"ends.{end}", value="pause"),) == play.decision.grounds
    play.turn().expect(result="blocked", orders="")
    assert command == play.decision.result.next_command


def test_a_resume_after_the_remedy_makes_the_same_attempt_again() -> None:
    """And the next fault pauses it again, with a notice of its own."""
    play = ends(Playbook(dispatched("impl", attempt=2)), End.LOGGED_OUT).given(Resumed())
    assert (None, None) == (play.ledger.paused_by, play.ledger.remedy)
    play.turn().expect(status=Status.RUNNING, attempt=2)
    ends(play, End.LOGGED_OUT).expect(status=Status.PENDING, attempt=2, orders="notify")


def test_a_project_that_a_person_paused_meanwhile_stays_theirs() -> None:
    """The notice comes all the same, and the remedy is kept."""
    play = Playbook(dispatched("impl")).given(Paused(by="mei"))
    ends(play, End.BAD_CALL).expect(orders="notify")
    assert "mei" == play.ledger.paused_by
    assert POLICIES[End.BAD_CALL].remedy.format(executor="rehearsal") == play.ledger.remedy


def test_a_program_that_is_not_there_pauses_the_project_before_it_ran() -> None:
    """Repeating the start would find nothing else."""
    play = Playbook(track_at("bdd")).turn()
    play.given(SpawnRefused(dispatch="d1", error="ENOENT: program 'claude'", end=End.MISSING_BINARY))
    play.expect(status=Status.PENDING, attempt=1, result="blocked", orders="notify")
    assert "handoffd: rehearsal is not to be found" == play.ledger.paused_by
    assert "the executor could not be started: ENOENT: program 'claude'" == play.state.last_error


@pytest.mark.parametrize("status", [Status.PENDING, Status.PASS, Status.FAILING])
def test_an_executor_without_a_definition_pauses_where_it_would_have_been_dispatched(status: Status) -> None:
    """The settings are at fault, not the story."""
    failed = DispatchFailed(code="UNKNOWN_EXECUTOR", message="no executor 'x y'", executor="x y")
    play = Playbook(track_at("bdd", status)).given(replace(failed, end=End.MISSING_BINARY))
    play.expect(status=Status.PENDING, result="blocked", orders="notify")
    assert ("sdd-delta", 1) == (play.state.step, play.state.attempt) or status is not Status.PASS
    assert POLICIES[End.MISSING_BINARY].remedy.format(executor="'x y'") == play.ledger.remedy
    assert "it could not be dispatched: no executor 'x y'" == play.state.last_error


# --- free repetitions -------------------------------------------------------------------------------
def test_a_crash_is_repeated_once_and_then_counts() -> None:
    """A second one in a row is more likely to be the work's fault."""
    play = ends(Playbook(track_at("bdd")).turn(), End.CRASH, code=None, signal=11)
    play.expect(status=Status.PENDING, attempt=1, result="accepted", orders="")
    assert (Ground(rule="ends.crash.free", value="1 of 1"),) == play.decision.grounds
    ends(play.turn(), End.CRASH, code=None, signal=11)
    play.expect(status=Status.FAILING, attempt=1, last_error="killed by signal 11, without a hand-off")
    assert (Ground(rule="ends.crash", value="failing"),) == play.decision.grounds
    play.turn().expect(attempt=2)
    assert 0 == play.ledger.free_repeats


def test_a_want_of_memory_is_repeated_once_and_then_pauses() -> None:
    """The machine has too little, or too much runs at once; a person must look."""
    play = ends(Playbook(track_at("bdd")).turn(), End.OUT_OF_MEMORY).expect(status=Status.PENDING)
    assert not play.ledger.paused_by
    ends(play.turn(), End.OUT_OF_MEMORY).expect(status=Status.PENDING, attempt=1, result="blocked")
    pause = ("handoffd: rehearsal ran out of memory", "handoffd doctor")
    assert pause == (play.ledger.paused_by, play.ledger.remedy)
    ends(play.given(Resumed()).turn(), End.OUT_OF_MEMORY)
    assert play.ledger.paused_by is None, "with the resume the free repetition is there again"


def test_a_run_that_met_its_own_limit_is_reported_as_that() -> None:
    """Once it may have been chance; then a person raises the limit, or the work has to become smaller."""
    limit = Footprint(memory_peak=4 << 30, memory_max=4 << 30, memory_kills=1)
    play = ends(Playbook(track_at("bdd")).turn(), End.MEMORY_LIMIT, code=None, signal=9, footprint=limit)
    play.expect(status=Status.PENDING, attempt=1)
    ends(play.turn(), End.MEMORY_LIMIT, code=None, signal=9, footprint=limit)
    why = "ended by the kernel at its memory limit (execute.memory_max: 4 GiB), without a hand-off"
    play.expect(status=Status.PENDING, attempt=1, result="blocked", last_error=why)
    assert "handoffd: rehearsal needs more memory than execute.memory_max allows" == play.ledger.paused_by
    assert "handoffd config show" == play.ledger.remedy


def test_the_error_of_an_agent_that_went_on_after_its_limit_names_that() -> None:
    """The kernel ends the largest process, which may be a compiler that the agent has started."""
    limit = Footprint(memory_max=1536 << 20, memory_kills=2, tasks_max=64, tasks_refused=1)
    ends(Playbook(dispatched("bdd")), End.FAILED, footprint=limit).expect(
        status=Status.FAILING,
        last_error="exited with code 1; the kernel ended 2 processes of it at its memory limit"
        " (execute.memory_max: 1.5 GiB), and it may not have more processes and threads"
        " (execute.tasks_max: 64), without a hand-off",
    )


def test_no_time_ends_the_pause_after_a_limit_of_ours() -> None:
    """Unlike the machine's, it does not pass by itself; another setting is another sign, which ends it."""
    play = Playbook(track_at("impl", attempt=2))
    for _ in range(2):
        play.turn().exits(code=None, signal=9, end=End.MEMORY_LIMIT, standby=REMOTE)
    (fault,) = play.ledger.faults
    assert fault.again_at is None
    play.given(CauseEnded(executors=(fault.executor,)))
    assert (None, ()) == (play.ledger.paused_by, play.ledger.faults)


def test_free_repetitions_of_all_kinds_are_one_row() -> None:
    """So that kinds in turn do not repeat an attempt without end; an error without a class has none."""
    failed = ends(Playbook(dispatched("bdd")), End.FAILED).expect(status=Status.FAILING)
    failed.expect(last_error="exited with code 1, without a hand-off")
    play = Playbook(track_at("bdd")).turn().exits(code=None, by="lost").turn()
    ends(play, End.CRASH, code=None, signal=11).expect(status=Status.FAILING)


@pytest.mark.parametrize("end", list(End))
def test_a_valid_hand_off_always_wins(end: End) -> None:
    """The work was done and handed over, however the process ended after it."""
    play = ends(Playbook(dispatched("bdd")), end, found(handoff()))
    play.expect(status=Status.PASS)
    assert play.ledger.paused_by is None


# --- asked again for just the hand-off --------------------------------------------------------------
@pytest.mark.parametrize(
    ("reading", "problem"),
    [
        (Absent(), "exited with code 0, without a hand-off"),
        (Stale(why="it names attempt 9"), "exited with code 0, only a stale hand-off: it names attempt 9"),
        (HALF, str(HALF.problem)),
    ],
)
def test_a_clean_end_without_a_valid_hand_off_is_asked_for_just_that(reading: Reading, problem: str) -> None:
    """The same attempt, under a new dispatch and for five minutes at most."""
    play = ends(Playbook(dispatched("impl", attempt=2)), End.CLEAN, reading)
    play.expect(status=Status.PENDING, attempt=2, last_error=problem, orders="")
    assert Asking(step="impl", attempt=2, problem=problem) == play.ledger.asking
    play.turn(baseline=True).expect(status=Status.RUNNING, attempt=2, orders="spawn", result="dispatched")
    assert "handoff" == play.dispatch.ask
    (order,) = play.decision.effects
    assert isinstance(order, Spawn)
    assert (5, None) == (order.timeout_min, order.session)


def test_the_hand_off_that_was_asked_for_is_checked_like_any_other() -> None:
    """The story goes on with the first attempt, whose tests are measured."""
    play = ends(Playbook(track_at("impl")).turn(), End.CLEAN).turn()
    play.hands_over().expect(orders="run_checks").checked(green()).expect(status=Status.PASS, attempt=1)
    assert play.ledger.asking is None
    assert {"impl": 1} == play.ledger.facts.attempts


def test_who_is_asked_in_vain_has_failed_and_the_error_says_both() -> None:
    """The attempt counts once; the next one may be asked again."""
    play = ends(Playbook(track_at("bdd")).turn(), End.CLEAN, HALF)
    ends(play.turn(), End.CLEAN).expect(
        status=Status.FAILING, attempt=1,
        last_error=f"{HALF.problem}; asked again for just that: exited with code 0, without a hand-off",
    )  # fmt: skip
    assert play.ledger.asking is None
    ends(play.turn().expect(attempt=2), End.CLEAN).expect(status=Status.PENDING, attempt=2)


@pytest.mark.parametrize("by", ["deadline", "stop"])
def test_who_is_asked_and_takes_too_long_has_failed(by: str) -> None:
    """No person is called for a hand-off that did not come in time: the attempt has failed."""
    play = ends(Playbook(track_at("bdd")).turn(), End.CLEAN).turn().runs()
    if by == "stop":
        play.given(DeadlinePassed(dispatch=play.dispatch.id, elapsed_min=5.1))
    play.exits(code=None, signal=15, by=by).expect(status=Status.FAILING, orders="")
    assert "no hand-off was there when the time for it was over" in str(play.state.last_error)


def test_what_interrupts_the_question_does_not_answer_it() -> None:
    """Stopped, vanished, logged out: it is asked again, in as many words."""
    play = ends(Playbook(track_at("bdd")).turn(), End.CLEAN).turn().runs()
    play.given(Interrupted()).exits(code=None, signal=15, by="stop").turn()
    assert "handoff" == play.dispatch.ask
    play.exits(code=None, by="lost").turn()
    assert "handoff" == play.dispatch.ask
    ends(play, End.LOGGED_OUT).given(Resumed()).turn()
    assert "handoff" == play.dispatch.ask


def test_a_person_who_asks_for_another_try_gets_the_whole_step() -> None:
    """They have looked, and want it done again."""
    play = ends(Playbook(track_at("bdd")).turn(), End.CLEAN).given(Retried()).turn()
    assert "step" == play.dispatch.ask


@pytest.mark.parametrize("exit_fields", [{"end": None}, {"end": None, "by": "stop", "signal": 15}])
def test_an_end_without_a_class_is_not_asked_for_its_hand_off(exit_fields: dict[str, object]) -> None:
    """Journals of older releases, also of what was ended from outside, are judged as they always were."""
    play = Playbook(dispatched("bdd")).exits(**{"code": None, **exit_fields})  # type: ignore[arg-type]
    play.expect(status=Status.FAILING)


# --- sessions ---------------------------------------------------------------------------------------------
def fails_in(play: Playbook, session: str | None) -> Playbook:
    """Hand over a failure, from a run that had a session."""
    return play.exits(found(handoff(Status.FAILING)), session=session, end=End.CLEAN)


def test_a_retry_continues_the_session_of_its_step_and_executor() -> None:
    """If the turn says that the executor can and shall."""
    play = fails_in(Playbook(track_at("bdd")).turn(), "s1")
    assert AgentSession(step="bdd", executor="rehearsal", id="s1") == play.ledger.session
    play.turn(resume=True)
    (order,) = play.decision.effects
    assert isinstance(order, Spawn)
    assert ("s1", "s1", 5) == (play.dispatch.session, order.session, order.timeout_min)


def test_a_session_is_continued_by_its_own_step_and_executor_alone() -> None:
    """Another executor cannot read it, another step has its results in files, and `fresh` means fresh."""
    play = fails_in(Playbook(track_at("bdd")).turn(), "s1")
    other, fresh = Playbook(play.track).turn(resume=True, executor="codex"), Playbook(play.track).turn()
    assert (None, None) == (other.dispatch.session, fresh.dispatch.session)
    play = Playbook(track_at("bdd")).turn().exits(found(handoff()), session="s1").turn(resume=True)
    assert ("sdd-delta", None, None) == (play.state.step, play.dispatch.session, play.ledger.session)


def test_a_run_that_names_no_session_leaves_the_one_it_continued() -> None:
    """It may have ended before it could name it."""
    play = fails_in(Playbook(track_at("bdd")).turn(), "s1").turn(resume=True)
    play.exits(code=None, by="lost").turn(resume=True)
    assert "s1" == play.dispatch.session


def test_what_a_session_has_used_is_the_sum_of_its_runs() -> None:
    """A run that said nothing has added nothing; another session begins at what its first run used."""
    play = Playbook(track_at("impl")).turn()
    for session, usage, total in (("s1", 5, 5), ("s1", 7, 12), (None, None, 12), ("s2", 3, 3)):
        used = None if usage is None else Usage(input_tokens=usage)
        play.exits(by="lost", code=None, session=session, usage=used)
        assert play.ledger.session is not None
        assert Usage(input_tokens=total) == play.ledger.session.used
        play.given(Retried()).turn(resume=True)


def test_a_session_that_is_gone_is_begun_anew_at_no_cost() -> None:
    """The next run is fresh; a run that continued none and reports this end has failed."""
    play = fails_in(Playbook(track_at("bdd")).turn(), "s1").turn(resume=True)
    ends(play, End.SESSION_GONE).expect(status=Status.PENDING, attempt=2).turn(resume=True)
    assert play.dispatch.session is None
    ends(play, End.SESSION_GONE).expect(status=Status.FAILING, attempt=2)


@pytest.mark.parametrize(
    ("end", "unfinished"),
    [
        (End.CRASH, None),  # a session that has become too long fails each time it is continued
        (End.FAILED, None),
        (End.OUT_OF_MEMORY, None),
        (End.LIMIT, True),  # nothing is wrong with the work: it only has to go on
        (End.OVERLOAD, True),
        (End.CLEAN, False),
    ],
)
def test_a_session_is_continued_unless_it_may_be_the_cause(end: End, unfinished: bool | None) -> None:
    """One that a limit or a stall cut short is unfinished."""
    session = ends(Playbook(dispatched("bdd")), end, session="s1").ledger.session
    assert unfinished == (None if session is None else session.unfinished)

    stalled = Playbook(dispatched("bdd")).given(STALLED).exits(by="stop", session="s1").ledger.session
    assert stalled is not None
    assert stalled.unfinished


def test_the_hand_off_is_asked_for_in_the_session_that_did_the_work() -> None:
    """It knows what it did."""
    play = ends(Playbook(dispatched("bdd")), End.CLEAN, session="s1").turn(resume=True)
    assert ("handoff", "s1") == (play.dispatch.ask, play.dispatch.session)


def test_a_baseline_comes_before_the_session() -> None:
    """Measured first, and then the same dispatch is started."""
    rules = with_rule("bdd", tests="red")
    session = AgentSession(step="bdd", executor="rehearsal", id="s1")
    play = Playbook(track_at("bdd").with_ledger(session=session), rules).turn(resume=True, baseline=True)
    play.expect(orders="measure_baseline")
    assert "s1" == play.dispatch.session
    assert DISPATCH != play.dispatch.id


# --- faults that are looked after -----------------------------------------------------------------
def faulty(standby: Standby, end: End = End.LOGGED_OUT) -> Playbook:
    """Return a track whose executor could not be used, and what is known about the others."""
    play = Playbook(dispatched("impl", attempt=2))
    return play.exits(code=1, end=end, tail="bad key", standby=standby, after_min=0)


ALONE = Standby(sign="a")


def test_the_next_executor_that_is_named_takes_over_with_a_notice() -> None:
    """Nothing is paused, and no person has to act."""
    play = faulty(Standby(sign="a", instead="codex"))
    play.expect(status=Status.PENDING, attempt=2, orders="notify")
    assert (None, False) == (play.ledger.paused_by, play.ledger.self_paused)
    (notice,) = play.notices
    assert "warning" == notice.notice
    assert "rehearsal is not logged in: codex takes over at impl" in notice.text
    assert ["rehearsal"] == [fault.executor for fault in play.ledger.faults]


def test_a_pause_names_each_executor_with_its_reason() -> None:
    """Only when no named executor is left."""
    gone = Fault(executor="codex", end=End.MISSING_BINARY, since=Playbook(dispatched("impl")).now)
    play = faulty(Standby(sign="a", lacking=(gone,)))
    said = "handoffd: codex is not to be found; rehearsal is not logged in"
    assert (said, True) == (play.ledger.paused_by, play.ledger.self_paused)
    assert "blocked" == play.notices[-1].notice


@pytest.mark.parametrize(
    "lifts",
    [
        ExecutorChosen(executor=("codex",)),
        Retried(),
        Started(story="US-9", force=True),
        Started(story="CUSTOM-1", task_type="custom", instruction="x"),
        CauseEnded(executors=("rehearsal",)),
    ],
    ids=lambda event: event.kind,
)
def test_a_pause_of_our_own_ends_with_its_cause(lifts: Event) -> None:
    """Another executor, another story, a person's retry, or the fault is over: the next turn dispatches."""
    play = faulty(ALONE).given(lifts)
    ledger = play.ledger
    assert (None, None, False, ()) == (ledger.paused_by, ledger.remedy, ledger.self_paused, ledger.faults)
    play.turn().expect(status=Status.RUNNING)


REMOTE = Standby(sign="a", tries_again=True)

TRIAL = CauseEnded(executors=("rehearsal",), trial=True)


def refused_again(play: Playbook) -> Playbook:
    """Try again after a pause of handoffd's own, and meet the same fault."""
    play.given(TRIAL).expect(status=Status.PENDING, orders="").turn().runs()
    return play.exits(code=1, end=End.LOGGED_OUT, standby=REMOTE, seconds=0.0)


def test_a_fault_that_only_the_provider_sees_is_tried_ever_more_rarely() -> None:
    """The pause goes on with the notice there is, which waits meanwhile, and no attempt is spent."""
    play = faulty(REMOTE)
    pauses = []
    for _ in range(6):
        (fault,) = play.ledger.faults
        assert fault.again_at is not None
        pauses.append((fault.again_at - play.now).total_seconds() / 60)
        assert not fault.is_due(fault.again_at - timedelta(seconds=1))
        assert fault.is_due(fault.again_at)
        assert still_waits(play.track, "US-1", "impl")
        refused_again(play).expect(status=Status.PENDING, attempt=2, orders="", result="blocked")
        assert "handoffd: rehearsal is not logged in" == play.ledger.paused_by
    assert [0.5, 2, 10, 30, 60, 60] == pauses
    assert T0 == play.ledger.faults[0].since
    play.refused(CauseEnded(executors=("codex",), trial=True), "STALE_FACT")


def test_a_fault_is_not_over_before_its_trial_has_an_outcome() -> None:
    """A hand-off, a run of a minute or another end shows that it is; an interruption shows nothing."""
    play = faulty(REMOTE).given(TRIAL).turn().runs()
    play.refused(TRIAL, "STALE_FACT")
    assert still_waits(play.track, "US-1", "impl")
    running = play.track
    play.given(Interrupted()).exits(code=None, signal=15, by="stop", seconds=5.0)
    assert still_waits(play.track, "US-1", "impl")

    for end in (End.CLEAN, End.LIMIT, End.FAILED):
        play.track = running
        ends(play, end)
        assert ((), None) == (play.ledger.faults, play.ledger.remedy)
    play.track = running
    play.given(CauseEnded(executors=("rehearsal",)))
    assert not still_waits(play.track, "US-1", "impl")
    assert ((), None) == (play.ledger.faults, play.ledger.remedy)
    play.track = running
    play.exits(code=1, end=End.LOGGED_OUT, seconds=61.0)
    assert ["blocked"] == [notice.notice for notice in play.notices], "it had worked: that is news"


@pytest.mark.parametrize("event", [ExecutorChosen(executor=("codex",)), Retried()])
def test_a_person_who_acts_before_the_trial_leaves_nothing_of_the_pause(event: Event) -> None:
    """Nothing waits for a person any more."""
    play = faulty(REMOTE).given(TRIAL).given(event)
    assert ((), None) == (play.ledger.faults, play.ledger.remedy)
    assert not still_waits(play.track, "US-1", "impl")


def test_an_executor_that_another_one_stands_in_for_is_tried_again_in_silence() -> None:
    """There was one notice of who took over."""
    instead = replace(REMOTE, instead="codex")
    play = faulty(instead).given(TRIAL).turn().exits(code=1, end=End.LOGGED_OUT, standby=instead, after_min=0)
    play.expect(status=Status.PENDING, attempt=2, orders="")
    assert 2 == play.ledger.faults[0].answers


@pytest.mark.parametrize("end", [End.MISSING_BINARY, End.BAD_CALL])
def test_a_fault_of_this_machine_is_tried_when_the_machine_has_changed(end: End) -> None:
    """Nothing else repairs it."""
    (fault,) = faulty(REMOTE, end).ledger.faults
    assert fault.again_at is None


@pytest.mark.parametrize("event", [ExecutorChosen(executor=("codex",)), CauseEnded(executors=("rehearsal",))])
def test_a_pause_by_a_person_stays_until_a_person_lifts_it(event: Event) -> None:
    """Also where an executor was at fault meanwhile, or handoffd had paused it before that."""
    meanwhile = Playbook(dispatched("impl")).given(Paused(by="mei"))
    meanwhile.exits(code=1, end=End.LOGGED_OUT, standby=ALONE)
    for play in (meanwhile, faulty(ALONE).given(Paused(by="mei"))):
        assert still_waits(play.track, "US-1", "impl")
        assert "mei" == play.given(event).ledger.paused_by
        assert (None, ()) == (play.ledger.remedy, play.ledger.faults)
        assert not still_waits(play.track, "US-1", "impl"), "the cause that the notice names is over"
        assert command("resume") == next_command(play.track, play.rules)


def test_under_a_pause_by_a_person_nothing_is_tried_again() -> None:
    """A change on this machine is still noticed."""
    play = faulty(REMOTE)
    assert play.ledger.faults == play.track.passing_faults
    (fault,) = play.given(Paused(by="mei")).track.passing_faults
    assert (None, "a") == (fault.again_at, fault.sign)


def test_a_fault_of_an_account_that_works_elsewhere_is_tried_sooner() -> None:
    """Not at once each time: this project may have a key of its own, which others say nothing of."""
    (fault,) = refused_again(faulty(REMOTE)).ledger.faults
    assert fault.met_at is not None
    assert (timedelta(minutes=2), False) == (fault.again_at - fault.met_at, fault.trying)  # type: ignore[operator]
    soon = fault.met_at + timedelta(seconds=12)
    assert fault.is_due(soon, worked=fault.met_at + timedelta(seconds=1))
    assert not fault.is_due(soon - timedelta(seconds=1), worked=fault.met_at + timedelta(seconds=1))
    assert not fault.is_due(soon, worked=fault.met_at), "that run may have begun while the key was valid"
    assert not fault.is_due(soon)


def test_a_want_of_memory_is_tried_again_a_few_times() -> None:
    """It may pass by itself, and may come from the work, which each trial does again."""
    play = Playbook(track_at("impl", attempt=2))
    again = []
    for _ in range(6):
        for _ in range(2):  # each time it is repeated once at no cost
            play.turn().exits(code=None, signal=9, end=End.OUT_OF_MEMORY, standby=REMOTE, after_min=0)
        (fault,) = play.ledger.faults
        again.append(fault.again_at is not None)
        assert not fault.is_due(play.now, worked=play.now + timedelta(minutes=1)), "no account gives memory"
        play.given(TRIAL)
    assert [True] * 5 + [False] == again


def test_the_end_of_an_unknown_cause_changes_nothing() -> None:
    """The poller may have seen it twice."""
    play = faulty(ALONE).given(CauseEnded(executors=("codex",)))
    assert play.ledger.self_paused


# --- stalls ------------------------------------------------------------------------------------------
QUIET = ExecutorQuiet(
    dispatch=DISPATCH,
    silence=Silence(quiet_min=5.2, limit_min=10, output_bytes=41_213, cpu_s=0.31, written_bytes=96),
)

STALLED = ExecutorStalled(
    dispatch=DISPATCH,
    silence=Silence(quiet_min=10.1, limit_min=10, output_bytes=41_213, cpu_s=0.64, written_bytes=192),
)

SIGNS = "no output (after 41,213 bytes), 0.6 s of processor time, 192 bytes written"


def test_people_are_warned_while_there_is_time_to_look() -> None:
    """The notice says what was checked, what will happen, and how to look; the attempt goes on."""
    play = Playbook(dispatched("bdd")).given(QUIET).expect(status=Status.RUNNING, orders="notify")

    (warning,) = play.notices
    assert ("warning", "handoffd log {project}") == (warning.notice, warning.action)
    assert "bdd: rehearsal shows no sign of life for 5.2 min" == warning.text
    assert str(warning.why).endswith("it is ended after 10 min of that")
    assert Phase.EXECUTING is play.dispatch.phase


def test_a_stalled_executor_is_ended_and_its_attempt_has_failed() -> None:
    """The error names the signs that were checked, and its last output."""
    play = Playbook(dispatched("bdd")).given(STALLED)
    assert (StopTree(dispatch=DISPATCH, why=StopReason.STALL),) == play.decision.effects
    assert ["settings.execute.stall_min"] == [ground.rule for ground in play.decision.grounds]

    play.exits(Absent(), code=None, signal=15, by="stop", tail="waiting for the model\n")
    error = f"ended without a hand-off, it showed no activity for 10.1 min: {SIGNS} (waiting for the model)"
    play.expect(status=Status.FAILING, last_error=error).turn().expect(attempt=2)


def test_a_stalled_executor_is_judged_by_what_it_left() -> None:
    """Its hand-off counts, and so does an end by itself in that moment; a lost one is not repeated."""
    play = Playbook(dispatched("bdd")).given(STALLED)
    play.exits(found(handoff()), code=None, signal=15, by="stop").expect(status=Status.PASS, last_error=None)
    play = Playbook(dispatched("bdd")).given(STALLED).exits(Absent(), code=3)
    play.expect(status=Status.FAILING, last_error="exited with code 3, without a hand-off")
    play = Playbook(dispatched("bdd")).given(STALLED).exits(Absent(), code=None, by="lost")
    play.expect(status=Status.FAILING)


def test_a_person_may_abort_what_is_being_ended() -> None:
    """As with every other reason to end it."""
    play = Playbook(dispatched("bdd")).given(STALLED).given(Aborted(by="mei")).expect(orders="stop_tree")
    play.exits(Absent(), code=None, signal=9, by="stop")
    play.expect(status=Status.NEEDS_HUMAN, last_error="aborted by mei")


@pytest.mark.parametrize("phase", [Phase.BASELINE, Phase.STOPPING, Phase.CHECKING])
def test_silence_is_asked_of_the_executor_only(phase: Phase) -> None:
    """Checks have limits of their own, and what is being ended already is."""
    play = Playbook(dispatched("impl", phase))
    play.refused(QUIET, "STALE_FACT").refused(STALLED, "STALE_FACT")
