"""`handoffd events`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.children import ending
from tests.support.commands import Commands, environment
from tests.support.controlled import Controlled, controlled
from tests.support.recorded import story
from tests.support.supervision import MemorySupervision
from tests.unit.journal.making import KEY, NOW, record, track

from handoffd.api.http.limits import Limits
from handoffd.cli.log import explained, line
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
    ] == handoffd("events", "--oneline").lines


def test_what_was_cleaned_up_is_told_where_it_is_missing(control: Controlled, handoffd: Commands) -> None:
    """As somebody sees it who follows; with --json as an object of its own."""
    for why in ("one", "two", "three"):
        control.commit(record(why=why))
    control.run(control.journal.pruning.cover, KEY, 3, track())
    control.run(control.journal.pruning.drop, KEY, 3, NOW)

    lines = handoffd("events", "--oneline").lines
    kinds = [json.loads(text)["type"] for text in handoffd("events", "--json", "--after", "0").lines]

    assert "-- events 1 to 2 are missing: older events are not kept; continuing at 3 --" == lines[0]
    assert (2, ["gap", "event"]) == (len(lines), kinds)


def test_each_decision_is_explained(control: Controlled, handoffd: Commands) -> None:
    """What had happened, the rule that decided, and what follows."""
    for one in story().records[:9]:
        control.commit(one)

    lines = handoffd("events", "--after", "8").lines

    assert "sdd-delta failed; sdd-delta attempt 2 of 3 [sdd-delta failing → sdd-delta running]" in lines[0]
    assert [
        "    what  it was the track's turn, with executor rehearsal",
        "    rule  steps.sdd-delta.on_fail.default = sdd-delta, steps.sdd-delta.max_attempts = 2 of 3,"
        " steps.sdd-delta.timeout_min = 5",
        "    next  rehearsal is started for sdd-delta attempt 2, for 5 min at most",
    ] == lines[1:]


def test_the_same_is_in_the_json(control: Controlled, handoffd: Commands) -> None:
    """Under stable keys."""
    for one in story().records[:3]:
        control.commit(one)

    told = json.loads(handoffd("events", "--json", "--after", "2").out)

    assert "it was the track's turn, with executor rehearsal" == told["what"]
    assert [{"rule": "steps.bdd.timeout_min", "value": "5"}] == told["rules"]
    assert "rehearsal is started for bdd attempt 1, for 5 min at most" == told["next"]
    assert ["spawn"] == [order["kind"] for order in told["orders"]]


def test_what_comes_from_a_project_is_made_harmless_and_cut() -> None:
    """Notes may be pages long and full of control sequences."""
    lines = explained({"type": "event", "what": "\x1b[2J" + "x" * 9000, "rules": [], "next": ""})

    assert 1 == len(lines)
    assert "\\x1b" in lines[0]
    assert len(lines[0]) < 500


def test_json_is_one_object_a_line(control: Controlled, handoffd: Commands) -> None:
    """With limits and numbers."""
    for why in ("one", "two", "three"):
        control.commit(record(why=why))

    def whys(*words: str) -> list[str]:
        return [json.loads(text)["why"] for text in handoffd("events", "--json", *words).lines]

    assert ["two", "three"] == whys("--limit", "2")
    assert ["two"] == whys("--after", "1", "--limit", "1")
    assert [] == whys("--project", "empty") == whys("empty")
    assert ["three"] == whys("shop", "--limit", "1")


def test_following_needs_a_daemon(alone: Path, handoffd: Commands) -> None:
    """Nothing happens without one; what has happened can be read all the same."""
    said = handoffd("events", "-f")

    assert 3 == said.code
    assert "no new events without a daemon" in said.err
    assert (0, "") == (handoffd("events").code, handoffd("events").out)


def test_following_begins_when_there_is_a_place(supervision: MemorySupervision) -> None:
    """With a word until then."""
    follow = b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n"
    with (
        controlled(supervision, limits=Limits(connections=4)) as control,  # and so one stream
        socket.socket(socket.AF_UNIX) as held,
    ):
        held.connect(str(control.socket))
        held.sendall(follow)
        assert held.recv(12).endswith(b"200")
        with ending(subprocess.Popen(
            [sys.executable, "-m", "handoffd", "events", "--follow", "--after", "0", "--json"],
            env=environment(control.runtime), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stderr is not None
            assert f"by process {os.getpid()} ".encode() in process.stderr.readline()
            held.close()
            control.commit(record(why="seen"))
            assert "seen" == json.loads(process.stdout.readline())["why"]
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def test_gaps_are_said() -> None:
    """Events that are gone, and numbers of another journal."""
    assert [] == explained({"type": "gap", "after": 5, "next": 10, "why": "not kept"})
    assert "-- events 6 to 9 are missing: not kept; continuing at 10 --" == (
        line({"type": "gap", "after": 5, "next": 10, "why": "not kept"})
    )
    assert "-- there is no event 100: another journal; continuing at 1 --" == (
        line({"type": "gap", "after": 99, "next": 1, "why": "another journal"})
    )
