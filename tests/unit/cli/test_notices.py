"""`handoffd notices`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.support.notices import NOTICE
from tests.unit.journal.making import KEY, NOW

from handoffd.cli.notices import notices_report
from handoffd.cli.wording import moment
from handoffd.clock import rfc3339
from handoffd.journal.records import Outgoing


def test_everything_is_said_that_people_do_not_know(control: Controlled, handoffd: Commands) -> None:
    """What is on its way, and what is held back; when it is told, only a daemon with a notifier knows."""
    held = Outgoing(
        id="a",
        key=KEY,
        at=NOW,
        body=NOTICE.as_json(),
        sinks=("web", "mail"),
        effect=None,
        held={"mail": "quiet"},
    )
    control.run(control.journal.outbox.keep, [held], 1.0)

    lines = handoffd("notices").lines
    since = moment(rfc3339(NOW))
    assert ["mail", "1", since, "–", "quiet hours"] == [
        cell.strip() for cell in lines[1].split("  ") if cell.strip()
    ]
    assert ["web", "1", since, "0", "0", "–"] == [
        cell.strip() for cell in lines[4].split("  ") if cell.strip()
    ]
    assert ["mail"] == [one["sink"] for one in handoffd("notices", "--json").json["held"]]


def test_when_all_is_told_it_says_so(control: Controlled, handoffd: Commands) -> None:
    """In one line."""
    assert ["Nothing needs you. All notifications were delivered."] == handoffd("notices").lines


def test_what_waits_says_when_it_is_told_again() -> None:
    """The oldest; an agent's words do not drive the terminal."""
    again = rfc3339(NOW + timedelta(hours=1))
    one = {
        "project": "/srv/shop", "name": "shop", "story": None, "since": rfc3339(NOW), "again_at": again,
        "text": "a \x1b[31mreview",
    }  # fmt: skip
    head, row, *rest = notices_report(
        {"waiting": [one], "more_waiting": 7, "held": [], "sinks": []}, whole=False
    )

    assert ["PROJECT", "STORY", "WAITS SINCE", "TOLD AGAIN", "WHAT"] == [
        word.strip() for word in head.split("  ") if word
    ]
    assert ["shop", "–", moment(rfc3339(NOW)), moment(again), "a \\x1b[31mreview"] == [
        cell.strip() for cell in row.split("  ") if cell.strip()
    ]
    assert ["", "and 7 more"] == rest


def test_only_a_terminal_gets_shortened_texts() -> None:
    """A pipe or a file has room for the whole of it; a line stays one line."""
    text = "review waits: " + "approve it, or reject it with a reason " * 5
    one = {
        "project": "/srv/shop",
        "name": None,
        "story": "US-1",
        "since": None,
        "again_at": None,
        "text": text,
    }
    answer = {"waiting": [one], "more_waiting": 0, "held": [], "sinks": []}

    assert notices_report(answer, whole=False)[1].endswith("…")
    assert notices_report(answer, whole=True)[1].endswith(text.rstrip())


def test_a_project_may_be_named(control: Controlled, handoffd: Commands, tmp_path: Path) -> None:
    """By its name or its path, then only what waits there is shown; an unknown one is refused."""
    root = tmp_path / "shop"
    root.mkdir()
    assert 0 == handoffd("init", str(root)).code

    assert ["Nothing in shop needs you."] == handoffd("notices", "shop").lines
    assert [] == handoffd("notices", str(root), "--json").json["waiting"]
    assert "no supervised project" in handoffd("notices", "nowhere").err
