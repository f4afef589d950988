"""What `status` says of flows."""

from __future__ import annotations

import click
from tests.support.flow_screens import ID, PLAYED, answer_json
from tests.support.supervision import project_view, track_view

from handoffd.cli.flows.standing import as_track, flow_notes
from handoffd.cli.status_report import report, screen
from handoffd.protocol.state import plain

RESTS = track_view(story=None, step="bdd", status="pending", next_command=None, needs_you=False, gate=False)


def _status(*flows: dict[str, object]) -> dict[str, object]:
    view = {**plain(project_view("/srv/shop", RESTS, called="shop")), "flows": list(flows)}
    return {"daemon": True, "projects": [view]}


def test_each_flow_has_a_line_and_its_question_with_every_answer() -> None:
    """Below its project."""
    lines = [click.unstyle(line).strip() for line in report(_status(answer_json()), whole=False)]

    waits = "waits for: your answer: publish; work on links"
    assert f"flow {ID} (GH-7): {waits} (1 accepted, 1 asking, 1 open)" in lines
    assert f"go: handoffd flow answer {ID} publish go" in lines
    assert f"next: handoffd flow show {ID}" in lines


def test_on_a_terminal_a_flow_is_an_entry_of_its_own() -> None:
    """Among what needs you, with one command; at work, without."""
    asking = [click.unstyle(line) for line in screen(_status(answer_json()), width=100, height=30)]
    working = [click.unstyle(line) for line in screen(_status(answer_json(PLAYED[0])), width=100, height=30)]

    assert "1 needs you:" == asking[0]
    assert f"handoffd flow show {ID}" in asking[2]
    assert ["Nothing needs you.", "1 at work:"] == working[:2]
    assert "work on draft, links" in working[2]


def test_an_older_daemon_sends_no_flows() -> None:
    """It has no lines about them."""
    assert [] == list(flow_notes({"project": "/srv/shop"}, 80))


def test_a_flow_as_a_track_has_no_step() -> None:
    """Its id is in the place of the story."""
    assert (ID, "", None) == tuple(as_track(answer_json())[key] for key in ("story", "step", "dispatch"))
