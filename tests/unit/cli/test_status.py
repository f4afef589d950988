"""`handoffd status`: with a daemon and without, on the quick way, on a screen, and followed."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.commands import Commands, environment, started
from tests.support.controlled import Controlled, controlled
from tests.support.supervision import MemorySupervision, project_view, track_view

from handoffd.api.http.limits import Limits
from handoffd.api.unix_socket import NoAnswerError, Silent
from handoffd.cli.start import glance, tell
from handoffd.cli.status import changes, fitted, follow, patiently
from handoffd.cli.wording import unstyled
from handoffd.entrance.requests import Answer
from handoffd.errors import HandoffdError, NotFound
from handoffd.files.locks import acquire, daemon_lock_path
from handoffd.protocol.state import plain


# --- the command ------------------------------------------------------------------------------------
def test_all_projects_or_one(control: Controlled, handoffd: Commands) -> None:
    """One is shown whole; JSON is the API's."""
    every, one = handoffd("status"), handoffd("status", "shop")

    assert (0, 0) == (every.code, one.code)
    assert "empty" in every.out
    assert "empty" not in one.out
    assert "root: /srv/shop (level 2)" in one.out
    answer = handoffd("status", "shop", "--json").json
    assert (True, "review") == (answer["daemon"], answer["projects"][0]["tracks"][0]["step"])


def test_without_a_daemon_status_leaves_no_trace(alone: Path, handoffd: Commands) -> None:
    """It makes no folders."""
    said = handoffd("status")

    assert 0 == said.code
    assert [
        "No project is supervised. In a project's folder: handoffd init",
        "",
        "No daemon runs: `handoffd run` goes on from here.",
    ] == said.lines
    assert [] == list(alone.iterdir())
    assert {"daemon": False, "projects": []}.items() <= handoffd("status", "--json").json.items()
    assert 4 == handoffd("status", "shop").code


# --- the quick way, which prints what the whole command line prints, or leaves it to that -----------
@pytest.mark.parametrize("words", [(), ("shop",), ("/srv/shop",), ("--json",), ("shop", "--json")])
def test_the_quick_way_prints_the_same(
    control: Controlled, handoffd: Commands, words: tuple[str, ...]
) -> None:
    """Every project, or one whole; for people and for programs. Only the time may differ."""

    def timeless(text: str) -> list[str]:
        return [line for line in text.splitlines() if not line.startswith('  "at": ')]

    quick = glance(words, None, os.environ)

    assert quick is not None
    assert timeless(handoffd("status", *words).out) == timeless(unstyled(quick))


@pytest.mark.parametrize("name", ["a b", "ä", "50%25", "x&project=shop", "#1", "a+b", "a?b"])
def test_a_name_reaches_the_daemon_as_it_is(control: Controlled, name: str) -> None:
    """Also with signs that mean something in a URL."""
    view = project_view(f"/srv/{name}", track_view())
    control.supervision.projects[view.project] = view

    quick = glance((view.project,), None, os.environ)

    assert quick is not None
    assert f"root: {view.project} " in quick


@pytest.mark.parametrize("words", [("--watch",), ("-h",), ("shop", "bank"), ("--jsn",), ("nowhere",)])
def test_the_quick_way_leaves_other_words_to_click(control: Controlled, words: tuple[str, ...]) -> None:
    """Other options, too many words, and what the daemon refuses."""
    assert glance(words, None, os.environ) is None


def test_the_quick_way_needs_a_daemon_at_a_known_socket(
    control: Controlled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads neither the journal nor a socket's path from the settings."""
    config = tmp_path / "handoffd.yaml"
    config.write_text("runtime_dir: ~/run\n")
    environ = {key: value for key, value in os.environ.items() if key != "HANDOFFD_RUNTIME_DIR"}

    assert glance((), str(config), environ) is None
    assert glance((), None, {**os.environ, "HANDOFFD_RUNTIME_DIR": str(tmp_path)}) is None


def test_a_daemon_that_does_not_answer_is_reported_in_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    """As by the whole command line, with its exit code."""
    error = NoAnswerError(Silent(0))

    assert (1, 1) == (tell(error, as_json=False), tell(error, as_json=True))
    out, err = capsys.readouterr()
    assert "handoffd: a daemon runs and does not answer\n  next: handoffd doctor\n" == err
    expected = {"message": "a daemon runs and does not answer", "hint": "handoffd doctor"}
    assert {"type": "error", "code": "NO_ANSWER", **expected} == json.loads(out)


def test_with_a_full_queue_the_error_names_the_process(control: Controlled) -> None:
    """The lock of the state directory has its number; the kernel does not tell who listens."""
    state = control.runtime / "locked"
    environ = {**environment(control.runtime), "HANDOFFD_STATE_DIR": str(state)}
    control.socket.unlink()
    with (
        acquire(daemon_lock_path(state), "the state directory"),
        socket.socket(socket.AF_UNIX) as mute,
        socket.socket(socket.AF_UNIX) as first,
    ):
        mute.bind(str(control.socket))
        mute.listen(0)
        first.connect(str(control.socket))
        with pytest.raises(NoAnswerError, match=f"process {os.getpid()}"):
            glance((), None, environ, limit_s=0.05)


# --- following --------------------------------------------------------------------------------------
def _status(elapsed: float, status: str) -> dict[str, Any]:
    track = {"elapsed_min": elapsed, "status": status}
    notices = [{"sink": "webhook", "next_try_s": elapsed}]
    return {"at": f"{elapsed}", "daemon": True, "notices": notices, "projects": [{"tracks": [track]}]}


def test_passing_time_is_not_a_change() -> None:
    """A line of JSON comes when something has changed."""
    statuses = [_status(1, "running"), _status(2, "running"), _status(3, "pass"), _status(4, "running")]

    assert [statuses[0], statuses[2], statuses[3]] == list(changes(iter(statuses)))


def test_a_pipe_gets_each_change_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Not when the reader ends it."""
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


def test_one_missing_answer_does_not_end_it() -> None:
    """A daemon may be too busy for once; its last answer stays, with the time of it."""
    answer = Answer(
        {"at": "2026-01-31T22:15:09Z", "daemon": True, "projects": [], "warnings": ["x"]}, daemon=True
    )
    answers: list[Answer | HandoffdError] = [
        answer, HandoffdError("the daemon does not answer"), answer, NotFound("no such project"),
    ]  # fmt: skip

    def ask() -> Answer:
        following = answers.pop(0)
        if isinstance(following, HandoffdError):
            raise following
        return following

    patient = patiently(ask)
    warnings = [patient().json["warnings"] for _ in range(3)]

    assert ["x"] == warnings[0] == warnings[2]
    assert warnings[1][0].startswith("the daemon does not answer; the status above is of ")
    with pytest.raises(NotFound):
        patient()
    answers.append(HandoffdError("not at all"))
    with pytest.raises(HandoffdError, match="not at all"):
        patiently(ask)()


def test_a_small_terminal_gets_what_fits() -> None:
    """Of one project the beginning, and every warning; of all, what matters most."""
    view = project_view("/srv/shop", track_view(human_note="be kind", parked=("US-8",)))
    status = {"daemon": True, "warnings": ["the disk is full"], "projects": [plain(view)]}

    whole = fitted(status, whole=True, every=False, size=(80, 6))
    all_of_them = fitted(status, whole=False, every=True, size=(80, 3))

    assert (6, "…", "warning: the disk is full") == (len(whole), whole[3], whole[-1])
    assert ["1 needs you:", "  shop  US-001  review 2/4  your review"] == [
        unstyled(line) for line in all_of_them[:2]
    ]


def _change(control: Controlled, status: str) -> None:
    view = control.supervision.projects["/srv/shop"]
    control.supervision.projects["/srv/shop"] = replace(view, tracks=(track_view(status=status),))


def test_a_terminal_shows_each_change(control: Controlled) -> None:
    """On one screen, until Ctrl-C."""
    leader, follower = os.openpty()

    def read_until(words: bytes) -> None:
        shown = b""
        while words not in shown:
            assert select.select([leader], [], [], 60)[0], shown
            shown += os.read(leader, 65536)  # an error when the program has ended

    env = environment(control.runtime) | {"TERM": "xterm"}
    with (
        closing(os.fdopen(leader, "rb", buffering=0)),
        started("status", "shop", "--watch", env=env, stdin=follower, stdout=follower) as process,
    ):
        os.close(follower)
        read_until(b"needs_human")
        _change(control, "timeout")
        read_until(b"timeout")
        process.send_signal(signal.SIGINT)
        assert 130 == process.wait(60)


def test_a_follower_waits_for_a_connection_and_gets_a_line_of_json_for_each_change(
    supervision: MemorySupervision,
) -> None:
    """It reports that it waits."""
    with (
        controlled(supervision, limits=Limits(connections=1)) as control,
        socket.socket(socket.AF_UNIX) as held,
    ):
        held.connect(str(control.socket))
        held.sendall(b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert held.recv(12).endswith(b"200")
        words = ("status", "shop", "--watch", "--json")
        with started(*words, env=environment(control.runtime)) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert b"trying again in 1 s" in process.stderr.readline()
            held.close()
            for status in ("needs_human", "pass"):
                shown = json.loads(process.stdout.readline())["projects"][0]
                assert ("/srv/shop", status) == (shown["project"], shown["tracks"][0]["status"])
                _change(control, "pass")
            process.send_signal(signal.SIGINT)
            assert 130 == process.wait(60)
