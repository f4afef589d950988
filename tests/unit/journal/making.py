"""Records and journals for the tests of the journal, with everything unimportant filled in."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.support.notices import NOTICE

from handoffd.engine.decision import Accepted, Effect, Result
from handoffd.engine.events import Event, Noted
from handoffd.engine.notice import Opening, Parcel
from handoffd.engine.track import Dispatch, Ledger, Phase, Track, TrackKey
from handoffd.journal.journal import Journal
from handoffd.journal.records import Record
from handoffd.protocol.state import State, Status

NOW = datetime(2026, 1, 31, 22, 15, 9, 123456, UTC)
KEY = TrackKey("/srv/shop")
GOLDEN = Path(__file__).parents[2] / "data/journal"
"""Journals of every released schema."""


def accepted(step: str = "bdd", status: str = "pending") -> Accepted:
    """Return a result that changes nothing in what is tested."""
    return Accepted(step=step, status=status, message="taken", caller_instruction="go on")


def track(
    step: str = "bdd",
    status: Status = Status.PENDING,
    *,
    story: str = "US-1",
    dispatch: Dispatch | None = None,
) -> Track:
    """Return a track of the project `shop`."""
    return Track(
        state=State(project="shop", story=story, step=step, status=status), ledger=Ledger(dispatch=dispatch)
    )


def dispatch(number: str = "d1", *, phase: Phase = Phase.STARTING) -> Dispatch:
    """Return a dispatch of bdd, decided at `NOW`."""
    return Dispatch(
        id=number, story="US-1", step="bdd", attempt=1, executor="claude", decided_at=NOW, phase=phase
    )


def record(
    event: Event | None = None,
    *,
    key: TrackKey = KEY,
    after: Track | None = None,
    effects: tuple[Effect, ...] = (),
    result: Result | None = None,
    at: datetime = NOW,
    why: str = "for a test",
    text: str | None = None,
) -> Record:
    """Return a record; a note on a pending bdd unless told otherwise."""
    return Record(
        key=key,
        at=at,
        event=event or Noted(text="look at the log"),
        track=after or track(),
        effects=effects,
        result=result or accepted(),
        why=why,
        state_text=text,
    )


def parcel(
    name: str,
    key: TrackKey = KEY,
    *,
    at: datetime = NOW,
    sinks: tuple[str, ...] = ("web",),
    opens: TrackKey | None = None,
    reached_min: float = 0,
    **more: Any,
) -> Parcel:
    """Return a notice about a track for its sinks; `opens` is the lane in which it waits for a person."""
    notice = replace(NOTICE, id=name, at=at, project=key.project, track=key.track)
    opening = None if opens is None else Opening(lane=opens, reached_min=reached_min)
    return Parcel(notice=notice, sinks=sinks, opens=opening, **more)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Journal]:
    """Yield the journal at `path`, and close it."""
    journal = await Journal.open(path)
    try:
        yield journal
    finally:
        await journal.close()


@asynccontextmanager
async def older(schema: int, folder: Path) -> AsyncIterator[Journal]:
    """Yield a journal of an earlier release, opened for questions only: nothing brings it up to date."""
    journal = await Journal.open_to_read(Path(shutil.copy(GOLDEN / f"schema-{schema}.db", folder)))
    try:
        yield journal
    finally:
        await journal.close()
