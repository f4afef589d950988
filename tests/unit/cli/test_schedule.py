"""`handoffd schedule`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.support.commands import Commands
from tests.support.controlled import Controlled

from handoffd.cli.slots import schedule_report
from handoffd.cli.wording import moment, no_daemon

AT = datetime(2026, 1, 31, 3, tzinfo=UTC).isoformat()


def view(**changes: Any) -> dict[str, Any]:
    """Return a schedule as the API tells it, with `changes`."""
    values = {
        "project": "/srv/shop", "name": "shop", "schedule": "nightly", "own": False, "cron": "0 3 * * *",
        "timezone": "UTC", "story": "R-1", "custom": None, "overlap": "skip", "catch_up": "none",
        "next_at": AT, "waits_for": None, "last_due": None, "last_outcome": None, "last_story": None,
        "last_why": None,
    }  # fmt: skip
    return {**values, **changes}


def test_each_schedule_has_its_line() -> None:
    """When it is due next, what it starts, and what became of it last."""
    head, fresh, done, late = schedule_report(
        {
            "at": AT, "daemon": True, "idle": [],
            "schedules": [
                view(),
                view(last_due=AT, last_outcome="skipped", last_story="R-0", last_why="US-1 is in flight"),
                view(waits_for="locked", next_at=AT, story=None),
            ],
        }
    )  # fmt: skip
    assert ["PROJECT", "SCHEDULE", "CRON", "NEXT", "STARTS", "LAST"] == head.split()
    assert f"0 3 * * * UTC  {moment(AT)}  " in fresh
    assert done.endswith(f"skipped R-0, due {moment(AT)}: US-1 is in flight")
    assert "(waits: locked)" in late


def test_without_a_daemon_nothing_is_started() -> None:
    """And that is said."""
    assert no_daemon() == schedule_report({"at": AT, "daemon": False, "schedules": [view()], "idle": []})[-1]


def test_a_schedule_that_concerns_no_project_is_told() -> None:
    """A slip in a name would keep it from ever starting anything, and nobody would know."""
    idle = [{"schedule": "tidy", "projects": ["shpo", "/srv/*"]}]
    line = "tidy matches no project: none is named or located at shpo, /srv/* (handoffd projects)"
    assert [line] == schedule_report({"at": AT, "daemon": True, "schedules": [], "idle": idle})
    assert ["", line] == schedule_report({"at": AT, "daemon": True, "schedules": [view()], "idle": idle})[-2:]


def test_without_schedules_it_says_where_they_would_be(control: Controlled, handoffd: Commands) -> None:
    """For a project and for all."""
    for words in (["schedule"], ["schedule", "shop"]):
        said = handoffd(*words)
        assert (0, "") == (said.code, said.err)
        assert "No schedule is configured" in said.out
    assert [] == handoffd("schedule", "--json").json["schedules"]
