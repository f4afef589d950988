"""`handoffd status --watch`."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.children import ending
from tests.support.commands import environment
from tests.support.controlled import Controlled, controlled
from tests.support.supervision import MemorySupervision, project_view, track_view

from handoffd.api.http.limits import Limits
from handoffd.cli.status import changes, follow, patiently
from handoffd.entrance.requests import Answer
from handoffd.errors import HandoffdError, NotFound


def _status(elapsed: float, status: str) -> dict[str, Any]:
    track = {"elapsed_min": elapsed, "status": status}
    notices = [{"sink": "webhook", "next_try_s": elapsed}]
    return {"at": f"{elapsed}", "daemon": True, "notices": notices, "projects": [{"tracks": [track]}]}


def test_time_that_passes_is_no_news() -> None:
    """A line of JSON comes when something has changed."""
    statuses = [_status(1, "running"), _status(2, "running"), _status(3, "pass"), _status(4, "running")]

    assert [statuses[0], statuses[2], statuses[3]] == list(changes(iter(statuses)))


def test_what_changes_is_shown_where_there_is_no_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """At once, and not when whoever reads the pipe has enough."""
    seen = []

    def ask() -> Answer:
        seen.append(capsys.readouterr().out)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return Answer({"daemon": True, "projects": []}, daemon=True)

    with pytest.raises(KeyboardInterrupt):
        follow(ask, whole=False, as_json=False)

    assert ["", ""] == [seen[0], seen[2]]
    assert "No project is supervised" in seen[1]


def test_the_screen_is_shown_again(control: Controlled) -> None:
    """On a terminal, until whoever watches has enough."""
    leader, follower = os.openpty()
    with ending(subprocess.Popen(
        [sys.executable, "-m", "handoffd", "status", "shop", "--watch"],
        env=environment(control.runtime) | {"TERM": "xterm"}, stdin=follower, stdout=follower,
    )) as process:  # fmt: skip
        os.close(follower)
        _until(leader, b"needs_human")
        view = control.supervision.projects["/srv/shop"]
        control.supervision.projects["/srv/shop"] = replace(view, tracks=(track_view(status="timeout"),))
        _until(leader, b"timeout")
        process.send_signal(signal.SIGINT)
        assert 130 == process.wait(60)
    os.close(leader)


def test_a_question_without_an_answer_does_not_end_it() -> None:
    """A daemon may be too busy for once; what it said last stays, with when that was."""
    answer = Answer(
        {"at": "2026-01-31T22:15:09Z", "daemon": True, "projects": [], "warnings": ["x"]}, daemon=True
    )
    said: list[Answer | HandoffdError] = [answer, HandoffdError("the daemon does not answer"), answer]
    said += [NotFound("no such project")]

    def ask() -> Answer:
        next_ = said.pop(0)
        if isinstance(next_, HandoffdError):
            raise next_
        return next_

    patient = patiently(ask)
    told = [patient().json["warnings"] for _ in range(3)]

    assert ["x"] == told[0] == told[2]
    assert told[1][0].startswith("the daemon does not answer; the status above is of ")
    with pytest.raises(NotFound):
        patient()
    with pytest.raises(HandoffdError, match="not at all"):
        patiently(_never)()


def _never() -> Answer:
    raise HandoffdError("not at all")


def _until(terminal: int, words: bytes) -> None:
    """Read what a terminal shows until these words are there; an error when the program ends before."""
    shown = b""
    while words not in shown:
        assert select.select([terminal], [], [], 60)[0], shown
        shown += os.read(terminal, 65536)


def test_every_change_is_a_line_of_json(control: Controlled) -> None:
    """For programs that follow."""
    with ending(subprocess.Popen(
        [sys.executable, "-m", "handoffd", "status", "shop", "--watch", "--json"],
        env=environment(control.runtime), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )) as process:  # fmt: skip
        assert process.stdout is not None
        read: Callable[[], bytes] = process.stdout.readline
        assert "needs_human" == _track(read())["status"]
        view = control.supervision.projects["/srv/shop"]
        control.supervision.projects["/srv/shop"] = replace(view, tracks=(track_view(status="pass"),))
        assert "pass" == _track(read())["status"]
        process.send_signal(signal.SIGINT)
        assert 130 == process.wait(60)
    assert project_view("/srv/shop").project == view.project


def test_it_begins_when_the_daemon_has_a_place(supervision: MemorySupervision) -> None:
    """With a word until then."""
    with (
        controlled(supervision, limits=Limits(connections=1)) as control,
        socket.socket(socket.AF_UNIX) as held,
    ):
        held.connect(str(control.socket))
        held.sendall(b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert held.recv(12).endswith(b"200")
        with ending(subprocess.Popen(
            [sys.executable, "-m", "handoffd", "status", "shop", "--watch", "--json"],
            env=environment(control.runtime), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stderr is not None
            assert b"trying again in 1 s" in process.stderr.readline()
            held.close()
            assert "needs_human" == _track(process.stdout.readline())["status"]
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def _track(line: bytes) -> dict[str, Any]:
    track: dict[str, Any] = json.loads(line)["projects"][0]["tracks"][0]
    return track
