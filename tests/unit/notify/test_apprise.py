"""The apprise sink, with the real worker and the real apprise, against servers on loopback."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.notices import NOTICE, Server, serving

from handoffd.notify.apprise import ARGV, AppriseSink, Worker
from handoffd.notify.ports import Undelivered
from handoffd.settings.notify import AppriseSettings

pytestmark = pytest.mark.slow

KEY = "s3cr3t-k3y"


def address(server: Server, path: str = KEY) -> str:
    """Return apprise's address of a server on loopback."""
    return f"json://127.0.0.1:{server.server_address[1]}/{path}"


def sink(worker: Worker | None = None, **values: Any) -> AppriseSink:
    """Return a sink with the environment of the tests."""
    settings = AppriseSettings.model_validate({"timeout_s": 60, **values})
    return AppriseSink(settings, os.environ, worker=worker)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that accepts every request."""
    with serving(200) as running:
        yield running


def workers() -> list[int]:
    """Return the workers of this process."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if f"\nPPid:\t{os.getpid()}\n" in status.read_text():
                line = (status.parent / "cmdline").read_bytes()
                found += [int(status.parent.name)] if b"apprise_worker" in line else []
        except OSError:  # it has ended
            continue
    return found


def shown_of(pid: int) -> bytes:
    """Return what other users can see of a process."""
    return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))


async def test_a_notice_is_sent_in_words(server: Server) -> None:
    """Title, message and kind, as apprise has them; one worker does several."""
    with closing(sink(urls=[address(server)])) as one:
        for _ in range(2):
            await one.deliver(NOTICE)

    (_, path, _, body), _ = server.requests
    assert (f"/{KEY}", "shop US-005 needs you", "warning") == (path, body["title"], body["type"])
    assert body["message"].endswith("Next: handoffd approve /srv/shop")


async def test_only_addresses_that_failed_get_the_notice_again() -> None:
    """A mailbox is not filled because a chat is down."""
    with serving(200) as fine, serving(500) as broken:
        with closing(sink(urls=[address(fine), address(broken)])) as one:
            for _ in range(2):
                with pytest.raises(Undelivered, match=r"JSON: .*error=500") as caught:
                    await one.deliver(NOTICE)
                assert KEY not in caught.value.why
            broken.status = 200
            await one.deliver(NOTICE)

        assert (1, 3) == (len(fine.requests), len(broken.requests))


async def test_addresses_may_be_in_a_file_or_a_configuration(server: Server, tmp_path: Path) -> None:
    """A file has one per line, and comments; tags select from apprise's own form."""
    lines, config = f"# ours\n\n{address(server, 'lines')}\n", tmp_path / "apprise.yaml"
    tagged = "".join(f"  - {address(server, tag)}:\n    tag: {tag}\n" for tag in ("shop", "blog"))
    config.write_text(f"urls:\n{tagged}")
    sinks = [sink(urls=[lines]), sink(config_file=str(config), tags=["blog"])]
    for one in sinks:
        with closing(one):
            await one.deliver(NOTICE)

    assert ["/lines", "/blog"] == [path for _, path, _, _ in server.requests]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"urls": [f"nosuch://{KEY}"]}, "address 1: apprise does not know"),
        ({"config_file": "/no/such/file"}, "is not a file"),
    ],
)
async def test_a_wrong_address_fails_with_a_reason(values: dict[str, Any], why: str) -> None:
    """The reason does not quote it."""
    with closing(sink(**values)) as one, pytest.raises(Undelivered, match=why) as caught:
        await one.deliver(NOTICE)
    assert KEY not in caught.value.why


async def test_addresses_can_be_checked_without_sending(server: Server) -> None:
    """As doctor does."""
    with closing(sink(urls=[address(server), f"nosuch://{KEY}"])) as one:
        assert ["address 2: apprise does not know such an address"] == await one.check()

    assert [] == server.requests


async def test_a_worker_that_is_killed_while_it_sends_fails_the_delivery_and_is_replaced(
    server: Server,
) -> None:
    """The next try starts another one."""
    server.hold.clear()
    one = sink(urls=[address(server)])
    failures: list[str] = []

    async def deliver() -> None:
        try:
            await one.deliver(NOTICE)
        except Undelivered as failure:
            failures.append(failure.why)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(deliver)
            await eventually(lambda: server.requests, within_s=60)
            (pid,) = workers()
            os.kill(pid, signal.SIGKILL)
        assert ["the worker of apprise failed: it ended without an answer (signal 9)"] == failures

        server.hold.set()
        await deliver()
        assert 1 == len(failures)
    finally:
        one.close()


async def test_a_service_that_hangs_is_left_at_the_time_limit(server: Server) -> None:
    """The worker ends, too."""
    with closing(sink(urls=[address(server)], timeout_s=3)) as one:
        await one.check()  # it is slow to start
        server.hold.clear()
        with pytest.raises(Undelivered, match="within 3 s"):
            await one.deliver(NOTICE)
    await eventually(lambda: [] == workers())


async def test_the_process_list_shows_no_address(server: Server) -> None:
    """Neither its arguments nor its environment have one."""
    server.hold.clear()
    one = sink(urls=[address(server)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.deliver, NOTICE)
        await eventually(lambda: server.requests, within_s=60)
        (pid,) = workers()
        seen = shown_of(pid)
        assert b"apprise_worker" in seen
        assert KEY.encode() not in seen
        tasks.cancel_scope.cancel()
    await eventually(lambda: [] == workers())


async def test_without_apprise_the_error_has_the_command_to_install_it() -> None:
    """Into the daemon's own environment."""
    bare = Worker((ARGV[0], "-I", "-S", ARGV[2]), {})
    command = rf"{re.escape(sys.executable)} -m pip install 'apprise>"
    with (
        closing(sink(bare, urls=["json://127.0.0.1/"])) as one,
        pytest.raises(Undelivered, match=command),
    ):
        await one.deliver(NOTICE)
