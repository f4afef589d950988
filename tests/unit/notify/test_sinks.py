"""The sinks of the settings: webhooks and ntfy against real servers on loopback, and samples through each."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.notices import NOTICE, Server, serving

from handoffd.clock import SystemClock
from handoffd.errors import NotFound
from handoffd.notify.apprise import AppriseSink
from handoffd.notify.command import CommandSink
from handoffd.notify.ports import Undelivered
from handoffd.notify.sinks import (
    NtfySink,
    Trial,
    WebhookSink,
    post,
    published,
    sink_of,
    try_sinks,
)
from handoffd.settings.notify import EXAMPLE_TOPIC, NotifySettings, NtfySettings, WebhookSettings


def test_each_form_has_its_sink_and_each_sink_its_name() -> None:
    """Also the sinks with a name of their own."""
    forms = {
        "command": ["true"], "webhook": {"url": "http://h/"}, "ntfy": {"topic": "t"},
        "apprise": {"urls": ["json://h"]},
    }  # fmt: skip
    own = {f"my-{form}": {form: value} for form, value in forms.items()}

    settings = NotifySettings.model_validate({**forms, "sinks": own}).named()
    made = [sink_of(name, sink, {}) for name, sink in settings.items()]
    kinds = (CommandSink, WebhookSink, NtfySink, AppriseSink)
    assert [*forms, *own] == [sink.name for sink in made]
    assert [*kinds, *kinds] == [type(sink) for sink in made]


async def test_a_token_wins_over_the_password_of_the_address() -> None:
    """The sink's own headers come last."""
    with serving(200) as server:
        await post(server.address("/x", user="a:b@"), b"{}", {"Authorization": "Bearer t"}, 60)

    ((_, path, headers, body),) = server.requests
    assert ("/x", "Bearer t", {}) == (path, headers["Authorization"], body)


@contextmanager
def talking(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """Accept one connection, call `talk` with it, and yield the port."""
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


def webhook(url: str, timeout_s: float = 60) -> WebhookSink:
    """Return a sink that posts to `url`."""
    return WebhookSink(WebhookSettings.model_validate({"url": url, "timeout_s": timeout_s}))


async def test_the_notice_is_posted_as_json() -> None:
    """Path and query of the URL are kept; user and password become a header."""
    with serving(204) as server:
        await webhook(server.address("/hook/key?room=1", user="me:pa%20ss@")).deliver(NOTICE)

    ((method, path, headers, body),) = server.requests
    assert ("POST", "/hook/key?room=1") == (method, path)
    assert "application/json" in headers["Content-Type"]
    assert "Basic " + base64.b64encode(b"me:pa ss").decode() == headers["Authorization"]
    assert json.loads(NOTICE.as_json()) == body
    assert NOTICE.id == headers["Idempotency-Key"] == body["id"]


@pytest.mark.parametrize(
    ("status", "worth_retrying"),
    [
        *((status, True) for status in (301, 307, 401, 404, 408, 429, 500, 503)),
        *((status, False) for status in (400, 413, 422)),
    ],
)
async def test_an_answer_outside_the_200s_is_a_failure(status: int, worth_retrying: bool) -> None:
    """It is final only if it is about this very notice; a redirect is not followed."""
    with serving(status) as server, pytest.raises(Undelivered, match=str(status)) as caught:
        await webhook(server.address("/hook")).deliver(NOTICE)

    assert worth_retrying == caught.value.worth_retrying
    assert ["/hook"] == [path for _, path, _, _ in server.requests]


async def test_a_server_that_hangs_is_left_at_the_time_limit() -> None:
    """It accepts the connection and never answers."""

    def say_nothing(connection: socket.socket) -> None:
        while connection.recv(65536):
            pass

    with talking(say_nothing) as port, pytest.raises(Undelivered, match=r"within 0.5 s"):
        await webhook(f"http://127.0.0.1:{port}/", timeout_s=0.5).deliver(NOTICE)


async def test_a_server_that_dribbles_is_left_at_the_time_limit() -> None:
    """The limit is for the whole exchange; the connection is closed, so no thread remains."""

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
        await webhook(f"http://127.0.0.1:{port}/", timeout_s=0.3).deliver(NOTICE)


async def test_a_cancelled_delivery_closes_the_connection() -> None:
    """A daemon that stops does not wait for a server that hangs."""
    accepted, closed = threading.Event(), threading.Event()

    def talk(connection: socket.socket) -> None:
        accepted.set()
        while connection.recv(65536):
            pass
        closed.set()

    with talking(talk) as port, anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(webhook(f"http://127.0.0.1:{port}/", timeout_s=60).deliver, NOTICE)
            await eventually(accepted.is_set)
            group.cancel_scope.cancel()
        await eventually(closed.is_set)


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n"]
)
async def test_a_broken_answer_is_a_failure(answer: bytes) -> None:
    """An answer that is not HTTP does not crash the sink."""

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)

    with talking(talk) as port, pytest.raises(Undelivered):
        await webhook(f"http://127.0.0.1:{port}/").deliver(NOTICE)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/secret-path?token=secret-token",
        "https://user:secret-password@127.0.0.1:9/",
        "http://no-such-host.invalid/secret-path",
    ],
)
async def test_no_failure_has_secrets_of_the_url(url: str) -> None:
    """It names only scheme and host, and chains no error that has more."""
    with pytest.raises(Undelivered) as caught:
        await webhook(url).deliver(NOTICE)

    assert "secret" not in caught.value.why
    assert caught.value.__suppress_context__


async def test_a_server_without_a_known_certificate_is_refused() -> None:
    """The failure names TLS."""

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    with talking(talk) as port, pytest.raises(Undelivered, match="TLS failed"):
        await webhook(f"https://127.0.0.1:{port}/").deliver(NOTICE)


def ntfy(server: Server, **values: Any) -> NtfySink:
    """Return a sink that publishes at a server."""
    return NtfySink(NtfySettings.model_validate({"server": server.address(), "topic": "shop-4711", **values}))


async def test_the_notice_is_published_in_words() -> None:
    """With a priority and a tag for its kind, in any script."""
    notice = replace(NOTICE, text="需要審查")
    with serving(200) as server:
        await ntfy(server, tags=["shop"], click="https://ci.example.org/").deliver(notice)

    ((method, path, headers, body),) = server.requests
    assert ("POST", "/") == (method, path)
    assert "Authorization" not in headers
    message = body.pop("message")
    assert message.startswith("需要審查\nWhy: ")
    assert message.endswith("\nNext: handoffd approve /srv/shop")
    assert {
        "topic": "shop-4711", "title": "shop US-005 needs you", "priority": 4,
        "tags": ["raised_hand", "shop"], "click": "https://ci.example.org/",
    } == body  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "priority"),
    [("done", 1), ("escalation", 5), ("warning", 3), ("digest", 3), ("test", 3), ("new", 3)],
)
def test_priorities_are_by_kind(kind: str, priority: int) -> None:
    """The settings win over our defaults."""
    settings = NtfySettings.model_validate({"topic": "t", "priority": {"done": 1}})

    assert priority == published(replace(NOTICE, kind=kind), settings)["priority"]


async def test_a_token_is_sent_as_a_header() -> None:
    """It is not in the body."""
    with serving(200) as server:
        await ntfy(server, token="tk_1").deliver(NOTICE)

    ((_, _, headers, body),) = server.requests
    assert ("Bearer tk_1", "shop-4711") == (headers["Authorization"], body["topic"])


@pytest.mark.parametrize(
    ("status", "why", "worth_retrying"),
    [(403, "token", True), (400, "400", True), (429, "429", True), (413, "413", False), (500, "500", True)],
)
async def test_a_refusal_that_a_person_can_fix_is_tried_again(
    status: int, why: str, worth_retrying: bool
) -> None:
    """The reason contains neither topic nor token."""
    with serving(status) as server, pytest.raises(Undelivered, match=why) as caught:
        await ntfy(server, token="tk_secret").deliver(NOTICE)

    assert worth_retrying == caught.value.worth_retrying
    assert not {"4711", "tk_secret"} & set(caught.value.why.replace("-", " ").split())


async def tried(only: str | None = None, **values: Any) -> tuple[Trial, ...]:
    """Return the results of a sample."""
    settings = NotifySettings.model_validate(values)
    return await try_sinks(settings, os.environ, SystemClock(), only=only, place="/state")


async def test_a_sample_has_a_result_for_each_sink() -> None:
    """A failure of one does not matter to the others; routes, hours and kinds do not count."""
    with serving(200) as server, serving(500) as broken:
        found = await tried(
            ntfy={"server": server.address(), "topic": "t"}, command=["sh", "-c", "exit 3"], events=[],
            sinks={"x": {"webhook": {"url": broken.address("/key")}}}, routes=[{"to": []}],
        )  # fmt: skip

        ((_, _, _, body),) = server.requests
        assert "handoffd tests this way of telling you" == body["title"]
        ((_, _, _, notice),) = broken.requests
    assert [("command", "command"), ("ntfy", "ntfy"), ("x", "webhook")] == [
        (one.sink, one.form) for one in found
    ]
    assert ["sh: exit code 3", None, "http://127.0.0.1 answered 500"] == [one.why for one in found]
    assert ("test", "/state", True) == (notice["kind"], notice["project"], notice["id"].startswith("test-"))


async def test_one_sink_can_be_tried_alone() -> None:
    """The caller names it."""
    (one,) = await tried("x", command=["false"], sinks={"x": {"command": ["true"]}})

    assert ("x", None) == (one.sink, one.why)


@pytest.mark.parametrize(
    ("only", "values", "words"),
    [
        (None, {}, "no sink for notices is configured"),
        ("phone", {"command": ["true"]}, "there is no sink 'phone' .sinks: command"),
    ],
)
async def test_a_sink_to_try_must_exist(only: str | None, values: dict[str, Any], words: str) -> None:
    """The error lists the sinks."""
    with pytest.raises(NotFound, match=words):
        await tried(only, **values)


async def test_a_sink_that_is_switched_off_gets_no_sample() -> None:
    """The trial gives the reason: the topic of the example is public."""
    with serving(200) as server:
        (one,) = await tried(ntfy={"server": server.address(), "topic": EXAMPLE_TOPIC})

    assert [] == server.requests
    assert one.why is not None
    assert "switched off: its topic, " in one.why
