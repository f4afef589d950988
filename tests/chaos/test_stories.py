"""The stories: told alike by the same seed, of every kind there is, and within the step table."""

from __future__ import annotations

import json
from random import Random

from tests.chaos.stories import DONE, LOST, MOST_ATTEMPTS, NAP, REVIEW, ROUGH, Odds, Story, rules, tell

from handoffd.inspection.own_files import shipped_layers
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook
from handoffd.rehearsal.script import parse


def told(*, naps: bool = False, wild: bool = False, odds: Odds = ROUGH) -> list[Story]:
    """Return stories of many seeds."""
    return [tell("US-001", Random(seed), naps=naps, wild=wild, odds=odds) for seed in range(300)]


def test_the_same_seed_tells_the_same_story() -> None:
    """A violation is reproduced with the seed it is printed with."""
    assert tell("US-001", Random("7/3"), naps=True) == tell("US-001", Random("7/3"), naps=True)


def test_every_script_can_be_read_by_the_rehearsal() -> None:
    """Act by act."""
    for story in (*told(), *told(naps=True), *told(wild=True)):
        parse(json.dumps(story.rehearsal()), story.name)


def test_every_kind_of_end_is_told() -> None:
    """Passes, failures, reasons, crashes, hangs, half-written hand-offs, and attempts that are lost."""
    acts = {attempt.act for story in told(naps=True) for attempt in story.attempts}
    results = {attempt.result for story in told(naps=True) for attempt in story.attempts}

    assert {"pass", "fail", "fail:constitution_violation", "crash", "hang", "half", "tamper", LOST} <= acts
    assert {"pass", "failing", "needs_human", "timeout", "interrupted"} == results


def test_a_gentle_night_goes_wrong_twice_in_a_hundred() -> None:
    """And no shim is killed."""
    gentle = Odds(lost=0, fail=0.012, elsewhere=0.004, asks=0.004, odd=0.05)
    attempts = [attempt for story in told(odds=gentle) for attempt in story.attempts]
    wrong = sum(attempt.result != "pass" for attempt in attempts)

    assert 0.01 < wrong / len(attempts) < 0.03
    assert LOST not in {attempt.act for attempt in attempts}


def test_a_wild_story_passes_whatever_is_repeated() -> None:
    """Else a repetition would follow another act of the script."""
    assert {"pass"} == {attempt.result for story in told(wild=True) for attempt in story.attempts}


def test_the_table_of_the_projects_is_a_valid_one() -> None:
    """With the limits that the stories keep to."""
    for naps in (False, True):
        book = build_rulebook((*shipped_layers(None), Layer("chaos", json.dumps(rules(naps=naps)))))
        path = book.path("story")
        for step in MOST_ATTEMPTS.keys() - (set() if naps else {NAP}):
            assert MOST_ATTEMPTS[step] == book.steps[step].max_attempts
        assert (REVIEW in path, DONE) == (True, book.steps["update-memory"].next_on_pass)
