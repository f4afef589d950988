"""What the launcher answers about processes, and what the kernel counts of their connections."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.children import ending
from tests.support.eventually import eventually_sync

from handoffd.execute.runner import proc
from handoffd.execute.runner.proc_probe import MOST, Received, answer, is_marked, received


def test_it_answers_what_processes_have_written() -> None:
    """In bytes, by process; a process that is gone is left out."""
    with ending(subprocess.Popen(["true"])) as gone:
        gone.wait()

    verb, *words = (answer(b"written", b"%d %d" % (os.getpid(), gone.pid)) or b"").split()

    seen = proc.shown_written(os.getpid())
    (word,) = words
    pid, calls, stored = map(int, word.split(b":"))
    assert (b"written", os.getpid()) == (verb, pid)
    assert 0 <= calls <= seen.calls
    assert 0 <= stored <= seen.stored


def test_it_answers_what_connections_have_received() -> None:
    """Of all processes together, by the number of the socket."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        other, _ = server.accept()
        with other:
            other.sendall(b"x" * 100)
            one.recv(100)
            said = answer(b"received", b"%d 4194305" % os.getpid()) or b""
            number = os.fstat(one.fileno()).st_ino

    assert b"%d:100:1" % number in said.split()
    assert b"received" == answer(b"received", b"4194305")


def test_it_answers_which_processes_belong_to_a_run() -> None:
    """By the environment a process was given."""
    code = "import sys; print(flush=True); sys.stdin.read()"
    processes = []
    for env in ({"HANDOFFD_RUN": "d1"}, {"NOT_HANDOFFD_RUN": "d1"}):
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        processes.append(process)
    try:
        marked, plain = processes
        said = answer(b"marked", b"%d %d" % (marked.pid, plain.pid))
    finally:
        for process in processes:
            process.communicate()

    assert b"marked %d" % marked.pid == said


@pytest.mark.parametrize("rest", [b"", b"x -1 1.5", b"0 4194305"])
def test_nonsense_is_answered_with_nothing(rest: bytes) -> None:
    """No process has such a number."""
    assert b"written" == answer(b"written", rest)
    assert b"marked" == answer(b"marked", rest)
    assert answer(b"kill", rest) is None  # the launcher then answers that it does not know the request


def test_an_answer_is_bounded() -> None:
    """It has to fit into one packet."""
    many = b" ".join([b"%d" % os.getpid()] * (MOST + 1))

    assert 1 + MOST == len((answer(b"written", many) or b"").split())


def test_a_mark_is_a_variable_of_that_name() -> None:
    """Not its name inside another one's value."""
    assert is_marked(b"A=1\0HANDOFFD_RUN=d1\0")
    assert not is_marked(b"A=HANDOFFD_RUN=d1\0XHANDOFFD_RUN=d1\0")


# --- the kernel's count -------------------------------------------------------------------------------
PEER = """
import socket, sys
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while peer.recv(4096):
    peer.sendall(b"heard")
"""


@contextmanager
def connected(host: str = "127.0.0.1") -> Iterator[tuple[int, socket.socket]]:
    """Lend the pid of a process and our end of its connection."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        argv = [sys.executable, "-I", "-S", "-c", PEER, host, str(server.getsockname()[1])]
        with ending(subprocess.Popen(argv)) as process:
            ours, _ = server.accept()
            with ours:
                yield process.pid, ours


def send(ours: socket.socket, data: bytes) -> None:
    """Send `data` as a segment of its own, and return when it was read."""
    ours.sendall(data)
    assert b"heard" == ours.recv(5)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_bytes_and_segments_of_another_process_are_counted(host: str) -> None:
    """Of both families, without a request of that process."""
    with connected(host) as (pid, ours):
        (before,) = received([pid])
        for data in (b"x" * 100, b"x" * 30, b"x"):
            send(ours, data)
        (after,) = received([pid])

    assert (0, 0) == (before.data_bytes, before.segments)
    assert Received(before.number, 131, 3) == after


def test_a_process_without_a_connection_has_received_nothing() -> None:
    """Nor has one that is gone; other processes do not count."""
    with connected() as (pid, ours), ending(subprocess.Popen(["sleep", "600"])) as other:
        send(ours, b"x" * 100)
        assert () == received([other.pid])
        assert [100] == [one.data_bytes for one in received([other.pid, pid])]
        other.kill()
    assert () == received([other.pid, pid])
    assert () == received([])


def test_a_connection_that_waits_to_be_taken_is_passed_over() -> None:
    """A listening one has received nothing itself."""
    with socket.create_server(("127.0.0.1", 0)):
        eventually_sync(lambda: not any(one.data_bytes for one in received([os.getpid()])))
