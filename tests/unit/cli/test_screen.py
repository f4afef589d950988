"""What is on a screen that is too small for all."""

from __future__ import annotations

from typing import Any

import click
from pydantic import TypeAdapter
from tests.support.supervision import project_view, track_view

from handoffd.cli.status import fitted
from handoffd.engine.views import ProjectView

_VIEW = TypeAdapter(ProjectView)
RUNNING = track_view(
    step="impl", status="running", phase="executing", dispatch="d1", waits_for=None, next_command=None
)
QUEUED = track_view(step="impl", status="pending", waits_for="3rd for a slot", next_command=None)
DONE = track_view(step="done", status="pass", waits_for=None, next_command="handoffd start X STORY")


def _status(*views: ProjectView, warnings: tuple[str, ...] = ()) -> dict[str, Any]:
    projects = [_VIEW.dump_python(view, mode="json") for view in views]
    return {"daemon": True, "projects": projects, "warnings": warnings}


def _lines(status: dict[str, Any], height: int) -> list[str]:
    return [click.unstyle(line) for line in fitted(status, whole=False, height=height)]


MANY = _status(
    *(project_view(f"/srv/done{number}", DONE) for number in range(40)),
    project_view("/srv/queued", QUEUED), project_view("/srv/busy", RUNNING),
    project_view("/srv/gate", track_view()),
    warnings=("the disk is full",),
)  # fmt: skip


def test_what_somebody_must_act_on_comes_first() -> None:
    """Then what runs, then what waits; the rest is counted, and warnings are never cut."""
    lines = _lines(MANY, 12)

    assert len(lines) <= 12
    assert ["gate", "busy", "queued", "done0"] == [
        line.split()[0] for line in lines[1:] if line[:1].islower()
    ][:4]
    assert "… and 39 more: 39 done (handoffd status)" in lines
    assert "warning: the disk is full" == lines[-1]


def test_what_fits_is_as_ever() -> None:
    """In the order of the projects."""
    lines = _lines(MANY, 500)

    assert lines[1].startswith("done0 ")
    assert not any("more:" in line for line in lines)


def test_the_smallest_screen_has_no_line_too_many() -> None:
    """However much there is to say."""
    status = MANY | {"warnings": [f"warning {number}" for number in range(50)]}

    assert [
        height for height in range(4, 60) if len(fitted(status, whole=False, height=height)) > height
    ] == []
