"""The transition table, walked whole: every kind of fact meets every condition a track can be in."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import get_args, get_type_hints

import pytest
from tests.support.everything import AT_REST, events, events_at, rules, tracks
from tests.support.playbook import T0

from handoffd.engine.decide import RULES, TRANSITIONS, decide, diagram
from handoffd.engine.decision import Notify, Refusal
from handoffd.engine.events import Event
from handoffd.engine.track import Phase, Track
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
    if track.ledger.dispatch is not None:
        assert Status.RUNNING is track.state.status
        assert (track.state.step, track.state.attempt) == (
            track.ledger.dispatch.step,
            track.ledger.dispatch.attempt,
        )
        assert (track.ledger.dispatch.claim is not None) == (track.ledger.dispatch.phase is Phase.CHECKING)
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
    kinds = {kind.__dataclass_fields__["kind"].default for kind in get_args(Event)}
    assert kinds == {event.kind for event in events()}
    assert {kind for row in TRANSITIONS.values() for kind in row} <= kinds


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
