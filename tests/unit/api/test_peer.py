"""The process at the other end of a connection, and whether it belongs to an executor."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.support.children import ending

from handoffd.api.http.server import Peer, own_uid, peer_of
from handoffd.api.service import inside_executor

_WAIT = "import sys; print('up', flush=True); sys.stdin.read()"
_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_WAIT!r}], env={{}})"


@contextmanager
def _process(code: str, *arguments: str, env: Mapping[str, str]) -> Iterator[int]:
    """Lend the pid of a process that waits, parentless in what it inherits of this test's environment."""
    argv = [sys.executable, "-I", "-c", code, *arguments]
    with ending(
        subprocess.Popen(argv, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.stdin.close()


def _child_of(pid: int) -> int:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return int(file.read().split()[0])


def test_the_kernel_says_who_connected() -> None:
    """Neither side can claim to be another process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert Peer(pid=os.getpid(), uid=own_uid()) == peer_of(ours)


def test_a_process_with_a_run_id_is_inside() -> None:
    """By its own environment, or by its parent's if it cleared its own."""
    with _process(_WAIT, env={"HANDOFFD_RUN": "d1"}) as pid:
        assert inside_executor(pid)
    with _process(_CHILD, env={"HANDOFFD_RUN": "d1"}) as parent:
        assert inside_executor(_child_of(parent))


def test_a_descendant_of_a_shim_is_inside() -> None:
    """The shim is known by its program, whatever its environment."""
    with _process(_WAIT, "/opt/handoffd/execute/runner/shim.py", env={}) as pid:
        assert inside_executor(pid)


def test_a_process_that_is_gone_is_inside() -> None:
    """A process that cannot be examined opens no gate."""
    with ending(subprocess.Popen([sys.executable, "-c", ""])) as process:
        process.wait()

    assert inside_executor(process.pid)


def test_the_first_process_of_the_machine_is_not_inside() -> None:
    """The walk ends there, and there is nothing above it."""
    assert not inside_executor(1)
