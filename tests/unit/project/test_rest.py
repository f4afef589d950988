"""When a project may rest, and what tells that its folder is as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
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


def test_who_has_nothing_to_do_may_rest() -> None:
    """Whatever it waits for comes from outside."""
    assert stays_up(CALM) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"guests": 1}, {"hinted": True}, {"condition": "invalid_rules"}, {"condition": "missing"},
        {"crashed": True}, {"ending": True},
    ],
)  # fmt: skip
def test_what_keeps_a_project_up(changes: dict[str, Any]) -> None:
    """Each for itself, in words."""
    assert stays_up(replace(CALM, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"idle": False}, {"queues": True}, {"trouble": True}, {"track": track_of(Status.PENDING)},
        {"track": track_of(Status.RUNNING)}, {"track": track_of(Status.NEEDS_HUMAN, dispatch=dispatch_of())},
    ],
)  # fmt: skip
def test_one_track_keeps_its_project_up(changes: dict[str, Any]) -> None:
    """Also when the others rest."""
    assert stays_up(replace(CALM, tracks=(QUIET, replace(QUIET, **changes))))


def test_no_track_that_could_go_on_is_quiet() -> None:
    """Nor one with an attempt in hand, whoever makes it: somebody has to look at the clock."""
    for track in tracks():
        busy = track.ledger.dispatch or (track.state and track.state.status is Status.RUNNING)
        assert is_quiet(track) == (not busy and not wants_turn(track, auto_continue=True))


def test_an_outline_has_what_a_starting_daemon_must_know() -> None:
    """What was spent and which limits were met, also by those that rest."""
    spent = Usage(output_tokens=7)
    limit = Limit(account="purse", executor="agent", kind="limit", since=NOW, until=NOW)
    track = Track(state=track_of(Status.NEEDS_HUMAN).state, ledger=Ledger(spent=spent, limited=(limit,)))
    found = outline_of(StoredTrack(key=TrackKey("/srv/shop"), track=track, seq=1, digest="d"))

    assert ("shop", False, True, "d", spent, (limit,), ()) == found[1:]
    fresh = outline_of(StoredTrack(key=TrackKey("/srv/shop"), track=Track(), seq=1, digest="old"))
    assert (None, True, True, None) == fresh[1:5]


def test_a_trace_changes_with_everything_that_a_look_looks_at() -> None:
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


def test_what_was_found_has_the_trace_of_what_was_expected() -> None:
    """Only where it is nothing that has to be looked at in any case."""
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
