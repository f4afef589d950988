"""Connections that cannot be used to wear the daemon out, on the socket and on the port.

Each costs a descriptor, of which projects, the journal and what runs need theirs. So their number is bounded,
and what does not get on with a request, or does not read its answer, loses its connection: when its time is
over, or at once when another one needs the place. What is being answered keeps its place, so a quarter of the
places is for people: an agent of the same account is refused there, as at a gate.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import anyio
import h11
from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

from handoffd.control.head import HeadProtocol
from handoffd.errors import StoreError

BACKLOG: Final = 1024
"""How many wait to be accepted; the kernel keeps them, and each is taken within milliseconds."""
AT_ONCE: Final = 16
"""How many are accepted in one turn of the loop: fewer than there are places, so that no request is sent away
before it was read."""
MOST: Final = 256
"""Connections over the socket, where there are descriptors enough."""
_SHARE: Final = 4
"""Connections have a quarter of the descriptors at most; of them a quarter is for streams, one for people."""

TOO_MANY: Final = "TOO_MANY_CONNECTIONS"

_FULL_BODY: Final = (
    b'{"type": "error", "code": "TOO_MANY_CONNECTIONS", "message": "too many requests at once; ask again", '
    b'"hint": "handoffd status"}\n'
)
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Retry-After: 1\r\nContent-Length: %d\r\n\r\n%b" % (len(_FULL_BODY), _FULL_BODY)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What others can make us hold, and for how long."""

    connections: int = 128
    """At a time. One more takes the place of the oldest that waits for a request; if there is none, it hears
    503."""
    head_s: float = 10
    """How long a request's headers may take to arrive."""
    stalled_s: float = 60
    """How long an answer may lie unread before its connection is ended; a stream can be taken up again."""

    @classmethod
    def of_socket(cls) -> Limits:
        """Return those of the socket: never more than a quarter of the files this process may open."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = MOST if files == resource.RLIM_INFINITY else min(MOST, files // _SHARE)
        return cls(connections=max(most, AT_ONCE))

    @property
    def kept(self) -> int:
        """How many of them are for people, and how many streams there may be."""
        return self.connections // _SHARE


class BoundedProtocol(HeadProtocol):
    """HTTP with limits on how many connect, and on how long they keep us waiting."""

    limits = Limits()
    connections: set[BoundedProtocol]  # type: ignore[assignment]
    since = 0.0
    """When it was made, by the loop's clock."""
    _late: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, in the place of one that waits for a request when there are too many."""
        super().connection_made(transport)
        self.since = self.loop.time()
        if len(self.connections) > self.limits.connections and not self._gain_place():
            transport.write(_FULL)
            transport.close()
            return
        self._await_request()

    def waits_for_request(self) -> bool:
        """Return whether no request is here as a whole, head and body."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete or self.conn.their_state is h11.SEND_BODY

    def _gain_place(self) -> bool:
        waiting = (one for one in self.connections if one is not self and one.waits_for_request())
        oldest = min(waiting, key=lambda one: one.since, default=None)
        if oldest is None:
            return False
        self.connections.discard(oldest)  # at once: it is lost in the next turn of the loop
        oldest.transport.abort()
        return True

    def data_received(self, data: bytes) -> None:
        """Take what came; the clock runs while a request is not whole."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self._await_request()
        else:
            self._await_nothing()

    def on_response_complete(self) -> None:
        """Let the keep-alive clock of an idle connection run instead of ours."""
        self._await_nothing()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._await_nothing()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for a reader that does not keep up, but not for ever."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.limits.stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: it reads."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def _await_request(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.limits.head_s, self.transport.abort)

    def _await_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


_Protocol = TypeVar("_Protocol", bound=BoundedProtocol)


def bounded(protocol: type[_Protocol], limits: Limits) -> type[_Protocol]:
    """Return `protocol` with these limits; uvicorn makes one of it for each connection."""
    return type(protocol.__name__, (protocol,), {"limits": limits})


class Places:
    """Requests that are being answered: some of their places are for people."""

    def __init__(self, limits: Limits, inside: Callable[[int], bool]) -> None:
        self._for_all = limits.connections - limits.kept
        self._taken = 0
        self._inside = inside
        self._looks = anyio.CapacityLimiter(2)  # of its own: the others may be what all wait for

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count a request for as long as it is answered."""
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1

    async def admit(self, pid: int) -> None:
        """Raise StoreError when what is left is for people, and process `pid` belongs to an executor."""
        if self._taken < self._for_all:
            return
        if await to_thread.run_sync(self._inside, pid, limiter=self._looks):
            message = "too many requests at once; the places that are left are for people"
            raise StoreError(message, code=TOO_MANY, hint="handoffd status")


class Streams:
    """Answers that go on: fewer than there are places, however many readers come."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0

    def counted(self, response: Response) -> Response:
        """Return a response that counts while it is sent, if it is a stream. Raises StoreError."""
        if "content-length" in response.headers:
            return response
        if self._open >= self._most:
            message = f"{self._most} streams are open already; end one, or ask without following"
            raise StoreError(message, code="TOO_MANY_STREAMS", hint="handoffd status")
        return _Counted(response, self)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count a stream for as long as it is sent."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


class _Counted(Response):
    def __init__(self, response: Response, streams: Streams) -> None:
        self._response = response
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.one():
            await self._response(scope, receive, send)
