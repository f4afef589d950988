"""Answers that come in pieces."""

from __future__ import annotations

from tests.support.controlled import Controlled
from tests.unit.journal.making import record


def test_events_are_a_list_unless_they_are_followed(control: Controlled) -> None:
    """One object, or one a line."""
    control.commit(record(why="one"))

    assert ["one"] == [event["why"] for event in control.client.get("/v1/events", follow=0)["events"]]
    with control.client.stream("/v1/events", follow="true", after=0) as stream:
        assert "application/x-ndjson" == stream.header("Content-Type")
        assert b'"why": "one"' in next(stream.lines())
