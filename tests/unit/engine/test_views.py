"""The JSON of `status`: a public contract."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

from handoffd.engine.decision import Blocked
from handoffd.engine.views import Peek, ProjectView, TrackView
from handoffd.protocol.state import State


def test_a_view_of_a_track_shows_what_its_state_says() -> None:
    """Every field that a person reads in STATE.json has the same name in `status`."""
    hidden = {"project", "files_changed", "agent_teams", "reopened_from"}
    shown = {field.name for field in fields(TrackView)}
    assert set(State.model_fields) - hidden <= shown


def test_a_view_of_a_project_is_plain_data() -> None:
    """It goes over the socket as it is."""
    view = ProjectView(
        project="/srv/shop", name="shop", level=0, condition="not_initialized", detail=None, paused_by=None,
        test_command=None, warnings=(), tracks=(),
    )  # fmt: skip
    assert "not_initialized" == json.loads(json.dumps(asdict(view)))["condition"]


def test_a_peek_without_a_dispatch_has_no_prompt() -> None:
    """It says why nothing would run instead."""
    waits = Blocked(step="bdd", reason="paused by mei", caller_instruction="wait")
    peek = Peek(project="/srv/shop", result=waits, why="paused by mei", step="bdd", attempt=1)
    assert (None, "paused by mei") == (peek.prompt, peek.why)
