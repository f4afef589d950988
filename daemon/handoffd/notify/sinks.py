"""The sinks that the settings ask for; the sinks that send one POST; and a sample through each of them.

The sample bypasses the box: the user learns today whether notifications would arrive tonight.

A POST is made by the standard library alone, in a worker thread. The address is a secret (most services put
the key into its path or query): messages show only scheme and host, and no library error whose text may
quote the rest. Redirects are not followed: they would turn the POST into a GET, or go to another host.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Event
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

import anyio
import anyio.to_thread
from msgspec import Struct

from handoffd.clock import Clock
from handoffd.engine.notice import Notice, headline, message
from handoffd.errors import NotFound
from handoffd.notify.apprise import AppriseSink
from handoffd.notify.command import CommandSink
from handoffd.notify.ports import Sink, Undelivered
from handoffd.notify.sink_workers import attempt
from handoffd.settings.notify import FORMS, NotifySettings, NtfySettings, SinkSettings, WebhookSettings


def sink_of(name: str, settings: SinkSettings, environ: Mapping[str, str]) -> Sink:
    """Return one sink. Of the environment, its programs get what they need to tell people."""
    if settings.webhook is not None:
        return WebhookSink(settings.webhook, name)
    if settings.ntfy is not None:
        return NtfySink(settings.ntfy, name)
    if settings.apprise is not None:
        return AppriseSink(settings.apprise, environ, name)
    return CommandSink(settings, environ, name)


# --- a sample ----------------------------------------------------------------------------------------
LIMIT_S = 50.0
"""The caller waits for the answer; a sink that needs longer has failed this test."""


class Trial(Struct, frozen=True, kw_only=True):
    """The result of the sample. `why` is None if the sink accepted it, otherwise the reason."""

    sink: str
    form: str
    why: str | None
    seconds: float


async def try_sinks(
    settings: NotifySettings, environ: Mapping[str, str], clock: Clock, *, only: str | None, place: str
) -> tuple[Trial, ...]:
    """Send a sample through every sink, or through one; all at once, each within its own limit.

    Raises NotFound when there is no such sink, or none at all.
    """
    sinks = settings.named()
    if not sinks or (only is not None and only not in sinks):
        what = "no sink for notices is configured" if only is None else f"there is no sink {only[:40]!r}"
        known = f" (sinks: {', '.join(sinks)})" if sinks else ""
        hint = "handoffd config show  # then set `notify` in the file it names"
        raise NotFound(f"{what}{known}", hint=hint)
    wanted = {name: sink for name, sink in sinks.items() if only in {None, name}}
    trials: dict[str, Trial] = {}

    async def run(name: str, sink: SinkSettings) -> None:
        trials[name] = await _try(name, sink, environ, clock, place)

    async with anyio.create_task_group() as tasks:
        for name, sink in wanted.items():
            tasks.start_soon(run, name, sink)
    return tuple(trials[name] for name in wanted)


async def _try(
    name: str, settings: SinkSettings, environ: Mapping[str, str], clock: Clock, place: str
) -> Trial:
    form = next(form for form in FORMS if getattr(settings, form) is not None)
    if settings.switched_off is not None:
        return Trial(sink=name, form=form, why=f"switched off: {settings.switched_off}", seconds=0)
    sink = sink_of(name, settings, environ)
    began_s = clock.monotonic()
    why: str | None = f"it did not end within {LIMIT_S:g} s"
    try:
        with anyio.move_on_after(LIMIT_S):
            failure = await attempt(sink, _sample(clock, place))
            why = None if failure is None else failure.why
    finally:
        sink.close()
    return Trial(sink=name, form=form, why=why, seconds=round(clock.monotonic() - began_s, 3))


def _sample(clock: Clock, place: str) -> Notice:
    return Notice(
        id=f"test-{secrets.token_hex(6)}", at=clock.now(), project=place, name="handoffd", story=None,
        step="", kind="test", text="this is a test: notifications look like this", action="handoffd status",
        why="`handoffd notify test` was run",
    )  # fmt: skip


# --- a URL of the user -------------------------------------------------------------------------------
ID_HEADER = "Idempotency-Key"
_ABOUT_THIS_NOTICE = frozenset({400, 413, 415, 422})
"""Answers about this very notice. All others can be fixed: a server, an address, a key."""


class WebhookSink:
    """Posts the notice as JSON; any answer of the 200s is a delivery."""

    def __init__(self, settings: WebhookSettings, name: str = "webhook") -> None:
        self.name = name
        self._settings = settings

    async def deliver(self, notice: Notice) -> None:
        """Post `notice`; raises Undelivered with the place and the reason."""
        address = self._settings.url.get_secret_value()
        body = notice.as_json().encode("utf-8", "replace")
        status = await post(address, body, {ID_HEADER: notice.id}, self._settings.timeout_s)
        judge(address, status, _ABOUT_THIS_NOTICE)

    def close(self) -> None:
        """Hold nothing."""


# --- ntfy: notices on telephones, with a priority by kind --------------------------------------------
PRIORITIES: Final[Mapping[str, int]] = {
    "needs_human": 4, "timeout": 4, "blocked": 4, "reminder": 4, "escalation": 5, "done": 3, "warning": 3,
    "report": 3,
}  # fmt: skip
"""Of the five that ntfy knows; 3 is its usual one, 5 breaks through what a telephone holds back."""

_TAGS: Final[Mapping[str, str]] = {
    "needs_human": "raised_hand", "timeout": "hourglass", "blocked": "no_entry", "reminder": "bell",
    "report": "sunrise",
    "escalation": "rotating_light", "done": "white_check_mark", "warning": "warning", "digest": "memo",
}  # fmt: skip
_TOO_LARGE = frozenset({413})
_KEYS = frozenset({401, 403})


class NtfySink:
    """Publishes the notice in words, as JSON, so that nothing of it has to fit into a header.

    ntfy has no keys against repetition: a notice that is sent again is shown again.
    """

    def __init__(self, settings: NtfySettings, name: str = "ntfy") -> None:
        self.name = name
        self._settings = settings

    async def deliver(self, notice: Notice) -> None:
        """Publish `notice`; raises Undelivered with the place and the reason."""
        settings = self._settings
        body = json.dumps(published(notice, settings), ensure_ascii=False).encode("utf-8", "replace")
        token = settings.token
        headers = {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
        status = await post(settings.server, body, headers, settings.timeout_s)
        if status in _KEYS:
            raise Undelivered(
                f"{place_of(settings.server)} answered {status}: it wants a (better) notify token"
            )
        judge(settings.server, status, _TOO_LARGE)

    def close(self) -> None:
        """Hold nothing."""


def published(notice: Notice, settings: NtfySettings) -> dict[str, Any]:
    """Return what ntfy is given, as plain JSON values."""
    given = {**PRIORITIES, **{str(kind): priority for kind, priority in settings.priority.items()}}
    tag = _TAGS.get(notice.kind)
    body: dict[str, Any] = {
        "topic": settings.topic.get_secret_value(),
        "title": headline(notice),
        "message": message(notice),
        "priority": given.get(notice.kind, 3),
        "tags": [*([tag] if tag else []), *settings.tags],
    }
    return body if settings.click is None else {**body, "click": settings.click}


# --- one POST ----------------------------------------------------------------------------------------
_LATER_S = 5.0


def place_of(address: str) -> str:
    """Return the part of an address that is not secret."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}"


async def post(address: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> int:
    """Post JSON and return the status of the answer, which is not read.

    User and password of the address become a header. Raises Undelivered, with the place and the reason.
    """
    url, place = urlsplit(address), place_of(address)
    # In a thread as well: a first https connection reads the certificates of the system.
    connection, given_up = await anyio.to_thread.run_sync(_connection, url, timeout_s), Event()
    with anyio.move_on_after(timeout_s) as limit:
        try:
            # Abandoned at the limit, because a name look-up cannot be interrupted; all else can be:
            # the socket is shut, so that the thread does not stay with a server that dribbles.
            given = {**_headers(url), **headers}
            status = await anyio.to_thread.run_sync(
                _post, connection, given_up, url, body, given, abandon_on_cancel=True
            )
        finally:
            given_up.set()
            _shut(connection)
    if limit.cancelled_caught:
        raise Undelivered(f"{place} did not answer within {timeout_s:g} s")
    return status


def judge(address: str, status: int, never: frozenset[int]) -> None:
    """Raise Undelivered unless it is one of the 200s; statuses in `never` are about this very notice."""
    place = place_of(address)
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise Undelivered(f"{place} redirects ({status}), which is not followed")
    raise Undelivered(f"{place} answered {status}", worth_retrying=status not in never)


def _connection(url: SplitResult, timeout_s: float) -> HTTPConnection:
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    assert url.hostname is not None  # checked with the settings
    # Later than the limit of the whole, by which it is ended: two that end at once tell different stories.
    return kind(url.hostname, url.port, timeout=timeout_s + _LATER_S)


def _post(
    connection: HTTPConnection, given_up: Event, url: SplitResult, body: bytes, headers: Mapping[str, str]
) -> int:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    place = place_of(url.geturl())
    try:
        connection.connect()
        if given_up.is_set():  # while it connected, and had no socket to shut
            raise Undelivered(f"{place}: given up")
        connection.request("POST", target, body, dict(headers))
        return connection.getresponse().status
    except ssl.SSLError as error:
        raise Undelivered(f"{place}: TLS failed ({error.reason})") from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise Undelivered(f"{place} cannot be reached ({why})") from None
    except (HTTPException, ValueError) as error:
        raise Undelivered(f"{place}: no proper answer ({type(error).__name__})") from None
    finally:
        connection.close()


def _headers(url: SplitResult) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": "handoffd",
        "Connection": "close",
    }
    if url.username is not None:
        user = f"{unquote(url.username)}:{unquote(url.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode("ascii")
    return headers


def _shut(connection: HTTPConnection) -> None:
    opened = connection.sock
    if opened is None:
        return
    try:
        opened.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # closed in the meantime
