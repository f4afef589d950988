"""The launcher's socket: one at a path, for one account, handed over without a gap."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.support.children import ending
from tests.support.eventually import eventually_sync

from handoffd.execute.runner.listener import Listener, Unusable


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Everything on it is closed after the test."""
    with ExitStack() as opened:
        yield opened


def listen(stack: ExitStack, path: Path) -> Listener:
    """Listen at `path` for the time of the test."""
    return stack.enter_context(closing(Listener(str(path))))


def call(stack: ExitStack, path: Path) -> socket.socket:
    """Return a connection to the listener at `path`."""
    caller = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    caller.settimeout(60)
    caller.connect(str(path))
    return caller


def taken(stack: ExitStack, listener: Listener) -> socket.socket:
    """Return the next connection."""
    connection = eventually_sync(listener.accept)
    assert connection is not None
    return stack.enter_context(connection)


def test_caller_is_heard(stack: ExitStack, tmp_path: Path) -> None:
    """A connection of the same account is taken, and does not block."""
    listener = listen(stack, tmp_path / "run" / "l.sock")

    call(stack, tmp_path / "run" / "l.sock").send(b"hello")

    assert b"hello" == taken(stack, listener).recv(100)
    assert None is listener.accept()


def test_socket_and_folder_are_for_this_account_alone(stack: ExitStack, tmp_path: Path) -> None:
    """Other accounts cannot even try to connect."""
    listen(stack, tmp_path / "run" / "l.sock")

    assert 0o600 == (tmp_path / "run" / "l.sock").stat().st_mode & 0o777
    assert 0o700 == (tmp_path / "run").stat().st_mode & 0o777


def test_successor_takes_the_path_and_retires_its_predecessor(stack: ExitStack, tmp_path: Path) -> None:
    """Callers reach the new one from then on; the old one gets a request to retire and sees why."""
    path = tmp_path / "l.sock"
    old = listen(stack, path)
    assert old.is_ours()

    new = listen(stack, path)

    assert b"retire" == taken(stack, old).recv(100)
    assert (False, True) == (old.is_ours(), new.is_ours())
    call(stack, path).send(b"hello")
    assert b"hello" == taken(stack, new).recv(100)
    assert ["l.sock"] == os.listdir(tmp_path)


def test_a_name_without_a_listener_is_taken(stack: ExitStack, tmp_path: Path) -> None:
    """So is the unfinished socket of a predecessor with our pid."""
    Listener(str(tmp_path / "l.sock")).close()
    (tmp_path / f".l.sock.{os.getpid()}").touch()

    assert listen(stack, tmp_path / "l.sock").is_ours()
    assert ["l.sock"] == os.listdir(tmp_path)


def test_the_unfinished_socket_of_a_dead_predecessor_is_removed(stack: ExitStack, tmp_path: Path) -> None:
    """By its pid; the socket that a living launcher is about to name stays."""
    with ending(subprocess.Popen(["true"])) as process:
        process.wait()
    for pid in (process.pid, os.getppid()):
        (tmp_path / f".l.sock.{pid}").touch()

    listen(stack, tmp_path / "l.sock")

    assert {"l.sock", f".l.sock.{os.getppid()}"} == set(os.listdir(tmp_path))


def test_lost_name_is_noticed(stack: ExitStack, tmp_path: Path) -> None:
    """A launcher that no client can reach must not stay."""
    listener = listen(stack, tmp_path / "l.sock")

    (tmp_path / "l.sock").unlink()

    assert not listener.is_ours()


def test_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """Another account that can rename in it could put its own socket there."""
    tmp_path.chmod(0o777)

    with pytest.raises(Unusable, match="writable by it alone"):
        Listener(str(tmp_path / "l.sock"))

    assert [] == os.listdir(tmp_path)


def test_a_place_that_is_taken_is_named(tmp_path: Path) -> None:
    """The path and the reason are in one line."""
    (tmp_path / "l.sock" / "in the way").mkdir(parents=True)

    with pytest.raises(Unusable, match=r"cannot listen at .*l\.sock: Is a directory"):
        Listener(str(tmp_path / "l.sock"))
