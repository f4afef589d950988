"""`handoffd events`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.unit.store.making import record, track

from handoffd.cli.events import line
from handoffd.cli.wording import moment
from handoffd.protocol.state import Status


def test_one_line_an_event(control: Controlled, handoffd: Commands) -> None:
    """When, number, where, what, why, and what moved."""
    control.commit(record(why="first"))
    control.commit(record(after=track(status=Status.RUNNING), why="second"))

    at = moment("2026-01-31T22:15:09.123Z")
    assert [
        f"{at}  1  shop  noted: first [– → bdd pending]",
        f"{at}  2  shop  noted: second [bdd pending → bdd running]",
    ] == handoffd("events").lines


def test_json_is_one_object_a_line(control: Controlled, handoffd: Commands) -> None:
    """With limits and numbers."""
    for why in ("one", "two", "three"):
        control.commit(record(why=why))

    def whys(*words: str) -> list[str]:
        return [json.loads(text)["why"] for text in handoffd("events", "--json", *words).lines]

    assert ["two", "three"] == whys("--limit", "2")
    assert ["two"] == whys("--after", "1", "--limit", "1")
    assert [] == whys("--project", "empty")


def test_following_needs_a_daemon(alone: Path, handoffd: Commands) -> None:
    """Nothing happens without one; what has happened can be read all the same."""
    said = handoffd("events", "-f")

    assert 3 == said.code
    assert "nothing happens without a daemon" in said.err
    assert (0, "") == (handoffd("events").code, handoffd("events").out)


def test_gaps_are_said() -> None:
    """Events that are gone, and numbers of another journal."""
    assert "-- events 6 to 9 are missing: not kept; going on from 10 --" == (
        line({"type": "gap", "after": 5, "next": 10, "why": "not kept"})
    )
    assert "-- there is no event 100: another journal; going on from 1 --" == (
        line({"type": "gap", "after": 99, "next": 1, "why": "another journal"})
    )
