from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.journal.making import NOW, dispatch, record, track

from handoffd.engine.decision import Refusal
from handoffd.engine.events import (
    Aborted,
    Advanced,
    BaselineMeasured,
    ChecksFinished,
    Event,
    ExecutorExited,
    ExecutorStarted,
    HandoffArrived,
    Noted,
    SpawnRefused,
    TestEvidence,
)
from handoffd.engine.run import Exit
from handoffd.journal.dispatches import Learned, begun, learned, verdict
from handoffd.protocol.handoff import Absent, HandoffMark
from handoffd.protocol.state import Status

EARLIER = NOW - timedelta(hours=1)
DATED = Exit(code=3, seconds=120, at=EARLIER)
EXITED = ExecutorExited(dispatch="d1", exit=Exit(code=3), reading=Absent())
REFUSAL = Refusal(code="STALE_FACT", message="too late", caller_instruction="nothing to do")


def test_a_dispatch_in_flight_begins_a_row() -> None:
    """The row is there from the decision on, before anything runs."""
    flying = track(status=Status.RUNNING, dispatch=dispatch())

    assert dispatch() == begun(record(Advanced(dispatch="d1", executor="claude"), after=flying))


def test_a_dispatch_of_somebody_else_begins_a_row_when_it_is_judged() -> None:
    """Level 1: a hand-off that is judged at once was never in flight here."""
    event = HandoffArrived(dispatch="d7", reading=Absent(), mark=HandoffMark())

    row = begun(record(event, after=track(status=Status.PASS)))

    assert row is not None
    assert ("d7", "external", "bdd", NOW) == (row.id, row.executor, row.step, row.decided_at)


def test_a_turn_without_a_dispatch_begins_no_row() -> None:
    """An id that was offered and not used is no run."""
    assert begun(record(Advanced(dispatch="d1", executor="claude"))) is None


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (ExecutorStarted(dispatch="d1", pid=7), Learned(id="d1", started_at=NOW)),
        (ExecutorStarted(dispatch="d1", pid=7, at=EARLIER), Learned(id="d1", started_at=EARLIER)),
        (EXITED, Learned(id="d1", ended_at=NOW, exit=Exit(code=3))),
        (
            ExecutorExited(dispatch="d1", exit=DATED, reading=Absent()),
            Learned(id="d1", started_at=EARLIER - timedelta(minutes=2), ended_at=EARLIER, exit=DATED),
        ),
        (
            ChecksFinished(dispatch="d1", tests=TestEvidence(collected=4)),
            Learned(id="d1", tests=TestEvidence(collected=4)),
        ),
        (Noted(text="x"), None),
    ],
)
def test_events_tell_their_part_of_a_run(event: Event, expected: Learned | None) -> None:
    """Start, end and measurements come from the events that report them."""
    assert expected == learned(record(event))


def test_a_refused_fact_tells_nothing() -> None:
    """An event that changed nothing changes no row."""
    assert learned(record(EXITED, result=REFUSAL)) is None
    assert (
        begun(record(HandoffArrived(dispatch="d7", reading=Absent(), mark=HandoffMark()), result=REFUSAL))
        is None
    )


@pytest.mark.parametrize(
    ("event", "status", "expected"),
    [
        (EXITED, Status.PASS, "pass"),
        (EXITED, Status.FAILING, "failing"),
        (EXITED, Status.PENDING, "interrupted"),
        (SpawnRefused(dispatch="d1", error="no such program"), Status.PENDING, "not_started"),
        (BaselineMeasured(dispatch="d1", fault="no runner"), Status.PENDING, "not_started"),
        (Aborted(), Status.NEEDS_HUMAN, "needs_human"),
    ],
)
def test_a_dispatch_that_is_gone_got_the_status_of_its_track(
    event: Event, status: Status, expected: str
) -> None:
    """Whatever ended a dispatch, its row says how."""
    found = verdict(record(event, after=track(status=status), why="because"))

    assert (None, expected, "because") == (found.in_flight, found.result, found.why)


def test_a_dispatch_in_flight_is_not_over() -> None:
    """While the checks run nothing is judged."""
    assert "d1" == verdict(record(EXITED, after=track(status=Status.RUNNING, dispatch=dispatch()))).in_flight
