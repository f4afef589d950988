"""`handoffd notices`, and `handoffd notify test`, by a daemon and without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import Commands, cells, environment
from tests.support.controlled import Controlled, controlled
from tests.support.supervision import MemorySupervision
from tests.unit.journal.making import NOW, parcel

from handoffd.cli.notices import notices_report
from handoffd.cli.wording import moment
from handoffd.clock import rfc3339
from handoffd.errors import HandoffdError, NotFound

SINCE = rfc3339(NOW)


# --- notices ----------------------------------------------------------------------------------------
def test_undelivered_notifications_are_listed(control: Controlled, handoffd: Commands) -> None:
    """Those under way and those held back; without them it is one sentence."""
    assert ["Nothing needs you. All notifications were delivered."] == handoffd("notices").lines
    held = parcel("a", sinks=("web", "mail"), held={"mail": "quiet"})
    control.run(control.journal.outbox.keep, [held], 1.0)

    lines = handoffd("notices").lines
    assert ["mail", "1", moment(SINCE), "–", "quiet hours"] == cells(lines[1])
    assert ["web", "1", moment(SINCE), "0", "0", "–"] == cells(lines[4])
    assert ["mail"] == [one["sink"] for one in handoffd("notices", "--json").json["held"]]


def waiting(**more: Any) -> dict[str, Any]:
    """Return an answer with one review that waits, changed by `more`."""
    one: dict[str, Any] = {"project": "/srv/shop", "name": "shop", "story": None, "since": SINCE}
    one |= {"again_at": None, "next": "handoffd gate /srv/shop", **more}
    return {"waiting": [one], "more_waiting": 0, "held": [], "sinks": []}


def test_each_waiting_matter_has_the_time_of_its_next_notification() -> None:
    """The rest is counted; an agent's words do not drive the terminal."""
    again = rfc3339(NOW + timedelta(hours=1))
    answer = waiting(again_at=again, text="a \x1b[31mreview") | {"more_waiting": 7}

    head, row, *rest = notices_report(answer, None)

    assert ["PROJECT", "STORY", "WAITS SINCE", "NEXT NOTICE", "WHAT", "TYPE"] == cells(head)
    said = ["a \\x1b[31mreview", "handoffd gate shop"]
    assert ["shop", "–", moment(SINCE), moment(again), *said] == cells(row)
    assert ["", "and 7 more"] == rest


def test_a_narrow_table_has_text_and_command_below_each_line() -> None:
    """Whole; a pipe or a file has room for all of it in one line."""
    text = "review waits: " + "approve it, or reject it with a reason " * 5
    answer = waiting(name=None, story="US-1", since=None, text=text)

    _, _, said, command = notices_report(answer, 80)
    assert (f"  {text.rstrip()}", "  handoffd gate /srv/shop") == (said, command)
    assert notices_report(answer, None)[1].endswith(f"{text} handoffd gate /srv/shop")
    assert notices_report(waiting(text="over", next=None), 45)[2:] == [
        "  over",
        "Not on this screen: NEXT NOTICE",
    ]


def test_notices_of_one_project(control: Controlled, handoffd: Commands, tmp_path: Path) -> None:
    """By its name or its path; an unknown one is refused."""
    root = tmp_path / "shop"
    root.mkdir()
    assert 0 == handoffd("init", str(root)).code

    assert ["Nothing in shop needs you."] == handoffd("notices", "shop").lines
    assert [] == handoffd("notices", str(root), "--json").json["waiting"]
    assert "no supervised project" in handoffd("notices", "nowhere").err


# --- notify test ------------------------------------------------------------------------------------
asked: list[str | None] = []


async def trials(only: str | None) -> list[tuple[str, str, str | None, float]]:
    """Do what a daemon's notifier does."""
    asked.append(only)
    if only == "unknown":
        raise NotFound("there is no sink 'unknown'", hint="handoffd config show")
    return [("ntfy", "ntfy", None, 0.25), ("x", "webhook", "no \x1b[31mroute", 1.5)][: 1 if only else 2]


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Controlled]:
    """A daemon that notifies."""
    asked.clear()
    with controlled(MemorySupervision(), try_sinks=trials) as lent:
        for name, value in environment(lent.runtime).items():
            monkeypatch.setenv(name, value)
        yield lent


def test_the_daemon_reports_how_each_sink_did(daemon: Controlled, handoffd: Commands) -> None:
    """Exit code 1 unless all accepted it; a server's words do not drive the terminal."""
    said = handoffd("notify", "test")
    assert (1, [None]) == (said.code, asked)
    assert [
        "ntfy accepted it, after 0.2 s",
        "x (webhook) did not accept it: no \\x1b[31mroute, after 1.5 s",
        "next: handoffd config show  # then correct `notify` in that file",
    ] == said.lines

    one = handoffd("notify", "test", "ntfy", "--json")
    assert (0, "tested", True, ["ntfy"]) == (one.code, one.json["type"], one.json["ok"], asked[1:])
    assert 4 == handoffd("notify", "test", "unknown").code


def test_executors_may_not_notify() -> None:
    """An agent could wake people up."""
    with (
        controlled(MemorySupervision(), try_sinks=trials, inside=lambda _: True) as lent,
        pytest.raises(HandoffdError, match="for people"),
    ):
        lent.client.post("/v1/notices/test", {})


def test_without_a_daemon_this_process_sends_it(
    alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is recorded."""
    monkeypatch.setenv("HANDOFFD_NOTIFY__COMMAND", json.dumps(["sh", "-c", "cat > $HOME/sent"]))
    said = handoffd("notify", "test")

    assert (0, True) == (said.code, said.lines[0].startswith("command accepted it"))
    assert "test" == json.loads((alone / "sent").read_text())["kind"]
    assert not (alone / "state").exists()
    assert "Nothing needs you." in handoffd("notices").out
