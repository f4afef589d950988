"""The daemon's side of sd_notify, with a real datagram socket."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
import structlog
from tests.support.eventually import eventually

from handoffd.app.service_manager import (
    POLL,
    WRITER,
    Beat,
    Overview,
    ServiceManager,
    beats_of,
    status_line,
    stuck,
)


class StoppedClock:
    """A clock that does not move."""

    def now(self) -> datetime:
        """Return the same moment."""
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        """Return seconds since boot."""
        return 12.345678


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """A listening service manager, with either kind of address."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listener:
        if request.param == "path":
            address = str(tmp_path / "notify")
            listener.bind(address)
        else:
            address = f"@handoffd-test-{os.getpid()}"
            listener.bind("\0" + address[1:])
        yield address, listener


def _gets(listener: socket.socket, seen: list[bytes], message: bytes, times: int = 1) -> bool:
    """Read a message, if there is one; return whether this one has come so often."""
    with contextlib.suppress(BlockingIOError):
        seen.append(listener.recv(4096))
    return seen.count(message) >= times


def _daemon(address: str, **environment: str) -> ServiceManager:
    return ServiceManager.from_environment({"NOTIFY_SOCKET": address, **environment}, StoppedClock())


def test_each_message_is_one_datagram_of_assignments(manager: tuple[str, socket.socket]) -> None:
    """As in sd_notify(3), for a path and the abstract namespace."""
    address, listener = manager
    daemon = _daemon(address)

    assert daemon.present
    assert daemon.ready("3 projects")
    assert daemon.status("2 agents run")
    assert daemon.reloading()
    assert daemon.watchdog()
    assert daemon.stopping("agents go on")

    assert b"READY=1\nSTATUS=3 projects" == listener.recv(4096)
    assert b"STATUS=2 agents run" == listener.recv(4096)
    assert b"RELOADING=1\nMONOTONIC_USEC=12345678" == listener.recv(4096)
    assert b"WATCHDOG=1" == listener.recv(4096)
    assert b"STOPPING=1\nSTATUS=agents go on" == listener.recv(4096)


def test_a_status_cannot_smuggle_in_an_assignment(manager: tuple[str, socket.socket]) -> None:
    """A line break in a project's name does not start another line."""
    address, listener = manager

    _daemon(address).status("shop\nMAINPID=1\r\n  stopped\udcff")

    assert b"STATUS=shop MAINPID=1 stopped?" == listener.recv(4096)


@pytest.mark.parametrize("address", [None, "", "vsock:2:1", "relative"])
async def test_without_a_manager_nothing_is_sent(address: str | None) -> None:
    """In a terminal or a container; the task of the watchdog ends at once."""
    environment = {} if address is None else {"NOTIFY_SOCKET": address}
    daemon = ServiceManager.from_environment({**environment, "WATCHDOG_USEC": "1000"}, StoppedClock())

    assert not daemon.present
    assert not daemon.ready()
    assert daemon.interval_s is None
    with anyio.fail_after(60):
        await daemon.run(lambda: None)


def test_a_missing_manager_is_logged(tmp_path: Path) -> None:
    """The daemon goes on."""
    with structlog.testing.capture_logs() as logged:
        sent = _daemon(str(tmp_path / "missing")).ready()

    assert not sent
    assert ["service manager not reached"] == [entry["event"] for entry in logged]


@pytest.mark.parametrize(
    ("environment", "interval_s"),
    [
        ({"WATCHDOG_USEC": "60000000"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "٣"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_fed_twice_as_often_as_asked(
    environment: dict[str, str], interval_s: float | None
) -> None:
    """Half the limit, if it is usable and meant for this process."""
    assert interval_s == _daemon("/run/notify", **environment).interval_s


async def test_the_watchdog_is_fed_until_cancelled(manager: tuple[str, socket.socket]) -> None:
    """Cancelling ends the messages."""
    address, listener = manager
    daemon = _daemon(address, WATCHDOG_USEC="2000")
    seen: list[bytes] = []
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.run, lambda: None)
        await eventually(lambda: _gets(listener, seen, b"WATCHDOG=1", times=3))
        group.cancel_scope.cancel()

    assert {b"WATCHDOG=1"} == set(seen)


async def test_without_progress_the_watchdog_is_not_fed(manager: tuple[str, socket.socket]) -> None:
    """The status has the reason; after new progress the messages continue."""
    address, listener = manager
    daemon = _daemon(address, WATCHDOG_USEC="2000")
    why: list[str | None] = ["the poll has made no progress for 300 s"]
    seen: list[bytes] = []
    stuck_line = b"STATUS=stuck: the poll has made no progress for 300 s"
    with structlog.testing.capture_logs() as logged:
        async with anyio.create_task_group() as group:
            group.start_soon(daemon.run, lambda: why[0])
            await eventually(lambda: _gets(listener, seen, stuck_line))
            before = list(seen)
            why[0] = None
            await eventually(lambda: _gets(listener, seen, b"WATCHDOG=1"))
            group.cancel_scope.cancel()

    assert b"WATCHDOG=1" not in before
    assert "the poll has made no progress for 300 s" == logged[0]["why"]


async def test_the_manager_is_asked_for_more_time(manager: tuple[str, socket.socket]) -> None:
    """With the reason, until the work ends or fails."""
    address, listener = manager
    daemon = _daemon(address)

    async with daemon.extending("starting"):
        await anyio.wait_readable(listener)
        assert b"EXTEND_TIMEOUT_USEC=60000000\nSTATUS=starting" == listener.recv(4096)
    daemon.ready()

    assert b"READY=1" == listener.recv(4096)
    async with _daemon("").extending("starting"):
        await anyio.lowlevel.checkpoint()


# --- parts that must make progress ----------------------------------------------------------------
@pytest.mark.parametrize(
    ("since", "why"),
    [
        (None, None),
        (1000.0, None),
        (940.0, None),
        (939.0, "the writer has made no progress for 61 s"),
        (1200.0, None),
    ],
)
def test_a_busy_part_must_make_progress_within_its_limit(since: float | None, why: str | None) -> None:
    """An idle part may rest forever, and a clock that seems to go back is harmless."""
    assert why == stuck([Beat(name="the writer", since=since, limit_s=60)], now=1000.0)


def test_all_stuck_parts_are_named() -> None:
    """A healthy one hides none."""
    beats = [Beat(name=name, since=since, limit_s=60) for name, since in (("a", 0), ("b", 99), ("c", 10))]

    assert "a has made no progress for 100 s; c has made no progress for 90 s" == stuck(beats, now=100)


@pytest.mark.parametrize(("poll_s", "limit_s"), [(30, 180), (0.1, 180), (600, 3000)])
def test_a_slow_poll_has_a_longer_limit(poll_s: float, limit_s: float) -> None:
    """Several intervals, and at least some minutes."""
    writer, poll = beats_of(5.0, 7.0, poll_s)

    assert (WRITER, 5.0) == (writer.name, writer.since)
    assert (POLL, 7.0, limit_s) == (poll.name, poll.since, poll.limit_s)


# --- the line of `systemctl status` ---------------------------------------------------------------
@pytest.mark.parametrize(
    ("overview", "line"),
    [
        (Overview(projects=0, running=0), "0 projects, 0 executors running"),
        (Overview(projects=1, running=1), "1 project, 1 executor running"),
        (
            Overview(projects=1000, running=12, queued=3, gates=2, unusable=1),
            "1000 projects, 12 executors running, 3 waiting, 2 for people to decide, 1 in trouble",
        ),
        (
            Overview(projects=1, running=0, trouble="the journal cannot be written (disk full)"),
            "nothing is started: the journal cannot be written (disk full); 1 project, 0 executors running",
        ),
        (
            Overview(projects=1, running=0, settings="handoffd.yaml:3: slots", trouble="x"),
            "nothing is started: x; the settings were not taken: handoffd.yaml:3: slots;"
            " 1 project, 0 executors running",
        ),
    ],
)
def test_the_status_line_has_faults_and_counts(overview: Overview, line: str) -> None:
    """First what needs a person, without counts of 0."""
    assert line == status_line(overview)
