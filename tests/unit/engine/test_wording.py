"""The sentences decisions are told in."""

from __future__ import annotations

from tests.support.playbook import T0, shipped_rules, track_at

from handoffd.engine.decision import Situation
from handoffd.engine.results import Accepted, NeedsHuman, Refusal
from handoffd.engine.track import Track
from handoffd.engine.wording import (
    LAST_LINES,
    accept,
    ask_human,
    last_lines,
    minutes,
    notice,
    refuse,
    with_tail,
)
from handoffd.protocol.state import Status


def test_a_refusal_changes_nothing_and_says_what_to_do() -> None:
    """The track is the same object; the asker gets a code, a reason and the next thing to do."""
    track = track_at("impl")
    decision = refuse(Situation(track, shipped_rules(), T0), "NO", "it cannot be", do="wait")
    assert decision.track is track
    assert () == decision.effects
    expected = Refusal(
        code="NO", message="it cannot be", step="impl", caller_instruction="it cannot be; wait"
    )
    assert expected == decision.result
    assert "refused: it cannot be" == decision.why


def test_a_refusal_needs_no_state() -> None:
    """A project that is not initialised can be refused something, too."""
    result = refuse(Situation(Track(), shipped_rules(), T0), "NO", "no", do="init").result
    assert isinstance(result, Refusal)
    assert result.step is None


def test_what_is_taken_is_told_with_where_the_track_stands() -> None:
    """Step and status are those after the decision."""
    result = accept(track_at("impl", Status.PASS), "taken").result
    assert isinstance(result, Accepted)
    assert ("impl", "pass", "taken") == (result.step, result.status, result.message)


def test_a_person_is_asked_with_a_notice_unless_told_already() -> None:
    """The same message goes to whoever asked and to whoever must act."""
    track = track_at("review")
    decision = ask_human(track, "decide", action="handoffd approve {project}", why="a gate", review=("a.md",))
    assert isinstance(decision.result, NeedsHuman)
    assert "handoffd approve {project}" in decision.result.caller_instruction
    action, files = "handoffd approve {project}", ("a.md",)
    told = notice(track, "needs_human", "decide", why="a gate", action=action, review=files)
    assert (told,) == decision.effects
    assert () == ask_human(track, "decide", action="x", why="y", tell=False).effects


def test_durations_are_told_as_people_say_them() -> None:
    """Whole minutes, and nothing below one."""
    assert ["under a minute", "1 min", "12 min"] == [minutes(value) for value in (0.3, 0.8, 12.4)]


def test_the_end_of_an_output_fits_into_one_line() -> None:
    """The last five lines that say something, cut from the front."""
    assert "b | c | d | e | f" == last_lines("a\nb\n\n  c \nd\ne\nf\n\n")
    assert "" == last_lines(" \n\n")
    long = last_lines("x" * 5000)
    assert (LAST_LINES + 1, "…") == (len(long), long[0])


def test_a_problem_is_told_with_the_output_that_explains_it() -> None:
    """Nothing is appended when there is no output."""
    assert "exited with code 1 (no key | bye)" == with_tail("exited with code 1", "no key\nbye\n")
    assert "exited with code 1" == with_tail("exited with code 1", "\n")
