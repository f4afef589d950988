"""The sentences decisions are told in."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.support.playbook import T0, shipped_rules, track_at

from handoffd.engine import wording
from handoffd.engine.decision import (
    Accepted,
    NeedsHuman,
    Refusal,
    Situation,
    accept,
    ask_human,
    notice,
    refuse,
)
from handoffd.engine.events import NoticeGivenUp
from handoffd.engine.run import LAST_LINES, LINE, Exit, last_line, last_lines, with_line
from handoffd.engine.track import Track
from handoffd.engine.verbs import notice_given_up
from handoffd.engine.wording import limit_in_words, time_in_words
from handoffd.protocol.state import Status


def test_a_refusal_changes_nothing_and_says_what_to_do() -> None:
    """The track is the same object; the asker gets a code, a reason and the next command."""
    track = track_at("impl")
    decision = refuse(
        Situation(track, shipped_rules(), T0), "NO", "it cannot be", "handoffd resume {project}"
    )
    assert decision.track is track
    assert () == decision.effects
    expected = Refusal(
        code="NO", message="it cannot be", step="impl", next_command="handoffd resume {project}",
        caller_instruction="it cannot be; next: handoffd resume {project}",
    )  # fmt: skip
    assert expected == decision.result
    assert "refused: it cannot be" == decision.why


def test_a_refusal_needs_no_state() -> None:
    """A project that is not initialised can be refused something, too."""
    result = refuse(Situation(Track(), shipped_rules(), T0), "NO", "no").result
    assert isinstance(result, Refusal)
    assert (None, None) == (result.step, result.next_command)
    assert "no; there is nothing to do" == result.caller_instruction


def test_what_is_taken_is_told_with_where_the_track_stands() -> None:
    """Step and status are those after the decision."""
    result = accept(track_at("impl", Status.PASS), "taken").result
    assert isinstance(result, Accepted)
    assert ("impl", "pass", "taken") == (result.step, result.status, result.message)


def test_a_person_is_asked_with_a_notice_unless_told_already() -> None:
    """The same message goes to whoever asked and to whoever must act."""
    track = track_at("review", Status.NEEDS_HUMAN)
    situation = Situation(track, shipped_rules(), T0)
    decision = ask_human(situation, "decide", why="a gate", review=("a.md",))
    assert isinstance(decision.result, NeedsHuman)
    action, files = "handoffd approve {project} --story US-1", ("a.md",)
    assert action == decision.result.next_command
    assert action in decision.result.caller_instruction
    told = notice(track, "needs_human", "decide", why="a gate", action=action, review=files)
    assert (told,) == decision.effects
    assert () == ask_human(situation, "decide", why="y", tell=False).effects
    assert "handoffd log {project}" == (
        ask_human(situation, "decide", why="y", action="handoffd log {project}").result.next_command
    )


def test_the_end_of_an_output_fits_into_one_line() -> None:
    """The last five lines that say something, cut from the front."""
    assert "b | c | d | e | f" == last_lines("a\nb\n\n  c \nd\ne\nf\n\n")
    assert "" == last_lines(" \n\n")
    long = last_lines("x" * 5000)
    assert (LAST_LINES + 1, "…") == (len(long), long[0])


def test_a_problem_is_told_with_the_output_that_explains_it() -> None:
    """Nothing is appended when there is no output."""
    tail = "Traceback (most recent call last):\n  File 'x'\nOSError: no key\n"
    assert "exited with code 1 (OSError: no key)" == with_line(
        "exited with code 1", Exit(tail=tail, line=last_line(tail))
    )
    assert "exited with code 1" == with_line("exited with code 1", Exit(tail="\n", line=""))


def test_facts_of_an_earlier_release_are_told_as_it_told_them() -> None:
    """Its decisions are made again by `journal verify`, and must come out the same."""
    assert "exited with code 1 (no key | bye)" == with_line("exited with code 1", Exit(tail="no key\nbye\n"))


def test_the_line_of_an_output_is_the_last_that_says_something() -> None:
    """Rules, brackets and blank lines say nothing; a long line is cut."""
    assert "ValueError: no" == last_line("at x\n  ValueError:   no\n}\n=====\n\n")
    assert "" == last_line(" \n---\n")
    assert (LINE, "…") == (len(last_line("x" * 5000)), last_line("x" * 5000)[-1])


RAISED = 'Traceback (most recent call last):\n  File "<string>", line 3, in h\n    raise e\n    ^^^^^^^\n'


@pytest.mark.parametrize(
    ("tail", "line"),
    [
        (f"{RAISED}ValueError: outside\ninside\n", "ValueError: outside inside"),
        (f"{RAISED}KeyboardInterrupt\n", "KeyboardInterrupt"),
        (f"{RAISED}shop.errors.Full: no room\nbye\n", "shop.errors.Full: no room bye"),
        (RAISED.replace("  ", ""), "raise e"),
        (f"No stock.\n{RAISED}", "No stock."),
        (
            'Timeout (0:00:05)!\nThread 0x1 (most recent call first):\n  File "<string>", line 3 in h\n',
            "Timeout (0:00:05)!",
        ),
        (f"{RAISED}KeyError: 1\n" + "It goes on.\n" * 9, "It goes on."),
        (
            "throw e\n^\n\nError: boom\n    at f (/srv/x.js:1:7)\n    at /srv/y.js:2:1\n\nNode.js v22.1.0\n",
            "Error: boom",
        ),
        (
            'Exception in thread "main" x.Y: boom\n\tat x.Y.main(Y.java:3)\n',
            'Exception in thread "main" x.Y: boom',
        ),
    ],
)
def test_of_a_stack_trace_the_line_is_what_was_raised(tail: str, line: str) -> None:
    """Not its last frame, and not just the end of a message of several lines."""
    assert line == last_line(tail)


def test_less_than_a_minute_is_told_in_seconds() -> None:
    """A limit of six seconds is not one of a minute."""
    assert ["7 s", "1 s", "1 min", "11 min"] == [time_in_words(value) for value in (0.11, 0.0, 1.2, 10.6)]
    assert ["6 s", "1 min", "2.5 min"] == [limit_in_words(value) for value in (0.1, 1, 2.5)]


def test_that_people_could_not_be_told_is_remembered_and_changes_nothing() -> None:
    """Telling of it by the same way would be lost as well."""
    situation = Situation(track_at("impl"), shipped_rules(), T0)
    one = notice_given_up(situation, NoticeGivenUp(sink="webhook", count=1, first="7", why="no route"))
    two = notice_given_up(situation, NoticeGivenUp(sink="webhook", count=2, first="7", why="no route"))

    assert "a notice was given up, webhook did not take it: no route" == one.why
    assert "2 notices were given up, webhook did not take them: no route" == two.why
    assert (True, (), situation.track) == (one.memorable, one.effects, one.track)


def orders_to_tell() -> list[tuple[str, ast.Call]]:
    """Return every place in the engine that orders to tell a person, with the name of its module."""
    folder = Path(wording.__file__).parent
    found = [
        (module.name, node)
        for module in sorted(folder.glob("*.py"))
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "notice"
    ]
    assert len(found) > 8
    return found


def test_every_order_to_tell_a_person_says_why_and_what_to_type() -> None:
    """Project, story and step are those of the track; what happened is the text."""
    said = {
        (f"{name}:{call.lineno}", keyword.arg) for name, call in orders_to_tell() for keyword in call.keywords
    }

    places = {f"{name}:{call.lineno}" for name, call in orders_to_tell()}
    assert set() == {(place, part) for place in places for part in ("why", "action")} - said
