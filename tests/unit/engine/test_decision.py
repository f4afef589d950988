"""The vocabulary that the rules are written in."""

from __future__ import annotations

import pytest
from tests.support.playbook import T0, dispatched, shipped_rules, track_at

from handoffd.engine.decision import AppendHistory, Ground, Situation, UnknownStepError, accept, ground, row
from handoffd.engine.track import Ledger, Track
from handoffd.protocol.state import Status


def at(track: Track) -> Situation:
    """Return the track among the shipped rules."""
    return Situation(track, shipped_rules(), T0)


def test_further_orders_come_after_the_first() -> None:
    """The order in which things are to be done is kept."""
    one, two = AppendHistory(text="1"), AppendHistory(text="2")
    assert (one, two) == accept(track_at(), "x").also(one).also(two).effects


def test_grounds_are_told_in_the_order_in_which_they_applied() -> None:
    """What led here comes before what was decided here."""
    here, before = row("review", "requires_human", True), row("contract", "next_on_pass", "review")

    decision = accept(track_at(), "x").because(here).because(before)

    assert (before, here) == decision.grounds
    assert ("steps.review.requires_human", "true") == (here.rule, here.value)
    assert Ground(rule="limits.free_repeats", value="3") == ground("limits.free_repeats", 3)


def test_a_step_without_a_rule_is_an_error_with_its_name() -> None:
    """`decide` makes a refusal of it."""
    with pytest.raises(UnknownStepError, match="deploy"):
        _ = at(track_at("deploy")).rule


def test_a_story_is_in_flight_between_its_start_and_its_end() -> None:
    """Not before, not after it is done, not once it was aborted."""
    assert at(track_at("impl")).in_flight
    assert at(dispatched("impl")).in_flight
    assert not at(track_at("bootstrap", story=None)).in_flight
    assert not at(track_at("done", Status.PASS)).in_flight
    assert not at(track_at("impl", ledger=Ledger(closed=True))).in_flight


def test_steps_are_ordered_by_their_pipeline() -> None:
    """The end comes after all, and a step of another pipeline has no place."""
    story, custom = at(track_at("bdd")), at(track_at("custom", task_type="custom"))
    assert [0, 1, 8, 9, -1] == [
        story.index_of(step) for step in ("bootstrap", "bdd", "update-memory", "done", "custom")
    ]
    assert [0, 2, -1] == [custom.index_of(step) for step in ("custom", "done", "bdd")]


def test_kinds_of_tasks_without_a_pipeline_go_the_way_of_stories() -> None:
    """task_type is an open set: what is unknown must not crash anything."""
    assert shipped_rules().pipelines["story"] == at(track_at("bdd")).pipeline("hotfix")
    assert shipped_rules().pipelines["custom"] == at(track_at("bdd")).pipeline("custom")
