"""A daemon that works, one that does not, and none."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.support.children import ending
from tests.support.eventually import eventually_sync

from handoffd.api.unix_socket import Silent, connect, listener_of, send, wait, works

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
def path() -> Iterator[str]:
    """Where a socket can be made: paths of sockets have room for about a hundred bytes only."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as folder:
        yield str(Path(folder, "control.sock"))


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    """A socket that is not connected yet."""
    with socket.socket(socket.AF_UNIX) as made:
        yield made


@contextmanager
def listening(path: str, then: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Lend a process that listens at `path`, and accepts nobody."""
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
    """It takes connections, and neither answers nor says that it is well."""
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
    """However long its answer would be waited for."""
    with listening(path) as process:
        connect(connection, path, 60)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(Silent) as caught:
            wait(connection, path, None, silence_s=0.01)

    assert f"kill -CONT {process.pid}" == caught.value.hint
    assert "SIGSTOP" in caught.value.message


def test_a_queue_that_stays_full_is_a_daemon_that_does_not_answer(path: str) -> None:
    """It is not taken for none."""
    with listening(path), ExitStack() as held:
        for _ in range(2):
            connect(held.enter_context(socket.socket(socket.AF_UNIX)), path, 60)
        late = held.enter_context(socket.socket(socket.AF_UNIX))
        with pytest.raises(Silent) as caught:
            connect(late, path, 0.05)
        assert not works(path, 0.05)

    assert (0, "a daemon runs and does not answer") == (caught.value.pid, caught.value.message)


def test_room_in_the_queue_is_waited_for(path: str, connection: socket.socket) -> None:
    """One that comes with many others is answered in its turn."""
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


def test_a_long_answer_is_waited_for_while_the_daemon_is_well(path: str, connection: socket.socket) -> None:
    """Its health is asked about on connections of their own."""
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


def test_what_is_not_taken_is_no_answer(path: str, connection: socket.socket) -> None:
    """A request that is larger than the kernel keeps for a process that does not read."""
    with listening(path):
        connect(connection, path, 0.05)
        with pytest.raises(Silent):
            send(connection, b"x" * 10_000_000)


def test_an_end_before_all_is_sent_leaves_the_answer_to_be_read() -> None:
    """A refusal comes so."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours:
        theirs.sendall(b"no")
        theirs.close()
        send(ours, b"x" * 4_000_000)
        assert b"no" == ours.recv(9)


def test_a_listener_that_is_dead_is_none(path: str, connection: socket.socket) -> None:
    """A child that it was just starting still has its socket, and never answers."""
    with listening(path, FORK) as process:
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ConnectionRefusedError):
            connect(connection, path, 60)
        assert eventually_sync(lambda: works(path, 0.05))  # nothing that would have to be waited for


def test_no_socket_is_no_daemon(path: str, connection: socket.socket) -> None:
    """The kernel's own word."""
    with pytest.raises(FileNotFoundError):
        connect(connection, path, 60)
