"""Nights for the tests of the report, with everything unimportant filled in."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace
from tests.unit.journal.making import KEY, NOW

from handoffd.engine.routing import Awaited
from handoffd.engine.track import TrackKey
from handoffd.journal.history import (
    Claimed,
    Counts,
    Handover,
    Happened,
    Measured,
    Night,
    Ran,
    Reading,
    StoryEnd,
    TestsRun,
)
from handoffd.report.values import (
    CapUse,
    Coming,
    Cost,
    Down,
    DroppedStory,
    EndedStory,
    FailedStep,
    Falsehood,
    More,
    Report,
    TimeSpent,
    WaitingStory,
)

HOUR = timedelta(hours=1)
WHOSE: dict[str, Any] = {"project": "/srv/shop", "name": "shop", "story": "US-1"}
"""Of entries of a report."""


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
    values |= more
    return Ran(**{"outcome": values["result"], **values})


def claim(
    status: str | None = "pass",
    tests: Counts | None = None,
    untouched: tuple[str, ...] = (),
    run: str = "d1",
    **said: str,
) -> Happened:
    """Return the end of an attempt that left this hand-off."""
    reading = Reading(handoff=Handover(status=status, tests=tests, **said))
    return happened("checks", claimed=Claimed(dispatch=run, reading=reading, untouched=untouched))


def checked(counts: Counts | None = None, run: str = "d1", **tests: Any) -> Happened:
    """Return the checks of that attempt."""
    found = None if counts is None else TestsRun(counts=counts, **tests)
    return happened("slot", measured=Measured(dispatch=run, tests=found))


def ended(kind: str, *, story: str = "US-1", seq: int = 9, key: TrackKey = KEY, **more: Any) -> StoryEnd:
    """Return the end of a story."""
    return StoryEnd(seq=seq, at=NOW + HOUR, key=key, story=story, kind=kind, **more)


def report(**parts: Any) -> Report:
    """Return a report in which everything happened once."""
    whole = Report(
        since=NOW, until=NOW + 10 * HOUR, at=NOW + 10 * HOUR, project=None, events=7, projects=1,
        incomplete=None,
        down=(Down(since=NOW + HOUR, until=NOW + 4 * HOUR, how="died"),),
        landed=(
            EndedStory(**WHOSE, outcome="landed", onto="main", commit="c0ffee" * 7, branch=None, at=NOW),
            EndedStory(**WHOSE, outcome="done", onto=None, commit=None, branch="handoffd/US-1", at=NOW),
        ),
        waiting=(
            WaitingStory(
                **WHOSE, step="review", why="a person's decision", since=NOW + HOUR,
                command="handoffd approve shop --story US-1",
            ),
        ),
        paused=(
            WaitingStory(
                **WHOSE, step="impl", why="paused by mei", since=NOW + HOUR,
                command="handoffd resume shop --story US-1",
            ),
        ),
        dropped=(
            DroppedStory(
                **WHOSE, outcome="aborted", by="mei", at=NOW + HOUR, kept=None, branch="handoffd/US-1",
                says="aborted; 6 commits", command="handoffd start shop US-1",
                instead="handoffd discard shop US-1",
            ),
        ),
        failed=(FailedStep(**WHOSE, step="impl", attempts=3, why="2 tests fail", passed=False),),
        false=(
            Falsehood(
                **WHOSE, step="impl", attempt=2, run="d2", about="tests", claimed="5 pass, 0 fail",
                measured="3 pass, 2 fail",
            ),
        ),
        cost=Cost(
            runs=4, unmeasured=1, unpriced=2, tokens=12345, usd=4.5, running=1,
            caps=(CapUse(scope="day", unit="usd", spent=4.5, cap=20.0),),
        ),
        time=TimeSpent(agents=3720, checks=90, people=7200, down=10800),
        next=(Coming(**WHOSE, step="impl", then=("US-2", "US-3"), at=None, waits_for="a slot"),),
        more=More(),
    )  # fmt: skip
    return replace(whole, **parts)
