"""A question over the socket without a library for HTTP: to a daemon that works, one that hangs, and none."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.support.children import ending
from tests.support.controlled import controlled
from tests.support.eventually import eventually_sync
from tests.support.supervision import MemorySupervision
from tests.unit.api.conftest import answering

from handoffd.api.unix_socket import (
    BadAnswerError,
    NoAnswerError,
    Silent,
    ask,
    connect,
    listener_of,
    read,
    send,
    wait,
    works,
)

LISTEN = """
import os, socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen(1)
{then}
print("listens", flush=True)
sys.stdin.read()
"""
FORK = """
if os.fork() == 0:
    listening.accept()
"""


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """A socket that is not connected yet."""
    with socket.socket(socket.AF_UNIX) as made:
        yield made


@contextmanager
def listening(path: str, then: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Lend a process that listens at `path`, and accepts no connection."""
    with ending(subprocess.Popen(
        [sys.executable, "-c", LISTEN.format(then=then), path],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_process_that_hangs_is_named(path: str, connection: socket.socket) -> None:
    """It takes connections, and answers neither the request nor a question about its health."""
    with listening(path) as process:
        connect(connection, path, 60)

        assert process.pid == listener_of(connection)
        with pytest.raises(Silent) as caught:
            wait(connection, path, 0.05)
    assert (process.pid, False, "handoffd doctor") == (
        caught.value.pid, caught.value.stopped, caught.value.hint,
    )  # fmt: skip
    assert f"a daemon runs (process {process.pid}) and does not answer" == caught.value.message


def test_a_process_that_is_stopped_can_be_woken(path: str, connection: socket.socket) -> None:
    """The error has the command, however long the caller would wait."""
    with listening(path) as process:
        connect(connection, path, 60)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(Silent) as caught:
            wait(connection, path, None, silence_s=0.01)

    assert f"kill -CONT {process.pid}" == caught.value.hint
    assert "SIGSTOP" in caught.value.message


def test_a_queue_that_stays_full_is_a_daemon_that_does_not_answer(path: str) -> None:
    """Not a missing one."""
    with listening(path), ExitStack() as held:
        for _ in range(2):
            connect(held.enter_context(socket.socket(socket.AF_UNIX)), path, 60)
        late = held.enter_context(socket.socket(socket.AF_UNIX))
        with pytest.raises(Silent) as caught:
            connect(late, path, 0.05)
        assert not works(path, 0.05)

    assert (0, "a daemon runs and does not answer") == (caught.value.pid, caught.value.message)


def test_a_caller_waits_for_room_in_the_queue(path: str, connection: socket.socket) -> None:
    """Of many, each is answered in its turn."""
    with socket.socket(socket.AF_UNIX) as server, ExitStack() as held:
        server.bind(path)
        server.listen(0)
        connect(held.enter_context(socket.socket(socket.AF_UNIX)), path, 60)
        waiting = threading.Thread(target=connect, args=(connection, path, 60))
        waiting.start()
        for _ in range(2):
            held.enter_context(server.accept()[0])
        waiting.join(60)

        assert path == connection.getpeername()


def test_a_caller_waits_for_a_long_answer_of_a_healthy_daemon(path: str, connection: socket.socket) -> None:
    """It asks about the health on further connections."""
    looked = threading.Semaphore(0)

    def serve(server: socket.socket) -> None:
        with server.accept()[0] as first:
            for _ in range(3):
                with server.accept()[0] as look:
                    look.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                looked.release()
            first.sendall(b"at last")

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        connect(connection, path, 60)
        wait(connection, path, None, silence_s=0.001)

        assert b"at last" == connection.recv(100)
        thread.join(60)
    assert [True] * 3 == [looked.acquire(timeout=60) for _ in range(3)]


def test_a_request_that_is_not_read_is_given_up(path: str, connection: socket.socket) -> None:
    """If it is larger than the kernel keeps for the process."""
    with listening(path):
        connect(connection, path, 0.05)
        with pytest.raises(Silent):
            send(connection, b"x" * 10_000_000)


def test_an_end_before_all_is_sent_leaves_an_answer() -> None:
    """A refusal comes so."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours:
        theirs.sendall(b"no")
        theirs.close()
        send(ours, b"x" * 4_000_000)
        assert b"no" == ours.recv(9)


def test_a_dead_listener_is_no_daemon(path: str, connection: socket.socket) -> None:
    """Though its child still has the socket, and never answers; nor is a missing socket."""
    with pytest.raises(FileNotFoundError):
        connect(connection, path, 60)
    with listening(path, FORK) as process:
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ConnectionRefusedError):
            connect(connection, path, 60)
        assert eventually_sync(lambda: works(path, 0.05))  # there is nothing to wait for


# --- one question ------------------------------------------------------------------------------------
def test_an_error_of_the_daemon_is_an_answer(tmp_path: Path) -> None:
    """To the question of any client."""
    with controlled(MemorySupervision()) as house:
        said = ask(str(house.socket), "pause", {"project": str(tmp_path), "by": "eve"}, 30)

    assert said is not None
    assert ("error", "NOT_FOUND") == (said["type"], said["code"])


def test_without_a_daemon_there_is_no_answer(path: str) -> None:
    """Neither where there never was one, nor where it died."""
    assert ask(path, "apply", {}, 1) is None
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(path)
        assert ask(path, "apply", {}, 1) is None


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"nonsense", b"\r\n\r\n[]", b"\r\n\r\n{"]
)
def test_a_broken_answer_is_an_error(path: str, answer: bytes) -> None:
    """A daemon that died before it answered may have acted."""
    with answering(path, answer), pytest.raises(BadAnswerError):
        ask(path, "apply", {}, 30)


def test_a_silent_daemon_is_given_up(path: str) -> None:
    """The hook has an end, whatever the daemon does."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        with pytest.raises(NoAnswerError) as caught:
            ask(path, "apply", {}, 0.05)

    assert f"a daemon runs (process {os.getpid()}) and does not answer; next: handoffd doctor" == str(
        caught.value
    )


def test_a_read_is_answered_or_refused() -> None:
    """A refusal is None here: the caller has another way to learn why."""
    with controlled(MemorySupervision()) as house:
        answer = read(str(house.socket), "/v1/status", 30, 1 << 20)

        assert read(str(house.socket), "/v1/status?project=/nowhere", 30, 1 << 20) is None
        with pytest.raises(BadAnswerError, match="no end"):
            read(str(house.socket), "/v1/status", 30, 10)

    assert answer is not None
    assert answer["daemon"] is True
