"""Asking the daemon with the standard library."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.controlled import Controlled

from handoffd.api.client import Client
from handoffd.engine.decision import Refusal
from handoffd.errors import HandoffdError, NoAnswer, NoDaemon, NotFound, Refused, StoreError


@contextmanager
def _somebody(path: Path, answer: bytes, *, reads: bool = True) -> Iterator[None]:
    """Listen at `path` and answer one request with raw bytes, then hang up; or do so before it comes."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                if reads:
                    connection.recv(65536)
                connection.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        yield
        server.join(60)


def test_a_refusal_before_the_request_is_read(tmp_path: Path) -> None:
    """A daemon that has no place says so and hangs up, whatever is being sent."""
    body = b'{"type": "error", "code": "TOO_MANY_CONNECTIONS", "message": "full", "hint": "ps -fp 7"}'
    head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n" % len(body)
    path = tmp_path / "c.sock"
    with (
        _somebody(path, head + body, reads=False),
        pytest.raises(StoreError, match="full") as caught,
    ):
        Client(path).post("/v1/verbs/note", {"text": "x" * 4_000_000})

    assert ("TOO_MANY_CONNECTIONS", "ps -fp 7") == (caught.value.code, caught.value.hint)


def test_answers_and_errors_are_those_of_the_daemon(control: Controlled) -> None:
    """An error arrives as what it was there: kind, code, message, hint."""
    assert "/srv/shop" == control.client.get("/v1/projects/shop")["project"]

    with pytest.raises(NotFound) as caught:
        control.client.get("/v1/status", project="nope")

    assert ("NOT_FOUND", "handoffd projects") == (caught.value.code, caught.value.hint)
    with pytest.raises(Refused):
        control.client.post("/v1/verbs/approve", {"project": "shop", "nope": 1})


def test_what_an_error_says_besides_arrives_too(control: Controlled, tmp_path: Path) -> None:
    """The problems of a file, each with its place; the daemon's hint opens it."""
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai/handoffd.yaml").write_text("auto: maybe\n", encoding="utf-8")

    with pytest.raises(HandoffdError) as caught:
        control.client.post("/v1/verbs/init", {"project": str(tmp_path)})

    problem = {
        "file": ".ai/handoffd.yaml", "line": 1, "key": "auto",
        "message": "must be true or false, not 'maybe'", "allowed": [],
    }  # fmt: skip
    assert {"problems": [problem]} == caught.value.details
    assert f"${{EDITOR:-vi}} +1 {tmp_path}/.ai/handoffd.yaml" == caught.value.hint


def test_a_refusal_of_the_engine_is_an_answer(control: Controlled) -> None:
    """It is for the caller to say what it means."""
    control.supervision.answer = Refusal(code="WRONG_STEP", message="no", caller_instruction="no; wait")

    assert "WRONG_STEP" == control.client.post("/v1/verbs/approve", {"project": "shop"})["code"]


def test_paths_and_names_survive_the_query(control: Controlled) -> None:
    """Blanks, percent signs, ampersands and other letters."""
    root = "/srv/50% off & 店"
    control.supervision.projects[root] = control.supervision.projects["/srv/shop"]

    assert 1 == len(control.client.get("/v1/status", project=root)["projects"])


@pytest.mark.parametrize("make", [lambda path: None, Path.touch, Path.mkdir])
def test_where_nobody_listens_there_is_no_daemon(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Missing, or not a socket at all."""
    make(tmp_path / "c.sock")

    with pytest.raises(NoDaemon) as caught:
        Client(tmp_path / "c.sock").get("/v1/health")

    assert "handoffd run" == caught.value.hint


def test_a_socket_nobody_holds_is_no_daemon(tmp_path: Path) -> None:
    """What a killed daemon leaves."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "c.sock"))

    with pytest.raises(NoDaemon):
        Client(tmp_path / "c.sock").get("/v1/health")


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", b"gibberish\r\n\r\n"]
)
def test_a_daemon_that_dies_while_it_answers_is_said(tmp_path: Path, answer: bytes) -> None:
    """It may have acted: that is not the same as no daemon."""
    with _somebody(tmp_path / "c.sock", answer), pytest.raises(HandoffdError) as caught:
        Client(tmp_path / "c.sock").get("/v1/health")

    assert "NO_ANSWER" == caught.value.code


def test_a_daemon_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    """After as long as the caller has."""
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "c.sock"))
        mute.listen()
        with pytest.raises(NoAnswer, match=rf"process {os.getpid()}\) and does not answer") as caught:
            Client(tmp_path / "c.sock", answer_s=0.1).get("/v1/health")

    assert ("NO_ANSWER", 1) == (caught.value.code, caught.value.exit_code)


def test_a_daemon_whose_queue_is_full_is_no_missing_one(tmp_path: Path) -> None:
    """Its lock tells which process it is, where the kernel does not."""
    with socket.socket(socket.AF_UNIX) as mute, socket.socket(socket.AF_UNIX) as first:
        mute.bind(str(tmp_path / "c.sock"))
        mute.listen(0)
        first.connect(str(tmp_path / "c.sock"))
        with pytest.raises(NoAnswer, match=r"process 1\) and does not answer"):
            Client(tmp_path / "c.sock", answer_s=0.1, holder=lambda: 1).get("/v1/health")


def test_what_is_no_handoffd_is_said(tmp_path: Path) -> None:
    """Somebody else's server on the socket."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    with _somebody(tmp_path / "c.sock", answer), pytest.raises(HandoffdError) as caught:
        Client(tmp_path / "c.sock").get("/v1/health")

    assert "BAD_ANSWER" == caught.value.code


def test_a_stream_that_breaks_off_is_no_end(tmp_path: Path) -> None:
    """A daemon that was killed is told from one that ended the stream."""
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"
    with _somebody(tmp_path / "c.sock", answer):
        lines = Client(tmp_path / "c.sock").lines("/v1/events")

        assert {} == next(lines)
        with pytest.raises(NoDaemon):
            next(lines)


def test_the_kernel_tells_who_the_daemon_is(control: Controlled) -> None:
    """Here, this very process."""
    assert os.getpid() == control.client.daemon_pid()


def test_the_client_is_made_of_the_standard_library() -> None:
    """Its import is on the way of every command."""
    code = "import sys; import handoffd.api.client; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert not {"pydantic", "structlog", "anyio", "httpx", "click"} & set(loaded.stdout.split())
