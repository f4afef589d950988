"""From the end of an executor to the verdict: who ended it, what it left, what that costs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

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
    mark,
    red,
    track_at,
    with_rule,
)

from handoffd.engine.decision import RunChecks, StopTree
from handoffd.engine.events import (
    Aborted,
    Approved,
    BaselineMeasured,
    ChecksFinished,
    DeadlinePassed,
    Event,
    ExecutorExited,
    ExecutorStarted,
    HandoffArrived,
    HandoffSettled,
    Interrupted,
    Noted,
    Retried,
    SpawnRefused,
    Started,
)
from handoffd.engine.run import FREE_REPEATS, Exit, PostCheck
from handoffd.engine.track import Ledger, Phase, StopReason, Track
from handoffd.errors import Problem
from handoffd.protocol.handoff import Absent, Found, Handoff, Malformed, Stale
from handoffd.protocol.state import Reason, Status, TestCounts

OLD_FORMAT = Found(handoff=Handoff(status=None), source="old-format")


def test_a_hand_off_that_is_gone_again_after_we_ended_its_executor_costs_no_attempt() -> None:
    """We ended it for the hand-off's sake, so the attempt is repeated under its number."""
    play = Playbook(dispatched("bdd")).given(HandoffSettled(dispatch=DISPATCH, quiet_s=20))
    play.exits(Absent(), by="stop").expect(status=Status.PENDING, attempt=1, orders="")
    assert 1 == play.ledger.free_repeats


def test_an_executor_that_was_ended_from_outside_costs_no_attempt() -> None:
    """The machine was shut down; what it handed over before that counts all the same."""
    play = Playbook(dispatched("bdd")).exits(Absent(), code=None, signal=15, by="outside")
    play.expect(status=Status.PENDING, attempt=1, orders="")
    assert 1 == play.ledger.free_repeats
    handed = Playbook(dispatched("bdd")).exits(OLD_FORMAT, code=None, signal=15, by="outside")
    handed.expect(status=Status.PASS)


# --- what an executor leaves ----------------------------------------------------------------------
def test_a_hand_off_is_the_attempts_result() -> None:
    """Its fields go into STATE, its identity is remembered, and the dispatch is over."""
    play = Playbook(dispatched("bdd")).hands_over(
        Status.FAILING, reason=Reason.NFR_MISSING, failing_tests=("a",), files_changed=("b.md",), error="odd"
    )
    play.expect(
        status=Status.FAILING, reason=Reason.NFR_MISSING, failing_tests=("a",), files_changed=("b.md",),
        last_error="odd", completed_at=play.now, result="accepted", orders="",
    )  # fmt: skip
    assert play.ledger.dispatch is None
    assert mark(1000) == play.ledger.last_mark


@pytest.mark.parametrize(
    ("exit_fields", "told"),
    [
        ({"code": 1, "tail": "one\n\ntwo\n"}, "exited with code 1 (one | two), without a hand-off"),
        ({"code": 0}, "exited with code 0, without a hand-off"),
        ({"code": None, "signal": 9}, "killed by signal 9, without a hand-off"),
    ],
)
def test_an_executor_that_leaves_nothing_has_failed(exit_fields: dict[str, Any], told: str) -> None:
    """The attempt counts, and the error says how the process ended with its last lines."""
    play = Playbook(dispatched("bdd")).exits(**exit_fields)
    play.expect(status=Status.FAILING, last_error=told).turn().expect(attempt=2)


def test_a_stale_hand_off_does_not_count() -> None:
    """One that was there before, or names another attempt; the error says why."""
    play = Playbook(dispatched("bdd")).exits(Stale(why="it names attempt 3")).expect(status=Status.FAILING)
    play.expect(last_error="exited with code 0, only a stale hand-off: it names attempt 3")


def test_an_unreadable_hand_off_fails_with_its_line() -> None:
    """Half-written front matter is the attempt's failure; the error names the place."""
    problem = Problem(file=".ai/HANDOFF.md", line=7, message="the front matter is never closed")
    play = Playbook(dispatched("bdd")).exits(Malformed(problem=problem))
    play.expect(status=Status.FAILING, last_error=str(problem))
    assert "7" in str(play.state.last_error)


@pytest.mark.parametrize(
    ("exit_fields", "status"),
    [
        ({"code": 0}, Status.PASS),
        ({"code": 1}, Status.FAILING),
        ({"code": 0, "stream_error": True}, Status.FAILING),
        ({"code": None, "signal": 15, "by": "stop"}, Status.PASS),
    ],
)
def test_the_exit_decides_a_hand_off_of_the_old_format(exit_fields: dict[str, Any], status: Status) -> None:
    """No front matter and no marker: code 0 and no error in the stream is a pass, else it has failed."""
    Playbook(dispatched("bdd")).exits(OLD_FORMAT, **exit_fields).expect(status=status)


def test_an_executor_that_asks_for_a_person_gets_one() -> None:
    """Nothing is measured, and the notice has the question."""
    play = Playbook(dispatched("impl")).hands_over(Status.NEEDS_HUMAN, error="two specs disagree")
    play.expect(result="needs_human", orders="notify")
    play.expect(status=Status.NEEDS_HUMAN, last_error="two specs disagree")
    play.turn().expect(result="needs_human", orders="")


def test_a_process_that_vanished_costs_no_attempt() -> None:
    """How it ended is unknown (the machine went down): the attempt is made again, unless it handed over."""
    Playbook(dispatched("bdd")).exits(found(handoff()), code=None, by="lost").expect(status=Status.PASS)
    play = Playbook(dispatched("bdd", attempt=2)).exits(code=None, by="lost")
    play.expect(status=Status.PENDING, attempt=2, result="accepted")
    play.turn().expect(attempt=2, result="dispatched")


# --- faults of the environment --------------------------------------------------------------------
def test_faults_of_the_environment_cost_no_attempt_and_are_not_repeated_for_ever() -> None:
    """Three free repetitions in a row; the fault after them asks a person, whose retry begins anew."""
    play = Playbook(track_at("bdd"))
    for repetition in range(1, FREE_REPEATS + 1):
        play.turn().given(SpawnRefused(dispatch=play.dispatch.id, error="no such file: claude"))
        play.expect(status=Status.PENDING, attempt=1, result="accepted", orders="", completed_at=play.now)
        assert repetition == play.ledger.free_repeats

    play.turn().given(SpawnRefused(dispatch=play.dispatch.id, error="no such file: claude"))
    play.expect(status=Status.NEEDS_HUMAN, attempt=1, orders="notify", result="needs_human")
    assert "no such file: claude" in play.notices[0].text
    play.given(Retried())
    assert 0 == play.ledger.free_repeats


def test_free_repetitions_are_counted_in_a_row() -> None:
    """An attempt that was judged ends the row."""
    play = Playbook(track_at("bdd")).turn().exits(code=None, by="lost").turn()
    assert 1 == play.ledger.free_repeats
    play.fails()
    assert 0 == play.ledger.free_repeats


def test_our_own_interruptions_never_use_up_the_free_repetitions() -> None:
    """However often the daemon stops its executors, the attempt is only made again."""
    play = Playbook(track_at("bdd").with_ledger(free_repeats=FREE_REPEATS))
    for _ in range(5):
        play.turn().runs().given(Interrupted()).exits(code=None, signal=15, by="stop")
        play.expect(status=Status.PENDING, attempt=1)
    assert FREE_REPEATS == play.ledger.free_repeats


# --- who ends it ----------------------------------------------------------------------------------
def test_an_interruption_stops_the_tree_and_costs_no_attempt() -> None:
    """`stop --executors` is not a failure of the agent; a hand-off that was finished before it counts."""
    play = Playbook(dispatched("bdd", attempt=2)).given(Interrupted(by="mei"))
    assert (StopTree(dispatch=DISPATCH, why=StopReason.SHUTDOWN),) == play.decision.effects
    play.expect(status=Status.RUNNING).refused(Interrupted(), "NOTHING_RUNS")
    play.exits(code=None, signal=15, by="stop").expect(status=Status.PENDING, attempt=2)
    handed = Playbook(dispatched("bdd")).given(Interrupted())
    handed.exits(found(handoff()), code=None, signal=15, by="stop").expect(status=Status.PASS)


def test_a_deadline_stops_the_tree_before_the_timeout() -> None:
    """The attempt is over when its last process is gone, not before."""
    play = Playbook(dispatched("impl")).given(DeadlinePassed(dispatch=DISPATCH, elapsed_min=10.4))
    play.expect(status=Status.RUNNING, orders="stop_tree")
    assert Phase.STOPPING == play.dispatch.phase
    play.exits(code=None, signal=15, by="stop", after_min=10.6)
    play.expect(
        status=Status.TIMEOUT, result="timeout", orders="notify", completed_at=play.now, attempt=1,
        last_error="impl ran out of time after 11 min (limit 10 min)",
    )  # fmt: skip
    assert "timeout" == play.notices[0].notice


def test_a_timeout_quotes_what_the_agent_said_last() -> None:
    """Where people look for why: in last_error and in the event. The notice says it once."""
    tail = "it said: Now the tests.\nit called Bash: sleep 999"
    play = Playbook(dispatched("impl")).exits(code=None, signal=15, by="deadline", after_min=10, tail=tail)
    quoted = "(it said: Now the tests. | it called Bash: sleep 999)"
    play.expect(result="timeout", orders="notify")  # by the shim, even while no daemon is there
    error = f"impl ran out of time after 10 min (limit 10 min) {quoted}"
    play.expect(status=Status.TIMEOUT, last_error=error)
    notice = play.notices[0]
    assert f"no valid hand-off was there at the deadline {quoted}" == play.decision.why == notice.why
    assert "impl ran out of time after 10 min (limit 10 min)" == notice.text


@pytest.mark.parametrize("by", ["deadline", "stop"])
def test_a_hand_off_that_is_there_at_the_deadline_counts(by: str) -> None:
    """No timeout for an attempt that handed over in time and did not leave."""
    play = Playbook(dispatched("bdd"))
    if by == "stop":
        play.given(DeadlinePassed(dispatch=DISPATCH, elapsed_min=5.1))
    play.exits(found(handoff()), code=None, signal=15, by=by).expect(status=Status.PASS, last_error=None)


def test_a_second_stop_is_refused_but_an_abort_always_heard() -> None:
    """The ladder is climbed once; a person's abort changes the verdict on the attempt."""
    play = Playbook(dispatched("bdd")).given(HandoffSettled(dispatch=DISPATCH, quiet_s=20))
    play.expect(orders="stop_tree")
    play.refused(DeadlinePassed(dispatch=DISPATCH, elapsed_min=6), "STALE_FACT")
    play.given(Aborted(by="mei")).expect(orders="stop_tree").refused(Aborted(), "STOPPING")
    play.exits(found(handoff()), code=None, signal=15, by="stop")
    play.expect(status=Status.NEEDS_HUMAN, last_error="aborted by mei")
    assert play.ledger.closed


def test_a_settled_executor_is_ended_and_its_hand_off_counts() -> None:
    """It handed over and does nothing more: the tree is ended, the claim is heard."""
    play = Playbook(dispatched("bdd")).given(HandoffSettled(dispatch=DISPATCH, quiet_s=20))
    assert (StopTree(dispatch=DISPATCH, why=StopReason.SETTLED),) == play.decision.effects
    play.refused(HandoffSettled(dispatch=DISPATCH, quiet_s=40), "STALE_FACT")
    play.exits(found(handoff()), code=None, signal=2, by="stop").expect(status=Status.PASS)


ARRIVED = HandoffArrived(dispatch="e7", reading=found(handoff()), mark=mark(7))


@pytest.mark.parametrize(
    ("there", "event", "code"),
    [
        # neither a deadline nor rest ends the checks: they have limits of their own
        (dispatched("impl", Phase.BASELINE), DeadlinePassed(dispatch=DISPATCH, elapsed_min=11), "STALE_FACT"),
        (dispatched("impl", Phase.CHECKING), DeadlinePassed(dispatch=DISPATCH, elapsed_min=11), "STALE_FACT"),
        (dispatched("impl", Phase.BASELINE), HandoffSettled(dispatch=DISPATCH, quiet_s=20), "STALE_FACT"),
        (dispatched("impl", Phase.CHECKING), HandoffSettled(dispatch=DISPATCH, quiet_s=20), "STALE_FACT"),
        (dispatched("impl", Phase.BASELINE), Interrupted(), "NOTHING_RUNS"),
        (dispatched("impl", Phase.CHECKING), Interrupted(), "NOTHING_RUNS"),
        # a measurement cannot end an executor that still works
        (dispatched("impl"), ChecksFinished(dispatch=DISPATCH, tests=green()), "STALE_FACT"),
        # a view of a Level 1 attempt is stale once we dispatched, and does not overtake the process
        (dispatched("bdd"), ARRIVED, "STALE_FACT"),
        (dispatched("bdd"), DeadlinePassed(dispatch=None, elapsed_min=9), "STALE_FACT"),
        # Level 1 waits on when there is no hand-off
        (track_at("bdd", Status.RUNNING), replace(ARRIVED, reading=Absent()), "NO_HANDOFF"),
    ],
)
def test_a_fact_that_does_not_fit_the_attempt_is_refused(there: Track, event: Event, code: str) -> None:
    """It changes nothing."""
    Playbook(there).refused(event, code)


# --- aborts in every phase ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("phase", "ending"),
    [
        (Phase.BASELINE, BaselineMeasured(dispatch=DISPATCH)),
        (Phase.STARTING, SpawnRefused(dispatch=DISPATCH, error="?")),
        (
            Phase.EXECUTING,
            ExecutorExited(dispatch=DISPATCH, exit=Exit(signal=15, by="stop"), reading=Absent()),
        ),
        (Phase.CHECKING, ChecksFinished(dispatch=DISPATCH)),
    ],
)
def test_an_abort_waits_for_the_last_process(phase: Phase, ending: object) -> None:
    """Whatever runs is ended first; then the track is closed, with nothing dispatched any more."""
    play = Playbook(dispatched("scaffold", phase)).given(Aborted(by="mei"))
    play.expect(status=Status.RUNNING, orders="stop_tree")
    play.given(ending)  # type: ignore[arg-type]
    play.expect(status=Status.NEEDS_HUMAN, last_error="aborted by mei", result="needs_human", orders="")
    assert (None, True) == (play.ledger.dispatch, play.ledger.closed)
    play.turn().expect(result="blocked", orders="")


# --- facts that come twice ------------------------------------------------------------------------
def test_a_result_is_applied_once() -> None:
    """The end of an executor, reported again while its checks run, changes nothing."""
    play = Playbook(dispatched("impl")).hands_over().expect(orders="run_checks")
    again = ExecutorExited(dispatch=DISPATCH, exit=Exit(code=0), reading=found(handoff(Status.FAILING)))
    play.refused(again, "STALE_FACT").refused(SpawnRefused(dispatch=DISPATCH, error="?"), "STALE_FACT")
    play.checked(green()).expect(status=Status.PASS)


# --- notes meanwhile ------------------------------------------------------------------------------
def test_a_note_given_meanwhile_is_in_the_very_next_prompt_however_the_attempt_ends() -> None:
    """Interrupted, vanished, refused, out of time or unmeasurable: the note is not one prompt late."""
    endings: dict[str, Callable[[Playbook], Playbook]] = {
        "vanished": lambda play: play.exits(code=None, by="lost"),
        "refused": lambda play: play.given(SpawnRefused(dispatch="d1", error="?")),
        "out of time": lambda play: play.exits(code=None, signal=9, by="deadline"),
        "aborted": lambda play: play.given(Aborted()).exits(code=None, signal=15, by="stop"),
        "judged": lambda play: play.exits(),
    }
    for name, ending in endings.items():
        play = Playbook(track_at("bdd", human_note="One.")).turn().given(Noted(text="Two."))
        ending(play)
        assert (name, "One.\n\nTwo.") == (name, play.state.human_note)
        assert play.ledger.next_note is None

    play = Playbook(track_at("scaffold")).turn(baseline=True).given(Noted(text="Two."))
    play.given(BaselineMeasured(dispatch="d1", fault="pytest: not found")).expect(human_note="Two.")


# --- dispatches that are not ours -----------------------------------------------------------------
def arrives(play: Playbook, reading: Found | Absent, number: int = 7) -> Playbook:
    """Report a settled hand-off of an external attempt."""
    return play.given(HandoffArrived(dispatch=f"e{number}", reading=reading, mark=mark(number)))


def test_a_hand_off_at_level_1_is_judged_like_any_other() -> None:
    """A person's attempt passes without an executor of ours, also in the old format, without an exit code."""
    arrives(Playbook(track_at("bdd", Status.RUNNING)), OLD_FORMAT).expect(status=Status.PASS)
    play = arrives(Playbook(track_at("bdd", Status.RUNNING)), found(handoff(files_changed=("a.md",))))
    play.expect(status=Status.PASS, files_changed=("a.md",), orders="")
    assert (None, mark(7)) == (play.ledger.dispatch, play.ledger.last_mark)
    assert ("a.md",) == play.ledger.facts.files


def test_a_hand_off_at_level_1_is_measured_where_the_step_asks_for_it() -> None:
    """Claims are checked, also external ones; nothing can arrive a second time meanwhile."""
    play = arrives(Playbook(track_at("impl", Status.RUNNING)), found(handoff())).expect(orders="run_checks")
    assert ("e7", "external") == (play.dispatch.id, play.dispatch.executor)
    play.refused(HandoffArrived(dispatch="e8", reading=found(handoff()), mark=mark(8)), "STALE_FACT")
    play.checked(red("t.py::old")).expect(status=Status.FAILING)


def test_a_green_step_is_held_to_the_red_step_that_passed_last() -> None:
    """One whose post_check fails, or whose tests an earlier release measured, does not count."""
    rules = with_rule("scaffold", post_check="lint")
    play = Playbook(track_at("scaffold"), rules).turn().hands_over()
    play.checked(red("t.py::new", held=True), PostCheck(passed=False))
    assert play.ledger.red is None
    play.turn().hands_over().checked(red("t.py::new", held=True), PostCheck(passed=True))
    left = play.ledger.red
    assert "d2" == left
    play.turn().hands_over()
    assert ("impl", "d2") == (play.state.step, _checks_ordered(play).red)
    play.checked(green(2, unproven="tests_changed: t.py::new is missing"))
    play.expect(status=Status.FAILING, reason=None, last_error="tests_changed: t.py::new is missing")
    again = track_at("scaffold", ledger=Ledger(red="d2", red_done=True))
    assert "d2" == Playbook(again, rules).turn().hands_over().checked(green(1)).ledger.red


def _checks_ordered(play: Playbook) -> RunChecks:
    (order,) = (order for order in play.decision.effects if isinstance(order, RunChecks))
    return order


def test_the_ledger_keeps_what_was_measured_in_the_attempt_judged_last() -> None:
    """The next attempt's claim does not become a measurement because the one before had one."""
    play = arrives(Playbook(track_at("impl", Status.RUNNING)), found(handoff()))
    play.checked(red("t.py::old"))
    assert play.state.tests == play.ledger.measured is not None
    later = play.track.with_state(step="bdd", status=Status.RUNNING)
    play = arrives(Playbook(later), found(handoff(tests=TestCounts(passed=9))), number=9)
    assert (TestCounts(passed=9), None) == (play.state.tests, play.ledger.measured)


@pytest.mark.parametrize("ours", [True, False])
def test_a_hand_off_passes_no_gate_that_was_turned_on_meanwhile(ours: bool) -> None:
    """Its claim is judged and a person is asked, also of an external attempt; a failing one goes its way."""
    play = Playbook(track_at("bdd") if ours else track_at("bdd", Status.RUNNING))
    play = play.turn() if ours else play
    play.rules = with_rule("bdd", requires_human=True)
    before = play.track

    def hear(status: Status) -> Playbook:
        if ours:
            return play.hands_over(status, files_changed=("a.md",))
        reading = found(handoff(status, files_changed=("a.md",)))
        return play.given(HandoffArrived(dispatch="e7", reading=reading, mark=mark(7), keeps_gate=True))

    hear(Status.PASS).expect(status=Status.NEEDS_HUMAN, orders="notify")
    assert ("bdd", ("a.md",)) == (play.ledger.gate, play.ledger.facts.files)
    play.turn().expect(status=Status.NEEDS_HUMAN, result="needs_human")
    play.given(Approved()).turn().expect(step="sdd-delta", status=Status.RUNNING)

    play.track = before
    hear(Status.FAILING).expect(status=Status.FAILING)
    play.turn().expect(step="bdd", status=Status.NEEDS_HUMAN, result="needs_human")


def test_of_an_earlier_release_a_hand_off_is_judged_as_it_was() -> None:
    """So its journal replays."""
    play = Playbook(track_at("bdd")).turn(keeps_gate=False)
    play.rules = with_rule("bdd", requires_human=True)
    play.hands_over().expect(status=Status.PASS)


def test_an_attempt_at_level_1_times_out_without_anything_to_stop() -> None:
    """There is no process of ours; a person gets a notice."""
    play = Playbook(track_at("bdd", Status.RUNNING)).given(DeadlinePassed(dispatch=None, elapsed_min=6.4))
    play.expect(
        status=Status.TIMEOUT, result="timeout", orders="notify",
        last_error="bdd ran out of time after 6 min (limit 5 min)",
    )  # fmt: skip


def test_an_attempt_at_level_1_can_be_aborted() -> None:
    """There is nothing to end first."""
    play = Playbook(track_at("bdd", Status.RUNNING)).given(Aborted(by="mei"))
    play.expect(status=Status.NEEDS_HUMAN, last_error="aborted by mei", orders="")
    play.given(Started(story="US-1")).expect(step="bdd", status=Status.PENDING)


# --- what is measured -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("status", "error", "tests", "post_check"),
    [
        (Status.PASS, None, "green", "make lint"),
        (Status.FAILING, None, "green", None),
        (Status.FAILING, "unknown status", None, None),
        (Status.NEEDS_HUMAN, None, None, None),
    ],
)
def test_only_what_can_matter_is_measured(
    status: Status, error: str | None, tests: str | None, post_check: str | None
) -> None:
    """post_check can only lower a pass; failing tests are worth naming after a failure, too."""
    play = Playbook(dispatched("impl"), with_rule("impl", post_check="make lint"))
    play.hands_over(status, error=error)
    orders = [(getattr(o, "tests", None), getattr(o, "post_check", None)) for o in play.decision.effects]
    wanted = (tests, post_check)
    assert wanted == next((found for found in orders if found != (None, None)), (None, None))


def test_an_executor_is_known_to_run_once() -> None:
    """A second report is stale; one after a stop was ordered does not undo that."""
    play = Playbook(dispatched("bdd", Phase.STARTING)).runs().expect(orders="")
    play.refused(ExecutorStarted(dispatch=DISPATCH, pid=1), "STALE_FACT")
    stopping = Playbook(dispatched("bdd", Phase.STARTING)).given(Interrupted())
    stopping.refused(ExecutorStarted(dispatch=DISPATCH, pid=1), "STALE_FACT")


TRACE = "Traceback (most recent call last):\n  File 'agent.py', line 1\nKeyboardInterrupt\n"


def test_an_attempt_was_over_when_its_executor_ended() -> None:
    """However much later a daemon reads of it; and its checks take their own time."""
    ended = T0 + timedelta(minutes=3)
    play = Playbook(dispatched("bdd")).exits(code=1, tail="no", line="no", at=ended, after_min=60)
    play.expect(status=Status.FAILING, completed_at=ended)
    checked = Playbook(dispatched("impl")).exits(found(handoff()), line="", at=ended, after_min=4)
    checked.checked(tests=green()).expect(status=Status.PASS, completed_at=ended)


@pytest.mark.parametrize(("told", "known"), [(-5, 0), (90, 60)])
def test_a_clock_that_was_set_dates_no_end_before_the_start_or_after_now(told: int, known: int) -> None:
    """Clocks jump; the order of things does not."""
    at = T0 + timedelta(minutes=told)
    play = Playbook(dispatched("bdd")).exits(code=1, line="", at=at, after_min=60)
    play.expect(completed_at=T0 + timedelta(minutes=known))


def test_the_error_is_one_line_and_the_next_prompt_has_the_rest() -> None:
    """Lists have room for one; the agent that goes on needs all of them."""
    output: dict[str, Any] = {"tail": TRACE, "line": "KeyboardInterrupt"}
    play = Playbook(dispatched("bdd", timeout_min=0.1))
    play.exits(code=None, signal=15, by="deadline", after_min=0.11, **output)
    play.expect(last_error="bdd ran out of time after 7 s (limit 6 s) (KeyboardInterrupt)")
    play.expect(status=Status.TIMEOUT)
    assert TRACE == play.ledger.facts.output_tail
    again = Playbook(dispatched("bdd")).exits(found(handoff(Status.FAILING)), **output)
    assert None is again.ledger.facts.output_tail
