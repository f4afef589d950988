"""What the tests of the control layer share."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.supervision import MemorySupervision
from tests.unit.journal.making import opened

from handoffd.api.service import Caller, Service
from handoffd.clock import SystemClock
from handoffd.journal.journal import Journal

EVE = Caller(pid=4711, by="eve")


@pytest.fixture
def path() -> Iterator[str]:
    """Where a socket can be made: paths of sockets have room for about a hundred bytes only."""
    with tempfile.TemporaryDirectory(prefix="handoffd-") as folder:
        yield str(Path(folder, "control.sock"))


@contextmanager
def answering(path: str, answer: bytes, *, reads: bool = True) -> Iterator[None]:
    """Listen at `path` and answer one request with raw bytes, then hang up; or do so before it comes."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                if reads:
                    connection.recv(65536)
                connection.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        try:
            yield
        finally:
            server.join(60)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    """An empty journal."""
    async with opened(tmp_path / "journal.db") as lent:
        yield lent


def service_over(
    supervision: MemorySupervision, journal: Journal, *, inside: bool = False, daemon: bool = True
) -> Service:
    """Return the verbs and reads of a daemon or without one, for callers inside an executor or not."""
    return Service(
        supervision, journal, SystemClock(), runs_dir=Path(os.devnull).parent / "nowhere",
        stop=(lambda _: None) if daemon else None, inside=lambda _: inside,
    )  # fmt: skip


@pytest.fixture
def service(supervision: MemorySupervision, journal: Journal) -> Service:
    """The verbs and reads of a daemon over those projects, for a person."""
    return service_over(supervision, journal)


@pytest.fixture
def inside(supervision: MemorySupervision, journal: Journal) -> Service:
    """The same for a process of an executor."""
    return service_over(supervision, journal, inside=True)
