"""Words for people: commands, counts, times, and the sentences of decisions."""

from __future__ import annotations

import ast
import shlex
from datetime import timedelta, timezone
from pathlib import Path
from typing import get_args

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
from handoffd.engine.ends import notice_given_up
from handoffd.engine.events import NoticeGivenUp
from handoffd.engine.track import Track
from handoffd.engine.views import Condition
from handoffd.engine.wording import (
    addressed,
    columns,
    command,
    command_for,
    conflicts_in_words,
    counted,
    first_few,
    fitted,
    limit_in_words,
    repair_command,
    span,
    time_in_words,
    until_words,
    usage_in_words,
    why_in_words,
    wrapped,
)
from handoffd.engine.wording import (
    tests_of as told_of,
)
from handoffd.protocol.rules import PAPERS
from handoffd.protocol.state import Status

MINUTE = timedelta(minutes=1)


# --- commands -------------------------------------------------------------------------------------
def test_a_command_names_its_project_and_its_words() -> None:
    """The engine leaves a place for the project, in a sentence as well."""
    assert "handoffd rollback {project} bdd --force" == command("rollback", "bdd", "--force")
    assert "handoffd rollback /srv/shop bdd" == addressed(command("rollback", "bdd"), "/srv/shop")
    assert "handoffd rules check /srv/shop" == command_for("/srv/shop", "rules check")
    assert "next: handoffd resume /srv/shop" == addressed(f"next: {command('resume')}", "/srv/shop")


@pytest.mark.parametrize("odd", ["/srv/my shop", "/srv/$(reboot)", "/srv/it's", "/srv/a;b", "/srv/–"])
def test_a_shell_takes_it_as_it_is_meant(odd: str) -> None:
    """Whatever a folder is called: what is pasted runs one command, about that folder."""
    assert ["handoffd", "note", odd, odd] == shlex.split(command_for(odd, "note", odd))


@pytest.mark.parametrize("condition", get_args(Condition))
def test_every_condition_of_a_project_has_a_first_command(condition: str) -> None:
    """A shell takes it, whatever the path; a project that is well needs none."""
    typed = repair_command("/srv/my shop", condition)

    assert (condition == "ok") == (typed is None)
    assert "/srv/my shop" in " ".join(shlex.split(typed or "'/srv/my shop'"))


# --- counts and times -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("tokens", "cost", "words"),
    [
        (None, None, ""),
        (0, None, ""),
        (1, None, "1 token"),
        (999, 0.0, "999 tokens, $0.00"),
        (12_449, 0.214, "12.4k tokens, $0.21"),
        (999_949, None, "999.9k tokens"),
        (999_950, None, "1.0M tokens"),
        (None, 3.0, "$3.00"),
    ],
)
def test_usage_has_few_characters(tokens: int | None, cost: float | None, words: str) -> None:
    """As far as it is known."""
    assert words == usage_in_words(tokens, cost)


@pytest.mark.parametrize(
    ("count", "nouns", "words"),
    [
        (0, ("project",), "0 projects"),
        (1, ("project",), "1 project"),
        (1_200_000, ("token",), "1200000 tokens"),
        (1.0, ("day",), "1 day"),
        (0.5, ("day",), "0.5 days"),
        (1, ("story waits", "stories wait"), "1 story waits"),
        (2, ("story waits", "stories wait"), "2 stories wait"),
    ],
)
def test_a_count_agrees_with_its_noun(count: float, nouns: tuple[str, ...], words: str) -> None:
    """And with the verb behind it."""
    assert words == counted(count, *nouns)


def test_less_than_a_minute_is_shown_in_seconds() -> None:
    """A limit of six seconds is not one of a minute."""
    assert ["7 s", "1 s", "1 min", "11 min"] == [time_in_words(value) for value in (0.11, 0.0, 1.2, 10.6)]
    assert ["6 s", "1 min", "2.5 min"] == [limit_in_words(value) for value in (0.1, 1, 2.5)]


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (-MINUTE, "0 s"),
        (timedelta(seconds=45), "45 s"),
        (12 * MINUTE, "12 min"),
        (130 * MINUTE, "2 h 10 min"),
        (120 * MINUTE, "2 h"),
        (timedelta(days=3, hours=4), "3 d 4 h"),
        (timedelta(days=7), "7 d"),
    ],
)
def test_a_span_has_the_units_that_matter(length: timedelta, words: str) -> None:
    """Seconds of a night do not matter."""
    assert words == span(length)


def test_a_time_has_its_zone_and_the_day_when_that_is_another() -> None:
    """A limit of a week ends on some day; one of five hours may end tomorrow."""
    assert "until 22:10 UTC (in 10 min)" == until_words(T0 + 10 * MINUTE, T0)
    assert "until Sun 01 Feb 01:00 UTC (in 3 h)" == until_words(T0 + timedelta(hours=3), T0)
    taipei = (T0 + timedelta(hours=3)).astimezone(timezone(timedelta(hours=8), "CST"))
    assert "until 09:00 CST (in 3 h)" == until_words(taipei, T0)


# --- sentences of decisions -----------------------------------------------------------------------
def situation(track: Track) -> Situation:
    """Return a track among the shipped rules."""
    return Situation(track, shipped_rules(), T0)


def test_a_refusal_changes_nothing_and_says_what_to_do() -> None:
    """The track is the same object; the asker gets a code, a reason and the next command."""
    track = track_at("impl")
    decision = refuse(situation(track), "NO", "it cannot be", "handoffd resume {project}")
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
    result = refuse(situation(Track()), "NO", "no").result
    assert isinstance(result, Refusal)
    assert (None, None) == (result.step, result.next_command)
    assert "no; there is nothing to do" == result.caller_instruction


def test_an_acceptance_shows_step_and_status() -> None:
    """Those after the decision."""
    result = accept(track_at("impl", Status.PASS), "taken").result
    assert isinstance(result, Accepted)
    assert ("impl", "pass", "taken") == (result.step, result.status, result.message)


def test_a_person_is_asked_with_a_notice_unless_there_was_one() -> None:
    """The caller and the person who must act get the same message."""
    track = track_at("review", Status.NEEDS_HUMAN)
    decision = ask_human(situation(track), "decide", why="a gate", review=("a.md",))
    assert isinstance(decision.result, NeedsHuman)
    action, files = "handoffd approve {project} --story US-1", ("a.md",)
    assert action == decision.result.next_command
    assert action in decision.result.caller_instruction
    asked = notice(track, "needs_human", "decide", why="a gate", action=action, review=files)
    assert (asked,) == decision.effects
    assert () == ask_human(situation(track), "decide", why="y", tell=False).effects
    log = "handoffd log {project}"
    assert log == ask_human(situation(track), "decide", why="y", action=log).result.next_command


def test_a_notice_that_was_given_up_is_remembered_and_changes_nothing() -> None:
    """Another notice about it would be lost as well."""
    at = situation(track_at("impl"))
    one, two = (
        notice_given_up(at, NoticeGivenUp(sink="webhook", count=count, first="7", why="no route"))
        for count in (1, 2)
    )

    assert "a notice was given up, webhook did not take it: no route" == one.why
    assert "2 notices were given up, webhook did not take them: no route" == two.why
    assert (True, (), at.track) == (one.memorable, one.effects, one.track)


@pytest.mark.parametrize(
    "text", ["深色模式 for the shop，讓人在夜裡", "網路商店" * 9, "plain words only", "é" * 30]
)
@pytest.mark.parametrize("width", [5, 12, 40])
def test_lines_have_as_many_columns_as_they_may(text: str, width: int) -> None:
    """Nothing is lost, and a line ends where the next word or wide character does not fit."""
    lines = wrapped(text, width)
    assert max(map(columns, lines)) <= width
    assert text.replace(" ", "") == "".join(lines).replace(" ", "")
    assert len(lines) <= 2 * -(-columns(text) // width)
    assert columns(fitted(text, width)) <= width


def test_names_of_files_are_shown_in_one_line() -> None:
    """They may hold anything: what moves a terminal's cursor, or is not text at all."""
    assert "a?[2J, b?c, ?" == first_few(["a\x1b[2J", "b\nc", "\udcff"])
    assert "a, b and 2 more" == first_few(list("abcd"), 2)
    assert ("a, b and 7 more", "a, b") == (first_few(["a", "b"], count=9), first_few(["a", "b"], count=2))


def test_every_notice_of_the_engine_says_why_and_what_to_type() -> None:
    """Project, story and step come from the track; what happened is the text."""
    calls = {
        f"{module.name}:{node.lineno}": {keyword.arg for keyword in node.keywords}
        for module in Path(wording.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "notice"
    }
    assert len(calls) > 8
    assert {} == {place: given for place, given in calls.items() if not {"why", "action"} <= given}


@pytest.mark.parametrize(
    ("claimed", "measured", "false"),
    [
        ((2, 0), (3, 0), False),  # it has run its own tests only
        ((3, 0), (3, 0), False),
        ((4, 0), (3, 0), True),
        ((3, 0), (3, 1), True),
        ((2, 1), (3, 0), False),
    ],
)
def test_a_claim_that_flatters_is_not_so(
    claimed: tuple[int, int], measured: tuple[int, int], false: bool
) -> None:
    """The same rule at a gate as in the report of a night."""
    counts = {"claimed": claimed, "measured": measured}
    tests = {name: {"pass": passed, "fail": failed} for name, (passed, failed) in counts.items()}
    told = list(told_of({**tests, "before": None, "verified": True, "failing": []}))
    assert false is ("what the agent claims is not what was measured" in told)


def test_a_conflict_in_papers_is_told_apart() -> None:
    """handoffd keeps both sides of them, and git asks. Where only they conflict, they are named."""
    told = conflicts_in_words(("a.py", "web/.ai/history.md", "PROJECT_MEMORY.md"))

    assert "a.py; by hand also in web/.ai/history.md, PROJECT_MEMORY.md: keep both sides" == told
    assert ["a.py, b.py", "PROJECT_MEMORY.md"] == [
        conflicts_in_words(paths) for paths in (("a.py", "b.py"), ("PROJECT_MEMORY.md",))
    ]
    assert {f"a.py; by hand also in {paper}: keep both sides" for paper in PAPERS} == {
        conflicts_in_words(("a.py", paper)) for paper in PAPERS
    }


@pytest.mark.parametrize(
    ("why", "reason", "said", "told"),
    [
        (
            "failing claimed", "scope_warning", "It shall\x1b[2J fail.",
            "the agent: scope_warning, It shall?[2J fail.",
        ),
        ("needs_human claimed", None, "Which zone?", "the agent: Which zone?"),
        ("failing claimed", None, None, "failing claimed"),
        ("failing claimed", None, "word " * 100, f"the agent: {'word ' * 39}word…"),
        ("pass claimed, but red", "scope_warning", "All is well.", "pass claimed, but red"),
        (None, None, "All is well.", None),
    ],
)  # fmt: skip
def test_an_agent_that_gives_up_says_why_itself(
    why: str | None, reason: str | None, said: str | None, told: str | None
) -> None:
    """In one line that can be printed; what was measured is not its to explain."""
    assert told == why_in_words(why, reason, said)
