"""The transition table, walked whole: every kind of fact meets every condition a track can be in."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields
from functools import lru_cache
from typing import get_args, get_type_hints

import pytest
from tests.support.everything import AT_REST, events, events_at, rules, tracks
from tests.support.playbook import T0

from handoffd.engine.decide import RULES, TRANSITIONS, decide, diagram
from handoffd.engine.decision import Notify, Refusal
from handoffd.engine.events import Event, Fact, Verb
from handoffd.engine.track import Ledger, Phase, Track
from handoffd.protocol.state import Status


# --- the walk -------------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def walked() -> dict[tuple[Status | None, str], set[Status]]:
    """Decide on every fact in every condition; return which statuses came of it. Checks each decision."""
    seen: dict[tuple[Status | None, str], set[Status]] = defaultdict(set)
    for track in tracks():
        before = track.state.status if track.state is not None else None
        for event in events_at(track):
            decision = decide(track, event, rules(), T0)
            after = decision.track
            if isinstance(decision.result, Refusal):
                assert after is track, (event, decision.why)
                assert all(isinstance(order, Notify) for order in decision.effects), event
                continue
            assert after.state is not None
            assert event.kind in TRANSITIONS[before], (before, event)
            assert_sound(after)
            seen[before, event.kind].add(after.state.status)
    return seen


def assert_sound(track: Track) -> None:
    """Check what holds of every track, however it came about."""
    assert track.state is not None
    if (dispatch := track.ledger.dispatch) is not None:
        assert Status.RUNNING is track.state.status
        assert (track.state.step, track.state.attempt) == (dispatch.step, dispatch.attempt)
        assert (dispatch.claim is not None) == (dispatch.phase is Phase.CHECKING)
    if track.state.step == "done":
        assert Status.PASS is track.state.status


def test_every_event_has_the_rule_that_decides_on_it() -> None:
    """One each, which takes just that event."""
    takes = {event: get_type_hints(rule)["event"] for event, rule in RULES.items()}

    assert {event: event for event in get_args(Event)} == takes


def test_nothing_that_can_happen_leaves_the_table() -> None:
    """Every fact in every condition is decided without a crash; what is refused changes nothing."""
    for (before, kind), reached in walked().items():
        assert reached <= TRANSITIONS[before][kind], (before, kind)


def test_every_status_in_the_table_is_reached() -> None:
    """A target that no fact leads to would be a false arrow in the diagram."""
    reached = walked()
    unreached = {
        (before, kind): wanted - reached[before, kind]
        for before, kinds in TRANSITIONS.items()
        for kind, wanted in kinds.items()
        if wanted - reached[before, kind]
    }
    assert {} == unreached


def test_the_same_fact_gives_the_same_decision() -> None:
    """`decide` is a function of its arguments."""
    for track in list(tracks())[::13]:
        for event in events()[::3]:
            assert decide(track, event, rules(), T0) == decide(track, event, rules(), T0)


def test_the_walk_meets_every_kind_of_fact() -> None:
    """A new kind of fact must be added to the walk, or this fails."""
    assert set(KINDS.values()) == {event.kind for event in events()}


@pytest.mark.parametrize("status", list(Status))
def test_every_status_can_be_left(status: Status) -> None:
    """Nothing is a dead end: some fact leads on, and a person's verb is among them or ends it first."""
    targets = {
        target for kind, row in TRANSITIONS[status].items() if kind != "state_edited" for target in row
    }
    assert targets - {status}


def test_every_status_is_reached_from_the_start() -> None:
    """Without an edit of STATE.json."""
    reached: set[Status | None] = {None}
    for _ in Status:
        for before in tuple(reached):
            for kind, row in TRANSITIONS[before].items():
                reached |= row if kind not in {"state_edited", "edit_confirmed"} else set()
    assert {None, *Status} == reached


def test_no_status_but_running_is_reached_by_a_stale_fact() -> None:
    """Facts about a dispatch have a place in the table only while something runs."""
    of_a_dispatch = {
        "baseline_measured", "executor_started", "spawn_refused", "handoff_settled", "deadline_passed",
        "cap_reached", "executor_quiet", "executor_stalled", "interrupted", "executor_exited",
        "checks_finished", "handoff_arrived",
    }  # fmt: skip
    for status in AT_REST:
        assert not of_a_dispatch & TRANSITIONS[status].keys()
    assert of_a_dispatch <= TRANSITIONS[Status.RUNNING].keys()


# --- the facts ------------------------------------------------------------------------------------
KINDS = {event: event.__dataclass_fields__["kind"].default for event in get_args(Event)}


def test_every_fact_has_a_name_of_its_own_and_can_happen_somewhere() -> None:
    """The journal tells them apart by it; one that no row of the table has would always be refused."""
    spelt = {kind: "".join(part.title() for part in name.split("_")) for kind, name in KINDS.items()}
    assert {kind: kind.__name__ for kind in KINDS} == spelt
    assert set(KINDS.values()) == {kind for row in TRANSITIONS.values() for kind in row}


def test_every_verb_says_who_gave_it() -> None:
    """But for the first one: a project is initialised by the one who adds it."""
    nameless = [verb for verb in get_args(Verb) if "by" not in {field.name for field in fields(verb)}]
    assert ["Initialised"] == [verb.__name__ for verb in nameless]
    assert not set(get_args(Verb)) & set(get_args(Fact))


def test_facts_and_tracks_are_frozen() -> None:
    """What has happened does not change, and decisions are made of copies."""
    assert {kind for kind in (*KINDS, Track, Ledger) if not kind.__dataclass_params__.frozen} == set()


# --- the diagram ----------------------------------------------------------------------------------
def test_the_diagram_draws_every_status_and_every_arrow_once() -> None:
    """It is the table, line by line, and the same every time."""
    lines = diagram().splitlines()
    assert ["stateDiagram-v2", "    [*] --> pending: initialised"] == lines[:2]
    arrows = [line.split(":")[0].strip() for line in lines[1:]]
    assert len(arrows) == len(set(arrows))
    named = {word for arrow in arrows for word in arrow.split(" --> ")}
    assert {"[*]", *map(str, Status)} == named
    assert diagram() == diagram()
    assert diagram().endswith("\n")


def test_the_diagram_shows_the_gate_and_leaves_edits_out() -> None:
    """Edits lead from every status to every other, which would hide the rest."""
    lines = diagram().splitlines()
    assert any(line.startswith("    needs_human --> failing: ") and "rejected" in line for line in lines)
    assert "    running --> timeout: prompt_taken, deadline_passed, executor_exited" in lines
    assert not any("edit" in line for line in lines)
