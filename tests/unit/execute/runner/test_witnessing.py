"""What the launcher answers about processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from tests.support.children import ending

from handoffd.execute.runner import proc
from handoffd.execute.runner.proc_probe import MOST, answer, is_marked


def test_it_tells_what_processes_have_written() -> None:
    """In bytes, by process; those that are gone are left out."""
    with ending(subprocess.Popen(["true"])) as gone:
        gone.wait()

    verb, *words = (answer(b"written", b"%d %d" % (os.getpid(), gone.pid)) or b"").split()

    seen = proc.shown_written(os.getpid())
    (word,) = words
    pid, calls, stored = map(int, word.split(b":"))
    assert (b"written", os.getpid()) == (verb, pid)
    assert 0 <= calls <= seen.calls
    assert 0 <= stored <= seen.stored


def test_it_tells_what_connections_have_received() -> None:
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


def test_it_tells_who_belongs_to_a_run() -> None:
    """By the environment a process was given."""
    code = "import sys; print(flush=True); sys.stdin.read()"
    pids = []
    for env in ({"HANDOFFD_RUN": "d1"}, {"NOT_HANDOFFD_RUN": "d1"}):
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        pids.append(process)
    try:
        marked, plain = pids
        said = answer(b"marked", b"%d %d" % (marked.pid, plain.pid))
    finally:
        for process in pids:
            process.communicate()

    assert b"marked %d" % marked.pid == said


@pytest.mark.parametrize("rest", [b"", b"x -1 1.5", b"0 4194305"])
def test_nonsense_is_answered_with_nothing(rest: bytes) -> None:
    """No process is called that."""
    assert b"written" == answer(b"written", rest)
    assert b"marked" == answer(b"marked", rest)


def test_another_request_is_for_somebody_else() -> None:
    """The launcher then says that it does not know it."""
    assert answer(b"kill", b"1") is None


def test_an_answer_is_bounded() -> None:
    """It has to fit into one packet."""
    many = b" ".join([b"%d" % os.getpid()] * (MOST + 1))

    assert 1 + MOST == len((answer(b"written", many) or b"").split())


def test_a_mark_is_a_variable_of_that_name() -> None:
    """Not its name inside another one's value."""
    assert is_marked(b"A=1\0HANDOFFD_RUN=d1\0")
    assert not is_marked(b"A=HANDOFFD_RUN=d1\0XHANDOFFD_RUN=d1\0")
