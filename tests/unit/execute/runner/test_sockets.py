"""What the connections of processes have received, by the word of the kernel."""

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

from handoffd.execute.runner.proc_probe import Received, received

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
def test_bytes_and_segments_of_another_process_are_told(host: str) -> None:
    """Of both families, without being asked by that process."""
    with connected(host) as (pid, ours):
        (before,) = received([pid])
        for data in (b"x" * 100, b"x" * 30, b"x"):
            send(ours, data)
        (after,) = received([pid])

    assert (0, 0) == (before.data_bytes, before.segments)
    assert Received(before.number, 131, 3) == after


def test_who_has_no_connection_has_received_nothing() -> None:
    """Nor has one that is gone; others do not get in between."""
    with connected() as (pid, ours), ending(subprocess.Popen(["sleep", "600"])) as other:
        send(ours, b"x" * 100)
        assert () == received([other.pid])
        assert [100] == [one.data_bytes for one in received([other.pid, pid])]
        other.kill()
    assert () == received([other.pid, pid])
    assert () == received([])


def test_a_connection_that_waits_to_be_taken_is_passed_over() -> None:
    """One that listens has received nothing itself."""
    with socket.create_server(("127.0.0.1", 0)):
        eventually_sync(lambda: not any(one.data_bytes for one in received([os.getpid()])))
