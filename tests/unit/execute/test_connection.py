"""The client's end of the launcher's socket: which answers count, and for how long it waits."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from handoffd import __version__
from handoffd.execute.process import Connection

PATIENT_S = 60.0
HASTY_S = 0.05


@contextmanager
def silent(path: Path, backlog: int = 8) -> Iterator[socket.socket]:
    """Listen at `path` as a hung launcher does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as listener:
        listener.bind(str(path))
        listener.listen(backlog)
        yield listener


@asynccontextmanager
async def answering(path: Path, answers: Mapping[bytes, Sequence[bytes]]) -> AsyncIterator[list[bytes]]:
    """Answer one caller as a launcher does; yields its requests."""
    asked: list[bytes] = []

    async def serve(listener: socket.socket) -> None:
        await anyio.wait_readable(listener)
        caller, _ = listener.accept()
        with caller:
            while asked[-1:] != [b""]:
                await anyio.wait_readable(caller)
                asked.append(caller.recv(4096))
                with suppress(BrokenPipeError):  # it did not wait for the answer
                    for packet in answers.get(asked[-1], ()):
                        caller.send(packet)

    with silent(path) as listener, anyio.fail_after(PATIENT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, listener)
            yield asked


async def opened(path: Path, patience_s: float = PATIENT_S) -> Connection:
    """Return a connection that must be there."""
    connection = await Connection.open(path, patience_s)
    assert connection is not None
    return connection


@pytest.mark.parametrize(
    ("answer", "current"),
    [
        (f"handoffd {__version__} 42", True),
        (f"handoffd {__version__}.1 42", False),
        ("handoffd", False),
        ("another program", False),
    ],
)
async def test_only_a_launcher_of_our_version_is_current(
    tmp_path: Path, answer: str, *, current: bool
) -> None:
    """Any other answer means that it cannot be used."""
    async with answering(tmp_path / "l.sock", {b"hello": [answer.encode()]}):
        with await opened(tmp_path / "l.sock") as connection:
            assert current is await connection.is_current()


async def test_listener_is_known_without_a_request(tmp_path: Path) -> None:
    """The kernel names the process, also of one that hangs."""
    with silent(tmp_path / "l.sock"), await opened(tmp_path / "l.sock") as connection:
        assert os.getpid() == connection.pid


async def test_without_a_listener_there_is_no_connection(tmp_path: Path) -> None:
    """Neither without a folder, nor without a socket, nor with one that was left behind."""
    with silent(tmp_path / "left.sock"):
        pass

    for name in ("none/l.sock", "l.sock", "left.sock"):
        assert None is await Connection.open(tmp_path / name, PATIENT_S)


async def test_a_hung_launcher_is_not_waited_for(tmp_path: Path) -> None:
    """Neither for an answer nor, when its queue of callers is full, for a connection."""
    with silent(tmp_path / "l.sock", backlog=0), await opened(tmp_path / "l.sock", HASTY_S) as connection:
        assert not await connection.is_current()
        assert None is await connection.run(tmp_path)
        connection.tell_to_retire()
        assert None is await Connection.open(tmp_path / "l.sock", HASTY_S)


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        (["accepted", "12 345"], "12 345"),
        (["accepted", "error no process"], "error no process"),
        (["error no such folder"], "error no such folder"),
        (["refused 9.9"], None),
        (["error unknown request"], "error unknown request"),
    ],
)
async def test_a_run_is_taken_and_then_answered(
    tmp_path: Path, answers: list[str], outcome: str | None
) -> None:
    """A launcher of another version has not taken it; any other answer is final."""
    run_dir = tmp_path / "with a blank"
    request = b"run %s %s" % (__version__.encode(), os.fsencode(run_dir))
    async with answering(tmp_path / "l.sock", {request: [answer.encode() for answer in answers]}):
        with await opened(tmp_path / "l.sock") as connection:
            assert outcome == await connection.run(run_dir)


async def test_retiring_with_and_without_waiting_send_the_same_request(tmp_path: Path) -> None:
    """Only `retire` reads the answer."""
    async with answering(tmp_path / "l.sock", {b"retire": [b"retiring"]}) as asked:
        with await opened(tmp_path / "l.sock") as connection:
            await connection.retire()
            connection.tell_to_retire()

    assert [b"retire", b"retire", b""] == asked


async def test_a_socket_that_a_dead_launcher_left_open_has_no_listener(tmp_path: Path) -> None:
    """A child that it had just forked may hold its socket for a moment."""
    path = tmp_path / "l.sock"
    listens = f"s.bind({str(path)!r}); s.listen(); os.fork() or os.read(0, 1)"
    code = f"import os, socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); {listens}"
    async with await anyio.open_process([sys.executable, "-c", code]) as launcher:
        await launcher.wait()
        assert await Connection.open(path, PATIENT_S) is None
