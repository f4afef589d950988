"""Whether a track still waits for the person who was told of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.playbook import shipped_rules, with_rule

from handoffd.engine.decision import at_gate, still_waits
from handoffd.engine.run import Finding
from handoffd.engine.track import Dispatch, HeldEdit, Ledger, Phase, Track
from handoffd.protocol.state import State, Status

NOW = datetime(2026, 1, 31, 22, tzinfo=UTC)
RUNS = Dispatch(
    id="d", story="US-1", step="impl", attempt=1, executor="claude", decided_at=NOW, phase=Phase.EXECUTING
)
CAP = Finding(scope="story", unit="usd", cap=1.0, spent=2.0)


def track(status: Status, step: str = "impl", story: str | None = "US-1", **ledger: Any) -> Track:
    """Return a track."""
    state = State(project="shop", story=story, step=step, status=status)
    return Track(state=state, ledger=replace(Ledger(), **ledger))


@pytest.mark.parametrize(
    ("there", "waits"),
    [
        (track(Status.NEEDS_HUMAN), True),
        (track(Status.TIMEOUT), True),
        (track(Status.NEEDS_HUMAN, paused_by="ann"), True),
        (track(Status.PENDING), False),
        (track(Status.PENDING, paused_by="ann"), False),
        (track(Status.PENDING, paused_by="handoffd: claude is gone", remedy="handoffd doctor"), True),
        (track(Status.PENDING, told="blocked by US-0"), True),
        (track(Status.PENDING, capped=CAP), True),
        (track(Status.PENDING, held_edit=HeldEdit(state=State(project="shop"), why="gate")), True),
        (track(Status.RUNNING, dispatch=RUNS), False),
        (track(Status.RUNNING, dispatch=RUNS, told="x"), False),
        (track(Status.NEEDS_HUMAN, step="verify"), False),
        (track(Status.NEEDS_HUMAN, story="US-2"), False),
        (track(Status.NEEDS_HUMAN, closed=True), False),
        (Track(), False),
    ],
)
def test_it_waits_where_it_stood_until_something_happens(there: Track, waits: bool) -> None:
    """Another step, another story, an executor at work: somebody has seen to it."""
    assert waits == still_waits(there, "US-1", "impl")


def test_what_has_ended_waits_for_nobody() -> None:
    """Also when the notice was about the end."""
    assert not still_waits(track(Status.PASS, step="done"), "US-1", "done")


def test_a_gate_is_what_the_table_says_or_where_a_person_was_asked() -> None:
    """Not another step's, and none at a step that the table does not have."""
    off = with_rule("review", requires_human=False)
    waits = track(Status.NEEDS_HUMAN, step="review", gate="review")

    assert at_gate(track(Status.PENDING, step="review"), shipped_rules())
    assert at_gate(waits, off)
    assert not at_gate(track(Status.NEEDS_HUMAN, step="review"), off)
    assert not at_gate(track(Status.NEEDS_HUMAN, gate="review"), off)
    assert not at_gate(track(Status.NEEDS_HUMAN, step="gone", gate="gone"), off)
    assert not at_gate(Track(), off)
