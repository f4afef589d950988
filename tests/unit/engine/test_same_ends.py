"""The same end of a step again and again: a person is asked instead of paying for more of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.playbook import Playbook, green, red, shipped_rules, track_at, with_rule

from handoffd.engine.decision import Ground, next_command
from handoffd.engine.events import DeadlinePassed, Noted, Retried
from handoffd.engine.judging import Verdict, mark_of
from handoffd.engine.routing import look_command
from handoffd.engine.run import End, PostCheck
from handoffd.engine.track import Facts, StopReason
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import Reason, Status, TestCounts


def rules(most: int = 3, **changes: Any) -> RuleBook:
    """Return the shipped table, in which a person is asked after `most` equal ends."""
    book = with_rule("impl", **changes) if changes else shipped_rules()
    return book.model_copy(update={"identical_ends": most})


def at_impl(most: int = 3, **changes: Any) -> Playbook:
    """Return a story at its code."""
    return Playbook(track_at("impl"), rules(most, **changes))


def ends(play: Playbook, *failing: str) -> Playbook:
    """Have the next attempt claim a pass that the tests do not bear out."""
    play.turn().expect(result="dispatched", status=Status.RUNNING)
    return play.hands_over().checked(tests=red(*failing, new_failing=0))


# --- when a person is asked ---------------------------------------------------------------------------
def test_the_third_equal_end_in_a_row_waits_for_a_person() -> None:
    """In words, with a notice; the attempts that are left are not paid for, until a person wants them."""
    play = at_impl()
    for attempt in (1, 2, 3):
        ends(play, "t.py::a", "t.py::b").expect(attempt=attempt, status=Status.FAILING)

    play.turn().expect(result="needs_human", status=Status.NEEDS_HUMAN, attempt=3, orders="notify")
    alike = "impl ended in the same way 3 times in a row"
    assert f"{alike}, and is not tried again by itself" == play.notices[0].text
    assert play.state.last_error == "2 tests fail: t.py::a, t.py::b (the same 3 times in a row)"
    assert (Ground(rule="settings.identical_ends", value="3"),) == play.decision.grounds
    assert "handoffd retry {project}" == next_command(play.track, play.rules)
    assert "handoffd log {project}" == look_command(play.track, None, gate=False)
    assert "handoffd log {project} --story US-001" == look_command(play.track, "US-001", gate=False)
    play.turn().expect(result="needs_human", orders="")

    play.given(Retried()).expect(status=Status.PENDING, attempt=1)
    assert look_command(play.track, None, gate=False) is None
    assert {} == play.ledger.ends
    ends(ends(play, "t.py::a"), "t.py::a").turn().expect(result="dispatched")


@pytest.mark.parametrize(
    "between",
    [
        lambda play: ends(play, "t.py::b"),
        lambda play: ends(play, "t.py::a", "t.py::b"),
        lambda play: play.step_fails(Reason.NFR_MISSING),
    ],
)
def test_another_end_between_two_begins_anew(between: Any) -> None:
    """Other tests, more or fewer of them, or another reason."""
    play = ends(ends(at_impl(max_visits=9), "t.py::a"), "t.py::a")
    between(play)
    ends(play, "t.py::a").turn().expect(result="dispatched")


def test_the_ends_of_a_step_are_in_a_row_also_if_other_steps_pass_between() -> None:
    """A quality gate that fails in the same way after each repair is such a row; its pass ends that."""
    play = Playbook(track_at("verify"), rules())
    for _ in range(2):
        ends(play, "t.py::a")
        play.turn().expect(step="impl", attempt=1).hands_over().checked(tests=green())
    ends(play, "t.py::a").turn().expect(step="verify", status=Status.NEEDS_HUMAN)

    play.given(Retried()).turn().hands_over().checked(tests=green())
    assert {} == play.ledger.ends


def test_the_last_attempt_says_that_it_was_the_last_one() -> None:
    """The message about used-up attempts stays as it was, also if all have ended in the same way."""
    play = Playbook(track_at("impl", max_attempts=3), rules())
    for _ in range(3):
        ends(play, "t.py::a")
    play.turn().expect(blocked_by=("max_attempts_exceeded",))
    assert "handoffd log {project}" == look_command(play.track, None, gate=False)


def test_none_asks_for_no_person() -> None:
    """0 turns it off, and nothing is counted."""
    play = at_impl(0)
    for _ in range(4):
        ends(play, "t.py::a")
        assert {} == play.ledger.ends
    play.turn().expect(result="dispatched", attempt=5)


# --- what is not an end of the agent ------------------------------------------------------------------
def test_what_costs_no_attempt_is_no_end() -> None:
    """A usage limit, a crash of the daemon and a process that vanished neither count nor break the row."""
    play = ends(ends(at_impl(), "t.py::a"), "t.py::a")
    before = play.ledger.ends
    play.turn().runs().exits(by="lost", code=None).expect(status=Status.PENDING, attempt=3)
    assert before == play.ledger.ends
    limited = Playbook(play.track, play.rules).turn().runs().exits(end=End.LIMIT, code=1)
    assert before == limited.expect(status=Status.PENDING, attempt=3).ledger.ends
    ends(play, "t.py::a").turn().expect(result="needs_human")


def test_a_timeout_is_another_end() -> None:
    """It has its own limit of repetitions."""
    play = ends(ends(at_impl(retry_on_timeout=2), "t.py::a"), "t.py::a")
    play.turn().runs()
    play.given(DeadlinePassed(dispatch=play.dispatch.id, elapsed_min=10))
    assert StopReason.TIMEOUT is play.dispatch.stop
    play.exits(by="stop", code=None, signal=15).expect(status=Status.TIMEOUT)
    assert {} == play.ledger.ends


def test_attempts_of_people_and_other_tools_are_theirs_to_stop() -> None:
    """At level 1 nothing is paid for by the daemon."""
    play = at_impl()
    for _ in range(3):
        play.turn(executor="external").hands_over(Status.FAILING).checked(tests=red("t.py::a"))
    assert {} == play.ledger.ends


def test_a_note_for_the_agent_does_not_begin_anew() -> None:
    """If it did not help, a person had better look."""
    play = ends(ends(at_impl(), "t.py::a"), "t.py::a").given(Noted(text="Mind the cents."))
    ends(play, "t.py::a").turn().expect(result="needs_human")


# --- which ends are the same --------------------------------------------------------------------------
FAILING = Verdict(status=Status.FAILING, why="", facts=Facts())


def failing(**fields: Any) -> str:
    """Return the mark of a failure."""
    return mark_of(replace(FAILING, **fields))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("exited with code 1 (2 failed in 0.31s)", "exited with code 1 (2 failed in 12.80s)"),
        ("[22:31:07] E: no module x", "[04:00:59] E: no module x"),
        ("2026-11-27T22:31:07Z boom", "2026-11-28T01:02:03Z boom"),
        ("/tmp/pytest-of-me/pytest-41/x missing", "/tmp/pytest-of-me/pytest-42/x missing"),
        ("<Shop at 0x7f3e6d8b3b80> is closed", "<Shop at 0x7f11aa8b3b80> is closed"),
        (
            "run 4f1c2a9e-77aa-4b1e-9c55-0123456789ab failed",
            "run 9b1c2a9e-77aa-4b1e-9c55-0123456789ff failed",
        ),
        ("pid 4711 was killed", "pid 812 was killed"),
    ],
)
def test_times_ids_and_places_that_differ_at_each_run_make_no_difference(one: str, other: str) -> None:
    """The same end is known by what it says."""
    assert failing(error=one) == failing(error=other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"error": "exited with code 1 (2 failed, 3 passed in 1s)"},
            {"error": "exited with code 1 (1 failed)"},
        ),
        ({"error": "src/a.py:12: E501"}, {"error": "src/a.py:14: E501"}),
        ({"error": "x"}, {"error": "x", "reason": Reason.NFR_MISSING}),
        ({"failing_tests": ("a",)}, {"failing_tests": ("a", "b")}),
        ({"tests": TestCounts(passed=1, failed=2)}, {"tests": TestCounts(passed=2, failed=1)}),
        (
            {"failing_tests": ("the command failed",), "error": "1"},
            {"failing_tests": ("the command failed",), "error": "2"},
        ),
    ],
)
def test_what_shows_that_the_work_goes_on_makes_one(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Counts and places in the code do; where nothing was measured, also the words."""
    assert failing(**one) != failing(**other)


def test_tests_that_were_measured_tell_alone_whether_it_is_the_same() -> None:
    """In any order, whatever the error says, and whatever passes beside them."""
    measured = {"measured": TestCounts(passed=1, failed=2), "tests": TestCounts(passed=1, failed=2)}
    more = {"measured": TestCounts(passed=5, failed=2), "tests": TestCounts(passed=5, failed=2)}
    one = failing(failing_tests=("a", "b"), error="2 tests fail: a, b", **measured)
    assert one == failing(failing_tests=("b", "a"), error="2 tests fail: b, a", **more)


def test_a_check_that_fails_in_the_same_way_is_the_same_end() -> None:
    """Its last line is compared."""
    play = Playbook(track_at("impl"), rules(tests=None, post_check="lint"))
    for seconds in (1.5, 2.25, 9):
        play.turn().hands_over()
        play.checked(post_check=PostCheck(passed=False, line=f"3 problems after {seconds} s"))
    play.turn().expect(result="needs_human")


def test_a_question_is_shown_whole_before_it_is_answered() -> None:
    """Also where the step has failed before: its log does not have the question."""
    facts = Facts(attempts={"impl": 2}, summary="Which zone?")
    play = ends(at_impl(), "t.py::a")
    asking = play.track.with_state(status=Status.NEEDS_HUMAN, last_error=None).with_ledger(facts=facts)

    assert "handoffd status {project}" == look_command(asking, "US-001", gate=False)
