"""Asking the daemon with the standard library."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.controlled import Controlled
from tests.support.refusals import refused
from tests.unit.api.conftest import answering

from handoffd.api.client import Client
from handoffd.engine.decision import Refusal
from handoffd.errors import HandoffdError, NoAnswer, NoDaemon, NotFound, Refused, StoreError


def _client(path: str, **more: Any) -> Client:
    return Client(Path(path), **more)


def test_a_refusal_may_come_before_the_request_is_read(path: str) -> None:
    """A daemon without a place for it hangs up, however much is being sent."""
    body = b'{"type": "error", "code": "TOO_MANY_CONNECTIONS", "message": "full", "hint": "ps -fp 7"}'
    head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n" % len(body)
    with (
        answering(path, head + body, reads=False),
        refused("TOO_MANY_CONNECTIONS", "ps -fp 7", kind=StoreError, match="full"),
    ):
        _client(path).post("/v1/verbs/note", {"text": "x" * 4_000_000})


def test_answers_and_errors_are_those_of_the_daemon(control: Controlled) -> None:
    """An error has the same kind, code, message and hint; a refusal of the engine is an answer."""
    assert "/srv/shop" == control.client.get("/v1/projects/shop")["project"]
    assert os.getpid() == control.client.daemon_pid()
    control.supervision.answer = Refusal(code="WRONG_STEP", message="no", caller_instruction="no; wait")
    assert "WRONG_STEP" == control.client.post("/v1/verbs/approve", {"project": "shop"})["code"]

    with refused("NOT_FOUND", "handoffd projects", kind=NotFound):
        control.client.get("/v1/status", project="nope")
    with pytest.raises(Refused):
        control.client.post("/v1/verbs/approve", {"project": "shop", "nope": 1})


def test_the_details_of_an_error_arrive(control: Controlled, tmp_path: Path) -> None:
    """The problems of a file, each with its place; the daemon's hint opens it."""
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai/handoffd.yaml").write_text("auto: maybe\n", encoding="utf-8")

    with pytest.raises(HandoffdError) as caught:
        control.client.post("/v1/verbs/init", {"project": str(tmp_path)})

    problem = {
        "file": ".ai/handoffd.yaml", "line": 1, "key": "auto",
        "message": "must be true or false, not 'maybe'", "allowed": [], "meant": None,
    }  # fmt: skip
    assert {"problems": [problem]} == caught.value.details
    assert f"${{EDITOR:-vi}} +1 {tmp_path}/.ai/handoffd.yaml" == caught.value.hint


def test_paths_and_names_survive_the_query(control: Controlled) -> None:
    """Blanks, percent signs, ampersands and other letters."""
    root = "/srv/50% off & 店"
    control.supervision.projects[root] = control.supervision.projects["/srv/shop"]

    assert 1 == len(control.client.get("/v1/status", project=root)["projects"])


def _left(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


@pytest.mark.parametrize("make", [lambda path: None, Path.touch, Path.mkdir, _left])
def test_without_a_listener_there_is_no_daemon(path: str, make: Callable[[Path], None]) -> None:
    """The socket is missing, left by a killed daemon, or something else."""
    make(Path(path))

    with pytest.raises(NoDaemon) as caught:
        _client(path).get("/v1/health")

    assert "handoffd run" == caught.value.hint


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", "NO_ANSWER"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", "NO_ANSWER"),
        (b"gibberish\r\n\r\n", "NO_ANSWER"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "BAD_ANSWER"),
    ],
)
def test_a_broken_answer_does_not_mean_that_there_is_no_daemon(path: str, answer: bytes, code: str) -> None:
    """It may have acted before it died; the last answer is another program's."""
    with answering(path, answer), refused(code, kind=HandoffdError):
        _client(path).get("/v1/health")


def test_a_silent_daemon_is_given_up(path: str) -> None:
    """After as long as the caller has."""
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(path)
        mute.listen()
        with pytest.raises(NoAnswer, match=rf"process {os.getpid()}\) and does not answer") as caught:
            _client(path, answer_s=0.1).get("/v1/health")

    assert ("NO_ANSWER", 1) == (caught.value.code, caught.value.exit_code)


def test_a_daemon_whose_queue_is_full_exists(path: str) -> None:
    """Its lock names the process, where the kernel does not."""
    with socket.socket(socket.AF_UNIX) as mute, socket.socket(socket.AF_UNIX) as first:
        mute.bind(path)
        mute.listen(0)
        first.connect(path)
        with pytest.raises(NoAnswer, match=r"process 1\) and does not answer"):
            _client(path, answer_s=0.1, holder=lambda: 1).get("/v1/health")


def test_a_stream_that_breaks_off_has_not_ended(path: str) -> None:
    """A killed daemon differs from one that ended the stream."""
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"
    with answering(path, answer):
        lines = _client(path).lines("/v1/events")

        assert {} == next(lines)
        with pytest.raises(NoDaemon):
            next(lines)


@pytest.mark.parametrize("module", ["client", "verbs"])
def test_the_command_line_imports_only_the_standard_library(module: str) -> None:
    """Every command imports the client and the table of verbs."""
    code = f"import sys; import handoffd.api.{module}; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    heavy = {"pydantic", "structlog", "anyio", "httpx", "click", "starlette"}
    assert set() == heavy & set(said.stdout.split())
