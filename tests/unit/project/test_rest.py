"""When a project may rest, and how a change of its folder is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.everything import tracks
from tests.support.house import NOW, dispatch_of, track_of

from handoffd.engine.dispatching import wants_turn
from handoffd.engine.run import Usage
from handoffd.engine.track import Ledger, Limit, Track, TrackKey
from handoffd.errors import StoreError
from handoffd.files.state_file import Seen
from handoffd.journal.records import StoredTrack
from handoffd.project.folder import Found
from handoffd.project.rest import (
    Activity,
    TrackActivity,
    is_quiet,
    outline_of,
    states_in,
    stays_up,
    trace_in,
    trace_of,
)
from handoffd.protocol.state import Status

QUIET = TrackActivity(track=track_of(Status.NEEDS_HUMAN), idle=True)
CALM = Activity(tracks=(QUIET,))
TEXTS = {".ai/handoffd.yaml": "a: 1\n", ".ai/step-rules.yaml": None}


def test_an_idle_project_may_rest() -> None:
    """It waits only for events from outside."""
    assert stays_up(CALM) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"guests": 1}, {"hinted": True}, {"condition": "invalid_rules"}, {"condition": "missing"},
        {"crashed": True}, {"ending": True},
    ],
)  # fmt: skip
def test_any_activity_of_a_project_keeps_it_up(changes: dict[str, Any]) -> None:
    """Each by itself, with a reason."""
    assert stays_up(replace(CALM, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"idle": False}, {"queues": True}, {"trouble": True}, {"track": track_of(Status.PENDING)},
        {"track": track_of(Status.RUNNING)}, {"track": track_of(Status.NEEDS_HUMAN, dispatch=dispatch_of())},
    ],
)  # fmt: skip
def test_one_busy_track_keeps_its_project_up(changes: dict[str, Any]) -> None:
    """Even if the others are idle."""
    assert stays_up(replace(CALM, tracks=(QUIET, replace(QUIET, **changes))))


def test_a_track_that_could_go_on_is_not_quiet() -> None:
    """Neither is one with an attempt, which has a deadline."""
    for track in tracks():
        busy = track.ledger.dispatch or (track.state and track.state.status is Status.RUNNING)
        assert is_quiet(track) == (not busy and not wants_turn(track, auto_continue=True))


def test_an_outline_has_spending_and_limits() -> None:
    """A starting daemon needs them from projects at rest, too."""
    spent = Usage(output_tokens=7)
    limit = Limit(account="purse", executor="agent", kind="limit", since=NOW, until=NOW)
    track = Track(state=track_of(Status.NEEDS_HUMAN).state, ledger=Ledger(spent=spent, limited=(limit,)))
    found = outline_of(StoredTrack(key=TrackKey("/srv/shop"), track=track, seq=1, digest="d"))

    assert ("shop", False, True, "d", spent, (limit,), ()) == found[1:]
    fresh = outline_of(StoredTrack(key=TrackKey("/srv/shop"), track=Track(), seq=1, digest="old"))
    assert (None, True, True, None) == fresh[1:5]


def test_a_trace_changes_with_every_file_of_a_look() -> None:
    """The folder, the project's own files, every STATE file."""
    traces = {
        trace_of("1-2.lock", TEXTS, {"main": "d"}),
        trace_of("1-3.lock", TEXTS, {"main": "d"}),
        trace_of("1-2.lock", TEXTS | {".ai/handoffd.yaml": None}, {"main": "d"}),
        trace_of("1-2.lock", TEXTS | {".ai/step-rules.yaml": ""}, {"main": "d"}),
        trace_of("1-2.lock", TEXTS, {"main": None}),
        trace_of("1-2.lock", TEXTS, {"main": "d", "US-2": None}),
    }
    assert 6 == len(traces)
    again = trace_of("1-2.lock", dict(reversed(TEXTS.items())), {"main": "d"})
    assert again in traces


def test_a_visit_without_changes_has_the_expected_trace() -> None:
    """A visit that needs a look in any case has none."""
    seen = Seen(text="{}", digest="d", mtime_ns=1)
    found = Found(lock=Path("/state/locks/1-2.lock"), texts=TEXTS, states={"main": seen, "US-2": None})

    assert {"main": "d", "US-2": None} == states_in(found)
    assert trace_of("1-2.lock", TEXTS, {"main": "d", "US-2": None}) == trace_in(found)
    for odd in (
        replace(found, halves=True),
        replace(found, texts=None),
        replace(found, error=StoreError("x")),
    ):
        assert trace_in(odd) is None
