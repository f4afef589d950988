"""The webhook sink against real servers on loopback: polite, broken, hanging and dribbling ones."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.notices import NOTICE, serving

from handoffd.notify.ports import Undelivered
from handoffd.notify.sinks import WebhookSink
from handoffd.settings.notify import WebhookSettings


@contextmanager
def talking(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """Accept one connection, let `talk` have it, and yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join(timeout=60)
            assert not thread.is_alive()


def sink(url: str, timeout_s: float = 60) -> WebhookSink:
    """Return a sink that posts to `url`."""
    return WebhookSink(WebhookSettings.model_validate({"url": url, "timeout_s": timeout_s}))


async def test_the_notice_is_posted_as_json() -> None:
    """Path and query of the URL are kept; user and password become a header."""
    with serving(204) as server:
        await sink(server.address("/hook/key?room=1", user="me:pa%20ss@")).deliver(NOTICE)

    ((method, path, headers, body),) = server.requests
    assert ("POST", "/hook/key?room=1") == (method, path)
    assert "application/json" in headers["Content-Type"]
    assert "Basic " + base64.b64encode(b"me:pa ss").decode() == headers["Authorization"]
    assert json.loads(NOTICE.as_json()) == body
    assert NOTICE.id == headers["Idempotency-Key"] == body["id"]


@pytest.mark.parametrize(
    ("status", "worth_retrying"),
    [
        (301, True),
        (307, True),
        (400, False),
        (401, True),
        (404, True),
        (408, True),
        (413, False),
        (422, False),
        (429, True),
        (500, True),
        (503, True),
    ],
)
async def test_an_answer_outside_the_200s_is_a_failure(status: int, worth_retrying: bool) -> None:
    """Worth another try unless it is about this very notice: an address can be mended. None is followed."""
    with serving(status) as server, pytest.raises(Undelivered, match=str(status)) as caught:
        await sink(server.address("/hook")).deliver(NOTICE)

    assert worth_retrying == caught.value.worth_retrying
    assert ["/hook"] == [path for _, path, _, _ in server.requests]


async def test_a_server_that_hangs_is_left_at_the_time_limit() -> None:
    """Somebody who accepts and says nothing does not hold the sink up for ever."""

    def say_nothing(connection: socket.socket) -> None:
        while connection.recv(65536):
            pass

    with talking(say_nothing) as port, pytest.raises(Undelivered, match=r"within 1.5 s"):
        await sink(f"http://127.0.0.1:{port}/", timeout_s=1.5).deliver(NOTICE)


async def test_a_server_that_dribbles_is_left_at_the_time_limit() -> None:
    """The limit is for the whole exchange; the connection is closed, so that no thread stays with it."""

    def slowly(connection: socket.socket) -> None:
        connection.settimeout(0.02)
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while True:
                connection.sendall(b"x")
                try:
                    if connection.recv(65536) == b"":
                        return
                except TimeoutError:
                    continue
        except OSError:
            return

    with talking(slowly) as port, pytest.raises(Undelivered, match=r"within 0.3 s"):
        await sink(f"http://127.0.0.1:{port}/", timeout_s=0.3).deliver(NOTICE)


async def test_a_cancelled_delivery_lets_go_of_the_connection() -> None:
    """When the daemon stops, nobody waits for a server that hangs."""
    accepted, closed = threading.Event(), threading.Event()

    def talk(connection: socket.socket) -> None:
        accepted.set()
        while connection.recv(65536):
            pass
        closed.set()

    with talking(talk) as port, anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(sink(f"http://127.0.0.1:{port}/", timeout_s=60).deliver, NOTICE)
            await eventually(accepted.is_set)
            group.cancel_scope.cancel()
        await eventually(closed.is_set)


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n"]
)
async def test_a_broken_answer_is_a_failure(answer: bytes) -> None:
    """Whatever comes back that is not HTTP ends in a failure, not in a crash."""

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    with talking(talk) as port, pytest.raises(Undelivered):
        await sink(f"http://127.0.0.1:{port}/").deliver(NOTICE)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/secret-path?token=secret-token",
        "https://user:secret-password@127.0.0.1:9/",
        "http://no-such-host.invalid/secret-path",
    ],
)
async def test_secrets_of_the_url_are_in_no_failure(url: str) -> None:
    """A failure names scheme and host, nothing else of the URL, and chains no error that would."""
    with pytest.raises(Undelivered) as caught:
        await sink(url).deliver(NOTICE)

    assert "secret" not in caught.value.why
    assert caught.value.__suppress_context__


async def test_a_server_without_a_known_certificate_is_refused() -> None:
    """TLS to something that does not speak it fails with a reason."""

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    with talking(talk) as port, pytest.raises(Undelivered, match="TLS failed"):
        await sink(f"https://127.0.0.1:{port}/").deliver(NOTICE)
