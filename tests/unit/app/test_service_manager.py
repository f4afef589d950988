"""The daemon's side of sd_notify, against a real datagram socket."""

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

from handoffd.app.service_manager import ServiceManager


class StoppedClock:
    """A clock that stands still."""

    def now(self) -> datetime:
        """Return always the same moment."""
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        """Return seconds since boot."""
        return 12.345678


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """A service manager that listens, by either kind of address."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listener:
        if request.param == "path":
            address = str(tmp_path / "notify")
            listener.bind(address)
        else:
            address = f"@handoffd-test-{os.getpid()}"
            listener.bind("\0" + address[1:])
        yield address, listener


def _daemon(address: str, **environment: str) -> ServiceManager:
    return ServiceManager.from_environment({"NOTIFY_SOCKET": address, **environment}, StoppedClock())


def test_each_message_is_one_datagram_of_assignments(manager: tuple[str, socket.socket]) -> None:
    """The manager reads what sd_notify(3) promises, from a path and from the abstract namespace."""
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
    """A line break out of a project's name does not start a line of its own."""
    address, listener = manager

    _daemon(address).status("shop\nMAINPID=1\r\n  stopped\udcff")

    assert b"STATUS=shop MAINPID=1 stopped?" == listener.recv(4096)


@pytest.mark.parametrize("address", [None, "", "vsock:2:1", "relative"])
def test_without_a_manager_nothing_is_sent(address: str | None) -> None:
    """In a terminal or a container every message is a quiet no."""
    environment = {} if address is None else {"NOTIFY_SOCKET": address}
    daemon = ServiceManager.from_environment({**environment, "WATCHDOG_USEC": "1000"}, StoppedClock())

    assert not daemon.present
    assert not daemon.ready()
    assert daemon.interval_s is None


def test_a_manager_that_has_gone_is_logged_and_not_raised(tmp_path: Path) -> None:
    """A daemon does not fall over because nobody listens any more."""
    with structlog.testing.capture_logs() as logged:
        sent = _daemon(str(tmp_path / "nobody")).ready()

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
    """Half the limit, if the limit is usable and meant for this process."""
    assert interval_s == _daemon("/run/notify", **environment).interval_s


async def test_the_watchdog_is_fed_until_cancelled(manager: tuple[str, socket.socket]) -> None:
    """More than one message arrives, and cancelling ends them."""
    address, listener = manager
    daemon = _daemon(address, WATCHDOG_USEC="2000")
    seen: list[bytes] = []

    def fed_thrice() -> bool:
        with contextlib.suppress(BlockingIOError):
            seen.append(listener.recv(4096))
        return len(seen) >= 3

    async with anyio.create_task_group() as group:
        group.start_soon(daemon.run, lambda: None)
        await eventually(fed_thrice)
        group.cancel_scope.cancel()

    assert {b"WATCHDOG=1"} == set(seen)


async def test_without_progress_the_watchdog_is_not_fed(manager: tuple[str, socket.socket]) -> None:
    """It is said why, and once there is progress again the messages come again."""
    address, listener = manager
    daemon = _daemon(address, WATCHDOG_USEC="2000")
    why: list[str | None] = ["the poll has made no progress for 300 s"]
    seen: list[bytes] = []

    def heard(message: bytes) -> bool:
        with contextlib.suppress(BlockingIOError):
            seen.append(listener.recv(4096))
        return message in seen

    with structlog.testing.capture_logs() as logged:
        async with anyio.create_task_group() as group:
            group.start_soon(daemon.run, lambda: why[0])
            await eventually(lambda: heard(b"STATUS=stuck: the poll has made no progress for 300 s"))
            before = list(seen)
            why[0] = None
            await eventually(lambda: heard(b"WATCHDOG=1"))
            group.cancel_scope.cancel()

    assert b"WATCHDOG=1" not in before
    assert "the poll has made no progress for 300 s" == logged[0]["why"]


async def test_the_manager_is_asked_to_wait_for_what_takes_long(manager: tuple[str, socket.socket]) -> None:
    """With the reason; once it is over, nobody asks any more, whatever came of it."""
    address, listener = manager
    daemon = _daemon(address)

    async with daemon.extending("starting"):
        await anyio.wait_readable(listener)
        assert b"EXTEND_TIMEOUT_USEC=60000000\nSTATUS=starting" == listener.recv(4096)
    daemon.ready()

    assert b"READY=1" == listener.recv(4096)
    async with _daemon("").extending("starting"):
        await anyio.lowlevel.checkpoint()


async def test_without_a_watchdog_the_task_ends_at_once(manager: tuple[str, socket.socket]) -> None:
    """A task group that owns it is not kept open for nothing."""
    address, _ = manager

    with anyio.fail_after(60):
        await _daemon(address).run(lambda: None)
