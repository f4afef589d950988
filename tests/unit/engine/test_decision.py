"""The vocabulary that the rules are written in: tracks, orders, answers, grounds, and waits for a person."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from msgspec.structs import fields, replace
from tests.support.playbook import T0, dispatched, shipped_rules, state_at, track_at, with_rule

from handoffd.engine.decision import (
    AppendHistory,
    Effect,
    Ground,
    MeasureBaseline,
    Result,
    RunChecks,
    Situation,
    Spawn,
    StopTree,
    UnknownStepError,
    accept,
    at_gate,
    ground,
    row,
    still_waits,
)
from handoffd.engine.run import Finding
from handoffd.engine.track import HeldEdit, Ledger, Track, TrackKey
from handoffd.engine.views import TrackView
from handoffd.protocol.state import State, Status


def at(track: Track) -> Situation:
    """Return the track among the shipped rules."""
    return Situation(track, shipped_rules(), T0)


def test_orders_and_grounds_keep_their_order() -> None:
    """Further orders come after the first; what led here comes before what was decided here."""
    one, two = AppendHistory(text="1"), AppendHistory(text="2")
    here, before = row("review", "requires_human", True), row("contract", "next_on_pass", "review")

    decision = accept(track_at(), "x").also(one).also(two).because(here).because(before)

    assert (one, two) == decision.effects
    assert (before, here) == decision.grounds
    assert ("steps.review.requires_human", "true") == (here.rule, here.value)
    assert Ground(rule="limits.free_repeats", value="3") == ground("limits.free_repeats", 3)


# --- situations -----------------------------------------------------------------------------------
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
    """The end comes after all; a step of another pipeline has no place; an unknown task is like a story."""
    story, custom = at(track_at("bdd")), at(track_at("custom", task_type="custom"))
    steps = ("bootstrap", "bdd", "update-memory", "done", "custom")
    assert [0, 1, 8, 9, -1] == [story.index_of(step) for step in steps]
    assert [0, 2, -1] == [custom.index_of(step) for step in ("custom", "done", "bdd")]
    assert shipped_rules().pipelines["story"] == story.pipeline("hotfix")
    assert shipped_rules().pipelines["custom"] == story.pipeline("custom")


# --- orders ---------------------------------------------------------------------------------------
KINDS = {effect: effect.__struct_config__.tag for effect in get_args(Effect)}


def test_every_order_has_a_name_of_its_own() -> None:
    """The journal tells them apart by it."""
    spelt = {kind: "".join(part.title() for part in name.split("_")) for kind, name in KINDS.items()}
    assert {kind: kind.__name__ for kind in KINDS} == spelt


def test_orders_about_processes_carry_their_dispatch() -> None:
    """Given again after a crash they find the run they already started."""
    with_dispatch = {kind for kind in KINDS if "dispatch" in kind.__struct_fields__}
    assert {MeasureBaseline, Spawn, StopTree, RunChecks} == with_dispatch


# --- answers: a public contract, the JSON of the CLI and the API ---------------------------------------
RESULTS = {result.__struct_config__.tag: result for result in get_args(Result)}


def test_the_types_of_answers_are_those_of_the_protocol() -> None:
    """Other tools switch on them; `accepted` is for verbs that dispatch nothing."""
    protocol = {"dispatched", "done", "needs_human", "blocked", "already_running", "timeout", "error"}
    assert protocol | {"accepted"} == RESULTS.keys()


def test_each_answer_carries_the_fields_of_the_protocol() -> None:
    """Keys are added, never renamed; `prompt` and `fw_lv` are the caller's to add."""
    promised = {
        "dispatched": {"project", "story", "step", "attempt"},
        "done": {"story", "summary"},
        "needs_human": {"step", "message"},
        "blocked": {"step", "reason"},
        "already_running": {"step", "elapsed_min", "last_error"},
        "error": {"code", "message", "step", "recoverable"},
    }
    for name, result in RESULTS.items():
        always = {"caller_instruction", "next_command"}
        assert promised.get(name, set()) | always <= {field.name for field in fields(result)}, name


def test_a_view_of_a_track_shows_its_state() -> None:
    """Every field that a person reads in STATE.json has the same name in `status`."""
    hidden = {"project", "files_changed", "agent_teams", "reopened_from"}
    assert set(State.model_fields) - hidden <= {field.name for field in fields(TrackView)}


# --- waits for a person ---------------------------------------------------------------------------
CAP = Finding(scope="story", unit="usd", cap=1.0, spent=2.0)

GONE = {"paused_by": "handoffd: claude is gone", "remedy": "handoffd doctor"}


def track(status: Status, step: str = "impl", story: str | None = "US-1", **ledger: Any) -> Track:
    """Return a track with this ledger."""
    return track_at(step, status, story=story, ledger=Ledger(**ledger))


@pytest.mark.parametrize(
    ("there", "waits"),
    [
        (track(Status.NEEDS_HUMAN), True),
        (track(Status.TIMEOUT), True),
        (track(Status.NEEDS_HUMAN, paused_by="ann"), True),
        (track(Status.PENDING), False),
        (track(Status.PENDING, paused_by="ann"), False),
        (track(Status.PENDING, **GONE), True),
        (track(Status.PENDING, told="blocked by US-0"), True),
        (track(Status.PENDING, capped=CAP), True),
        (track(Status.PENDING, held_edit=HeldEdit(state=state_at(), why="gate")), True),
        (dispatched("impl"), False),
        (dispatched("impl").with_ledger(told="x"), False),
        (track(Status.NEEDS_HUMAN, step="verify"), False),
        (track(Status.NEEDS_HUMAN, story="US-2"), False),
        (track(Status.NEEDS_HUMAN, closed=True), False),
        (Track(), False),
    ],
)
def test_a_track_waits_at_its_step_until_something_happens(there: Track, waits: bool) -> None:
    """Another step, another story, an executor at work: a person has acted."""
    assert waits == still_waits(there, "US-1", "impl")


def test_a_story_that_is_done_waits_for_no_person() -> None:
    """Also when the notice was about the end."""
    assert not still_waits(track(Status.PASS, step="done"), "US-1", "done")


def test_a_gate_is_a_human_step_or_where_a_person_was_asked() -> None:
    """Not another step's, and none at a step that the table does not have."""
    off = with_rule("review", requires_human=False)
    waits = track(Status.NEEDS_HUMAN, step="review", gate="review")

    assert at_gate(track(Status.PENDING, step="review"), shipped_rules())
    assert at_gate(waits, off)
    assert not at_gate(track(Status.NEEDS_HUMAN, step="review"), off)
    assert not at_gate(track(Status.NEEDS_HUMAN, gate="review"), off)
    assert not at_gate(track(Status.NEEDS_HUMAN, step="gone", gate="gone"), off)
    assert not at_gate(Track(), off)


# --- tracks are copied -------------------------------------------------------------------------------
def test_a_track_is_copied_with_changes() -> None:
    """The old one stays as it was."""
    track = track_at("bdd")
    changed = track.with_state(status=Status.PASS).with_ledger(paused_by="mei")
    assert changed.state is not None
    assert (Status.PASS, "mei") == (changed.state.status, changed.ledger.paused_by)
    assert track_at("bdd") == track


def test_only_fields_of_state_can_be_changed() -> None:
    """A misspelt field would otherwise end up in STATE.json."""
    with pytest.raises(AssertionError, match="no such field"):
        track_at("bdd").with_state(atempt=2)


def test_a_ledger_is_copied_as_replace_does() -> None:
    """It has the changes and nothing else, the ledger stays as it was, and no misspelt field gets in."""
    ledger = Ledger(automatic=True, visits={"impl": 2})

    copy = ledger.with_(paused_by="me", visits={})

    assert replace(ledger, paused_by="me", visits={}) == copy
    assert Ledger(automatic=True, visits={"impl": 2}) == ledger == ledger.with_()
    with pytest.raises(TypeError, match="no field 'paused'"):
        ledger.with_(paused="me")


def test_a_note_goes_below_the_earlier_one() -> None:
    """And an empty one goes nowhere."""
    track = track_at("bdd").with_note("One.").with_note(None).with_note("").with_note("Two.")
    assert track.state is not None
    assert "One.\n\nTwo." == track.state.human_note


def test_the_end_of_a_dispatch_frees_the_note_that_waited_for_it() -> None:
    """It is for the next prompt from now on, and nothing runs."""
    track = dispatched("bdd", human_note="One.").with_ledger(next_note="Two.").without_dispatch()
    assert track.state is not None
    assert "One.\n\nTwo." == track.state.human_note
    assert (None, None) == (track.ledger.next_note, track.ledger.dispatch)


def test_a_project_has_one_track_by_default() -> None:
    """Keys are plain pairs: they sort, and go into a database as they are."""
    assert ("/srv/shop", "main") == TrackKey("/srv/shop")
    assert Track().state is None
