"""Nights for the tests of the report, with everything unimportant filled in."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tests.unit.journal.making import KEY, NOW

from handoffd.engine.routing import Awaited
from handoffd.engine.track import TrackKey
from handoffd.journal.history import Happened, Night, Ran, StoryEnd

HOUR = timedelta(hours=1)


def night(**parts: Any) -> Night:
    """Return a night of two hours."""
    nothing: dict[str, Any] = dict.fromkeys(("before", "events", "runs", "ends", "lives"), ())
    return Night(**{"since": NOW, "until": NOW + 2 * HOUR, **nothing, **parts})


def happened(awaits: Awaited | None, *, at: datetime = NOW, seq: int = 1, **more: Any) -> Happened:
    """Return an event after which a story waits for something."""
    values: dict[str, Any] = {
        "seq": seq, "at": at, "key": KEY, "kind": "noted", "story": "US-1", "awaits": awaits, "before": None,
        "after": ("impl", "pending"),
    }  # fmt: skip
    return Happened(**values | more)


def ran(
    run: str = "d1", began: datetime | None = NOW, ended: datetime | None = NOW + HOUR, **more: Any
) -> Ran:
    """Return a run of impl that passed."""
    values: dict[str, Any] = {
        "id": run, "key": KEY, "story": "US-1", "step": "impl", "attempt": 1, "executor": "claude",
        "started_at": began, "ended_at": ended, "result": None if ended is None else "pass",
        "why": "5 tests pass", "tokens": 100, "cost_usd": 0.5,
    }  # fmt: skip
    return Ran(**values | more)


def ended(kind: str, *, story: str = "US-1", seq: int = 9, key: TrackKey = KEY, **more: Any) -> StoryEnd:
    """Return the end of a story."""
    return StoryEnd(seq=seq, at=NOW + HOUR, key=key, story=story, kind=kind, **more)
