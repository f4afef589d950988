"""Level 1: steps that people and other tools do."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.everything import rules
from tests.support.playbook import T0, found, handoff, mark, track_at

from handoffd.engine.decide import decide
from handoffd.engine.decision import Decision, Dispatched, Refusal
from handoffd.engine.events import (
    Event,
    HandoffArrived,
    LevelChosen,
    PostChecked,
    PromptTaken,
    Resumed,
    Started,
)
from handoffd.engine.track import EXTERNAL, Ledger, Track
from handoffd.protocol.handoff import Absent, HandoffMark
from handoffd.protocol.state import Status

BY_HAND = Ledger()
TAKEN = PromptTaken(dispatch="d-7", by="mei")


def decided(track: Track, event: Event) -> Decision:
    """Return what follows, by the shipped table."""
    return decide(track, event, rules(), T0)


def taken() -> Track:
    """Return a track whose prompt was taken."""
    return decided(track_at("impl", ledger=BY_HAND), TAKEN).track


def arrival(at: HandoffMark, **changes: object) -> HandoffArrived:
    """Return a hand-off that passes impl."""
    values: dict[str, object] = {
        "dispatch": "d-7", "step": "impl", "attempt": 1, "reading": found(handoff(Status.PASS)),
    }  # fmt: skip
    return HandoffArrived(mark=at, **values | changes)  # type: ignore[arg-type]


def code(decision: Decision) -> str | None:
    """Return why an event was refused."""
    return decision.result.code if isinstance(decision.result, Refusal) else None


def test_the_attempt_belongs_to_the_one_who_takes_the_prompt() -> None:
    """No process of ours runs; the state says running all the same."""
    decision = decided(track_at("impl", ledger=BY_HAND), TAKEN)

    assert isinstance(decision.result, Dispatched)
    assert ("impl", 1, "d-7") == (decision.result.step, decision.result.attempt, decision.result.dispatch)
    assert decision.track.state is not None
    assert (Status.RUNNING, T0) == (decision.track.state.status, decision.track.state.dispatched_at)
    assert (None, "d-7") == (decision.track.ledger.dispatch, decision.track.ledger.handed_out)
    assert () == decision.effects


def test_it_is_taken_once() -> None:
    """A second caller gets the answer that it runs."""
    assert "already_running" == decided(taken(), TAKEN).result.type


def test_a_step_that_passed_leads_to_the_next_one() -> None:
    """As at any other turn."""
    result = decided(track_at("bdd", Status.PASS, ledger=BY_HAND), TAKEN).result

    assert isinstance(result, Dispatched)
    assert "sdd-delta" == result.step


def test_asking_for_a_prompt_opens_no_gate() -> None:
    """It waits for a person, and gives no prompt."""
    decision = decided(track_at("contract", Status.PASS, ledger=BY_HAND), TAKEN)

    assert ("needs_human", None) == (decision.result.type, decision.track.ledger.handed_out)


def test_at_level_2_the_daemon_dispatches() -> None:
    """Nothing is changed by asking, not even the step."""
    track = track_at("bdd", Status.PASS)
    decision = decided(track, TAKEN)

    assert ("SUPERVISED", track) == (code(decision), decision.track)


def test_the_bootstrap_of_a_project_needs_no_story() -> None:
    """Every other step does."""
    assert isinstance(decided(track_at("bootstrap", story=None, ledger=BY_HAND), TAKEN).result, Dispatched)
    assert "blocked" == decided(track_at("bdd", story=None, ledger=BY_HAND), TAKEN).result.type


@pytest.mark.parametrize(("minutes", "kind"), [(9.9, "already_running"), (10.1, "timeout")])
def test_an_external_attempt_has_the_limit_of_its_step(minutes: float, kind: str) -> None:
    """The caller may be the only one to notice."""
    begun = T0 - timedelta(minutes=minutes)
    track = track_at("impl", Status.RUNNING, ledger=BY_HAND, dispatched_at=begun, timeout_min=10)

    assert kind == decided(track, TAKEN).result.type


def test_a_handoff_of_others_is_judged_under_their_dispatch() -> None:
    """At a step whose claims are checked, that is next."""
    dispatch = decided(taken(), arrival(mark(2))).track.ledger.dispatch

    assert dispatch is not None
    assert ("d-7", EXTERNAL) == (dispatch.id, dispatch.executor)


@pytest.mark.parametrize("changes", [{"step": "verify"}, {"attempt": 2}])
def test_a_handoff_that_was_read_for_another_attempt_is_too_late(changes: dict[str, object]) -> None:
    """The same file was read twice: the track has gone on in between."""
    assert "STALE_FACT" == code(decided(taken(), arrival(mark(2), **changes)))


def test_a_handoff_counts_once() -> None:
    """Also for an attempt with the same number: after a rollback the old file is still there."""
    again = taken().with_ledger(last_mark=mark(2))

    assert "STALE_FACT" == code(decided(again, arrival(mark(2))))
    assert code(decided(again, arrival(mark(3)))) is None


def test_an_empty_file_is_not_a_handoff() -> None:
    """Its arrival was reported, but it says nothing."""
    assert "NO_HANDOFF" == code(decided(taken(), arrival(mark(2), reading=Absent())))


@pytest.mark.parametrize(("level", "automatic"), [(1, False), (2, True)])
def test_the_level_says_who_dispatches(level: int, automatic: bool) -> None:
    """In any status, and back again."""
    for status in Status:
        before = track_at("impl", status, ledger=Ledger(automatic=not automatic))
        decision = decided(before, LevelChosen(level=level))  # type: ignore[arg-type]
        assert automatic == decision.track.ledger.automatic
        assert decision.track.state is not None
        assert status == decision.track.state.status


def test_a_post_check_outside_a_judgement_decides_nothing() -> None:
    """It is noted."""
    track = track_at("impl", Status.PASS)
    decision = decided(track, PostChecked(passed=False))

    assert track.with_state(lint_pass=False) == decision.track


def test_a_level_that_a_person_chose_is_not_changed_by_a_start() -> None:
    """Without a choice a start leads to level 2; a resume is a person's choice."""
    fresh = track_at("done", Status.PASS, ledger=BY_HAND)
    chosen = decided(fresh, LevelChosen(level=1)).track
    started = decided(chosen, Started(story="US-2")).track

    assert decided(fresh, Started(story="US-2")).track.ledger.automatic
    assert not started.ledger.automatic
    assert decided(started, Resumed()).track.ledger.automatic
    assert not decided(started, Resumed()).track.ledger.by_hand
