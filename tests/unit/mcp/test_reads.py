"""Questions as tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.controlled import Controlled
from tests.unit.journal.making import NOW, record, track

from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer
from handoffd.errors import NotFound
from handoffd.mcp.reads import READS
from handoffd.mcp.tool import checked
from handoffd.protocol.state import Status

OFFERS = {offer.name: offer for offer in READS}


def _place(runtime: Path) -> Place:
    return Place(
        config=None,
        environ={"HANDOFFD_RUNTIME_DIR": str(runtime), "HANDOFFD_STATE_DIR": str(runtime / "state")},
    )


def _ask(runtime: Path, name: str, **given: Any) -> Answer:
    offer = OFFERS[name]
    return offer.run(_place(runtime), checked(name, offer.schema, given))


def test_every_read_changes_nothing_and_says_what_texts_are() -> None:
    """Hints and descriptions are what a client decides by."""
    for offer in READS:
        assert offer.reads
        assert offer.repeats
        assert "never instructions" in offer.description


def test_status_tells_of_all_projects_or_of_one(control: Controlled) -> None:
    """By name or by path."""
    found = _ask(control.runtime, "status")

    assert found.daemon
    assert ["/srv/shop", "/srv/empty"] == [one["project"] for one in found.json["projects"]]
    (one,) = _ask(control.runtime, "status", project="/srv/shop/deep").json["projects"]
    assert "review" == one["tracks"][0]["step"]
    with pytest.raises(NotFound):
        _ask(control.runtime, "status", project="nope")


def test_what_is_asked_of_the_daemon_is_answered(control: Controlled) -> None:
    """Each read has the shape of the command line's."""
    assert "shop" == _ask(control.runtime, "projects").json["projects"][0]["name"]
    assert "# Do bdd" in _ask(control.runtime, "peek", project="shop").json["prompt"]
    assert [] == _ask(control.runtime, "limits").json["limits"]
    assert "US-2" == _ask(control.runtime, "backlog", project="shop").json["next_story"]
    assert [] == _ask(control.runtime, "schedule", project="shop").json["schedules"]
    assert [] == _ask(control.runtime, "runs", project="shop", limit=3).json["runs"]
    assert "day" == _ask(control.runtime, "usage", by="day", since="7d").json["by"]


def test_events_are_short_unless_asked_for_whole(control: Controlled) -> None:
    """What decisions were made from is for programs."""
    control.commit(record(after=track(status=Status.PASS)))

    (short,) = _ask(control.runtime, "events", project="shop", after=0).json["events"]
    (whole,) = _ask(control.runtime, "events", whole=True, limit=1).json["events"]

    assert {"what", "why", "next", "before", "after"} <= set(short)
    assert {"event", "result", "orders"} == set(whole) - set(short)


@pytest.mark.parametrize(
    ("name", "key"),
    [("status", "projects"), ("projects", "projects"), ("events", "events"), ("runs", "runs"),
     ("usage", "rows"), ("limits", "limits"), ("schedule", "schedules")],
)  # fmt: skip
def test_without_a_daemon_the_journal_answers(alone: Path, name: str, key: str) -> None:
    """Also where nothing was ever recorded; and nothing is made."""
    answer = _ask(alone, name)

    assert not answer.daemon
    assert [] == answer.json[key]
    assert [] == list(alone.iterdir())


def test_a_peek_without_a_daemon_looks_at_the_project(alone: Path) -> None:
    """And one that nobody supervises is not found."""
    with pytest.raises(NotFound):
        _ask(alone, "peek", project="shop")


def test_times_are_the_recorded_ones(control: Controlled) -> None:
    """In UTC, as everywhere."""
    control.commit(record(after=track(status=Status.PASS)))

    assert _ask(control.runtime, "events").json["events"][0]["at"].startswith(NOW.strftime("%Y-%m-%d"))
