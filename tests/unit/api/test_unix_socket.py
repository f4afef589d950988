"""A question to the daemon without a library for HTTP."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.controlled import controlled
from tests.support.supervision import MemorySupervision

from handoffd.api.unix_socket import BadAnswerError, NoAnswerError, ask, read


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Lend the path of a socket on which one question is answered with these bytes."""
    with (
        tempfile.TemporaryDirectory(prefix="handoffd-") as folder,
        socket.socket(socket.AF_UNIX) as listening,
    ):
        path = str(Path(folder, "control.sock"))
        listening.bind(path)
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            thread.join()


def test_the_daemon_is_asked_as_by_any_client(tmp_path: Path) -> None:
    """What it answers as an error is an answer, too."""
    with controlled(MemorySupervision()) as house:
        said = ask(str(house.socket), "pause", {"project": str(tmp_path), "by": "eve"}, 30)

    assert said is not None
    assert ("error", "NOT_FOUND") == (said["type"], said["code"])


def test_without_a_daemon_there_is_no_answer(tmp_path: Path) -> None:
    """Whether there never was one or it is gone."""
    with socket.socket(socket.AF_UNIX) as gone, tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "s"))
        gone.bind(path)
        assert ask(path, "apply", {}, 1) is None
    assert ask(str(tmp_path / "none.sock"), "apply", {}, 1) is None


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"nonsense", b"\r\n\r\n[]", b"\r\n\r\n{"]
)
def test_what_is_no_answer_is_said(answer: bytes) -> None:
    """A daemon that died before it answered may have acted."""
    with answering(answer) as path, pytest.raises(BadAnswerError):
        ask(path, "apply", {}, 30)


def test_a_daemon_that_is_silent_is_given_up() -> None:
    """The hook has an end, whatever the daemon does."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as folder, socket.socket(socket.AF_UNIX) as silent:
        path = str(Path(folder, "control.sock"))
        silent.bind(path)
        silent.listen()
        with pytest.raises(NoAnswerError) as caught:
            ask(path, "apply", {}, 0.05)

    assert f"a daemon runs (process {os.getpid()}) and does not answer; next: handoffd doctor" == str(
        caught.value
    )


def test_a_read_is_answered_or_refused() -> None:
    """What is refused has no answer here: whoever asks has another way to say why."""
    with controlled(MemorySupervision()) as house:
        answer = read(str(house.socket), "/v1/status", 30, 1 << 20)

        assert read(str(house.socket), "/v1/status?project=/nowhere", 30, 1 << 20) is None
        with pytest.raises(BadAnswerError, match="no end"):
            read(str(house.socket), "/v1/status", 30, 10)

    assert answer is not None
    assert answer["daemon"] is True
