"""What one decision says about dispatches.

`handoffd runs` shows a row a dispatch. The rows are derived from the records, in the transaction
that commits them, by the pure functions below. A fact told twice changes nothing, because a row
keeps the first value of every column; and a dispatch that is no longer in flight is over, whatever
event took it away, so that no row says "running" for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from handoffd.engine.events import (
    Advanced,
    BaselineMeasured,
    ChecksFinished,
    ExecutorExited,
    ExecutorStarted,
    Exit,
    HandoffArrived,
    SpawnRefused,
)
from handoffd.engine.measurements import TestEvidence
from handoffd.engine.results import Refusal
from handoffd.engine.track import EXTERNAL, Dispatch, Phase
from handoffd.engine.usage import Usage
from handoffd.protocol.state import Status
from handoffd.store.records import INTERRUPTED, Record

NOT_STARTED = "not_started"
"""Its executor never ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What became known of one dispatch; None where nothing did."""

    id: str
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit: Exit | None = None
    tests: TestEvidence | None = None

    @property
    def usage(self) -> Usage | None:
        """What its executor used; None where that is not known."""
        return None if self.exit is None else self.exit.usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How every dispatch of the track but `in_flight` has ended, if it was not over before."""

    in_flight: str | None
    at: datetime
    result: str
    why: str


def begun(record: Record) -> Dispatch | None:
    """Return the dispatch that `record` puts or keeps in flight, or judges at once; None if none."""
    event, state = record.event, record.track.state
    if record.track.ledger.dispatch is not None:
        return record.track.ledger.dispatch
    if not isinstance(event, HandoffArrived) or isinstance(record.result, Refusal) or state is None:
        return None
    # A dispatch that somebody else made; with nothing to check it is never in our hands.
    return Dispatch(
        id=event.dispatch,
        story=state.story,
        step=state.step,
        attempt=state.attempt,
        executor=EXTERNAL,
        decided_at=state.dispatched_at or record.at,
        phase=Phase.CHECKING,
    )


def learned(record: Record) -> Learned | None:
    """Return what `record` tells about the dispatch its event speaks of, if it speaks of one."""
    if isinstance(record.result, Refusal):
        return None
    match record.event:
        case ExecutorStarted(dispatch=dispatch, at=at):
            return Learned(id=dispatch, started_at=at or record.at)
        case ExecutorExited(dispatch=dispatch, exit=end):
            began = None if end.at is None else end.at - timedelta(seconds=end.seconds)
            return Learned(id=dispatch, started_at=began, ended_at=end.at or record.at, exit=end)
        case ChecksFinished(dispatch=dispatch, tests=tests):
            return Learned(id=dispatch, tests=tests)
    return None


def verdict(record: Record) -> Verdict:
    """Return how the dispatches ended that are not in flight any more."""
    in_flight, state = record.track.ledger.dispatch, record.track.state
    judged = state is not None and state.status not in {Status.PENDING, Status.RUNNING}
    unstarted = isinstance(record.event, SpawnRefused | BaselineMeasured | Advanced)
    return Verdict(
        in_flight=None if in_flight is None else in_flight.id,
        at=record.at,
        result=state.status.value
        if state is not None and judged
        else NOT_STARTED
        if unstarted
        else INTERRUPTED,
        why=record.why,
    )
