"""A backlog, told to people."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from tests.support.supervision import queued_view

from handoffd.cli.backlog import report
from handoffd.cli.wording import no_daemon

AT = datetime(2026, 1, 31, 22, 0, tzinfo=UTC).isoformat()


def answer(*stories: Any, **changes: Any) -> dict[str, Any]:
    """Return an answer of the API with `changes`."""
    told = [{**asdict(story), "at": AT} for story in stories]
    values = {
        "project": "/srv/shop", "name": "shop", "daemon": True, "story": None, "auto_continue": False,
        "chosen": None, "paused_by": None, "next_story": stories[0].story if stories else None,
        "next_command": "handoffd continue /srv/shop", "stories": told,
    }  # fmt: skip
    return {**values, **changes}


def test_an_empty_backlog_tells_how_to_fill_it() -> None:
    """And that nothing is in flight."""
    lines = report(answer(next_command=None))
    assert ["shop: no story is in flight", "No story waits: handoffd start /srv/shop STORY STORY"] == lines[
        :2
    ]


def test_each_story_has_its_line() -> None:
    """Place, priority, size, who asked for it, and when it starts."""
    lines = report(
        answer(
            queued_view("US-2", 1, priority=5, complexity="L", by="mei"),
            queued_view("US-3", 2, schedule="nightly", by="x"),
            queued_view("US-4", 3, waits_for="waits for US-9 (never started)", startable=False),
        )
    )
    assert ["STORY", "PRIORITY", "SIZE"] == lines[1].split()[:3]
    assert lines[2].split()[:4] == ["1", "US-2", "5", "L"]
    assert lines[2].endswith("next")
    assert "mei" in lines[2]
    assert "schedule nightly" in lines[3]
    assert lines[3].endswith("when its turn comes")
    assert lines[4].endswith("waits for US-9 (never started)")


def test_what_follows_is_said_with_how_to_have_it_otherwise() -> None:
    """By itself or not, as whom, and at a pause nothing."""
    waits, following = report(answer(queued_view("US-2", 1)))[-2:]
    assert (
        "The next story waits for `continue`, the default of the settings (handoffd backlog auto shop on)."
        == waits
    )
    assert "  next: handoffd continue shop" == following
    by_itself = report(answer(queued_view("US-2", 1), auto_continue=True, chosen=True, next_by_itself=True))[
        -1
    ]
    assert (
        "The next story starts by itself, as chosen by `backlog auto` (handoffd backlog auto shop off)."
        == by_itself
    )
    assert "No story starts: the project was paused by mei." in report(
        answer(queued_view("US-2", 1), paused_by="mei")
    )
    assert no_daemon() == report(answer(daemon=False))[-1]


def test_what_a_schedule_queued_is_told_apart_from_what_waits_for_a_continue() -> None:
    """Nobody is to type what is not needed, nor to wonder why another one goes first."""
    night = queued_view("NIGHT", 2, schedule="nightly")
    lines = report(answer(queued_view("US-2", 1), night, next_story="NIGHT", next_by_itself=True))
    assert (True, True) == (lines[2].endswith("when its turn comes"), lines[3].endswith("next"))
    assert [
        "NIGHT starts by itself: a schedule queued it.",
        "Any other waits for `continue`, the default of the settings (handoffd backlog auto shop on).",
    ] == lines[-2:]
