"""Limits on what clients can make the daemon hold: connections, streams, and the size of request heads.

Each connection costs a file descriptor, and projects, the journal and runs need descriptors, too. So the
number of connections is bounded. A client that does not finish its request, or does not read its answer,
loses its connection: at a deadline, or at once when another connection needs the place. A request in
progress whose answer is read keeps its place. So these are counted, and a quarter of the places is reserved
for people: an agent of the same account is refused there, as at a gate, and so is a process that holds many
already. A person therefore always gets in.

The HTTP library limits only an incomplete head, so a head that arrives in one piece is measured here. The
library's own refusals would be plain text; here they become JSON.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final, TypeVar

import anyio
import h11
from anyio import to_thread
from msgspec import Struct
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from handoffd.api.http.auth import From
from handoffd.api.http.endpoint import error_body, error_response, status_of
from handoffd.engine.wording import counted
from handoffd.errors import HandoffdError, Refused, StoreError
from handoffd.execute.runner import proc

# --- the size of a request's head --------------------------------------------------------------------
MOST_HEAD_BYTES: Final = 32 * 1024
"""Request line and headers together."""
REST_S: Final = 2.0
"""How long to read on after a refusal: a close with unread data would reset the connection."""

_BESIDE_A_HEADER: Final = len(": \r\n")


class SmallHeads:
    """Passes on requests with a small enough head; refuses others with 431 before any other check."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request or pass it on."""
        if head_bytes(scope) > MOST_HEAD_BYTES:
            await error_response(_too_large())(scope, receive, send)
            return
        await self._app(scope, receive, send)


def head_bytes(scope: Scope) -> int:
    """Return the bytes of a request before its body, the line ends of its headers included."""
    line = len(scope["method"]) + len(scope["raw_path"]) + len(scope["query_string"])
    return line + sum(len(name) + len(value) + _BESIDE_A_HEADER for name, value in scope["headers"])


class HeadProtocol(H11Protocol):
    """HTTP that refuses malformed requests like all others: as JSON, with a fitting status."""

    _ending: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Handle received data; ignore it once the connection is ending."""
        if self._ending is None:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Answer what the HTTP library refused, and end the connection once the client has sent the rest."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # a second answer cannot start inside the first
            return
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None:
            cycle.disconnected = True  # a handler still at work must not answer, too
            cycle.message_event.set()
        for event in _refusal(sys.exception()):
            self.transport.write(self.conn.send(event) or b"")
        self.end()

    def end(self, within_s: float = REST_S) -> None:
        """End the connection after the answer; ignore data that arrives until then."""
        self.transport.write_eof()
        self._ending = self.loop.call_later(within_s, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer of `end`."""
        if self._ending is not None:
            self._ending.cancel()
        super().connection_lost(exc)


def _refusal(raised: BaseException | None) -> tuple[h11.Response, h11.Data, h11.EndOfMessage]:
    """Return the answer to an error of the HTTP library; the error says whether the head was too large."""
    too_much = getattr(raised, "error_status_hint", 0) == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    error = _too_large() if too_much else _no_http()
    body, status = error_body(error), status_of(error)
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
    ]
    answer = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)
    return answer, h11.Data(data=body), h11.EndOfMessage()


def _too_large() -> HandoffdError:
    message = f"the request line and the headers are larger than {MOST_HEAD_BYTES} bytes"
    return Refused(message, code="HEADERS_TOO_LARGE", hint="handoffd --help")


def _no_http() -> HandoffdError:
    return Refused("this is not an HTTP/1.1 request", code="BAD_REQUEST", hint="handoffd --help")


# --- the number of connections, and their deadlines --------------------------------------------------
BACKLOG: Final = 1024
"""Connections that the kernel queues before they are accepted, which takes milliseconds."""
AT_ONCE: Final = 4
"""Connections accepted per turn of the loop, so that a burst does not delay requests in progress."""
MOST: Final = 256
"""Connections over the socket, if there are enough descriptors."""
_FEWEST: Final = 16
_SHARE: Final = 4
"""Connections use at most a quarter of the descriptors. A quarter of them is the limit for streams, and a
quarter is reserved for people; one process gets at most a quarter of that reserve."""

TOO_MANY: Final = "TOO_MANY_CONNECTIONS"
LAST: Final = {"Connection": "close"}
"""Headers of a refusal: a refused connection must not keep a place."""
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Retry-After: 1\r\nContent-Length: %d\r\n\r\n%b"
)


class Limits(Struct, frozen=True, kw_only=True):
    """How much clients can make the daemon hold, and for how long."""

    connections: int = 128
    """At a time. A further one takes the place of a connection that waits for a request or does not read its
    answer; if there is none, it gets 503."""
    head_s: float = 10
    """How long a request's headers may take to arrive."""
    stalled_s: float = 60
    """How long an answer may stay unread before its connection is ended; a client can resume a stream."""

    @classmethod
    def of_socket(cls) -> Limits:
        """Return the limits of the socket: at most a quarter of the files that this process may open."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = MOST if files == resource.RLIM_INFINITY else min(MOST, files // _SHARE)
        return cls(connections=max(most, _FEWEST))

    @property
    def kept(self) -> int:
        """Connections reserved for people, and the limit of streams."""
        return self.connections // _SHARE


class BoundedProtocol(HeadProtocol):
    """HTTP with limits on the number of connections and on their idle times."""

    limits = Limits()
    connections: set[BoundedProtocol]  # type: ignore[assignment]
    pid: int | None = None
    """The process that connected, if the kernel says it."""
    undecided = False
    """Whether its request still waits for a place."""
    since = 0.0
    """The time of the connection, by the loop's clock."""
    _late: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection; if there are too many, in place of one that gives way."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # any unsent byte means an unread answer: `pause_writing`
        self.since = self.loop.time()
        over = len(self.connections) > self.limits.connections
        if self._crowds() or (over and not self._gain_place()):
            transport.write(self._full())
            transport.close()
            return
        self._await_request()

    def gives_way(self) -> bool:
        """Return whether there is no request in progress, or its answer is not read."""
        return self.waits_for_request() or self.undecided or self.flow.write_paused

    def waits_for_request(self) -> bool:
        """Return whether there is no complete request, head and body."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete or self.conn.their_state is h11.SEND_BODY

    def _crowds(self) -> bool:
        """Return whether its process holds all places that one process can have."""
        held = sum(one.pid == self.pid for one in self.connections)
        return self.pid is not None and held > self.limits.connections - self.limits.kept

    def _gain_place(self) -> bool:
        """End a connection that gives way: the oldest one of the process with the most connections."""
        held = Counter(one.pid for one in self.connections)
        giving = (one for one in self.connections if one is not self and one.gives_way())
        ended = max(giving, key=lambda one: (held[one.pid], -one.since), default=None)
        if ended is None:
            return False
        self.connections.discard(ended)  # at once: `connection_lost` comes only in the next turn of the loop
        ended.transport.abort()
        return True

    def _full(self) -> bytes:
        others = Counter(one.pid for one in self.connections if one is not self)
        crowd, hint = _crowd(others)
        message = f"{counted(others.total(), 'connection is', 'connections are')} open, {crowd}; ask again"
        body = error_body(StoreError(message, code=TOO_MANY, hint=hint))
        return _FULL % (len(body), body)

    def data_received(self, data: bytes) -> None:
        """Handle received data; the deadline runs while a request is incomplete."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self._await_request()
        else:
            self._await_nothing()

    def on_response_complete(self) -> None:
        """Start the keep-alive timer of an idle connection instead of ours.

        A connection that sent its next request before it had this answer is ended: pipelining would make the
        daemon compute hundreds of answers that no client reads.
        """
        self._await_nothing()
        if not self.conn.trailing_data[0] or self.transport.is_closing():
            super().on_response_complete()
            return
        self.end(self.limits.stalled_s)
        self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._await_nothing()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for a slow reader, but only until the deadline."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.limits.stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the deadline: the client reads."""
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
    """Return `protocol` with these limits; uvicorn makes an instance for each connection."""
    return type(protocol.__name__, (protocol,), {"limits": limits})


class Places:
    """Places for `most` requests or streams; the last quarter is for people, and shared among processes."""

    def __init__(self, called: str, code: str, most: int, inside: Callable[[int], bool]) -> None:
        kept = most // _SHARE
        self._called = called
        self._code = code
        self._most = max(1, most)
        self._for_all = self._most - kept
        self._of_one = max(1, kept // _SHARE)
        self._held: Counter[int | None] = Counter()
        self._inside = inside
        self._looks: dict[int, _Look] = {}
        self._threads = anyio.CapacityLimiter(
            2
        )  # its own threads: the shared ones may all be busy with the requests that are in the way

    @contextmanager
    def one(self, caller: From) -> Iterator[None]:
        """Hold a place for the length of the context."""
        self._held[caller.pid] += 1
        try:
            yield
        finally:
            self._held[caller.pid] -= 1
            self._held += Counter()  # drops callers with no place

    async def admit(self, caller: From) -> None:
        """Raise StoreError when no place is left, or only reserved places that this caller may not take."""
        if self._held.total() < self._for_all:
            return
        person = await self._is_person(caller)
        taken = self._held.total()  # again: it may have changed during the await
        if taken < self._for_all:
            return
        if not person or taken >= self._most or self._held[caller.pid] >= self._of_one:
            raise self._refusal()

    def _refusal(self) -> StoreError:
        taken = self._held.total()
        crowd, hint = _crowd(self._held)
        left = self._most - taken
        rule = f"the rest ({left}) is for people and other processes" if left else "ask again"
        return StoreError(f"{taken} {self._called}, {crowd}; {rule}", code=self._code, hint=hint)

    async def _is_person(self, caller: From) -> bool:
        """Return whether the caller is not an executor. Waiting requests of one process share one check."""
        if caller.pid is None:
            return caller.vouched
        look = self._looks.get(caller.pid)
        if look is not None:
            await look.over.wait()
            return look.person
        look = self._looks[caller.pid] = _Look()
        try:
            look.person = not await to_thread.run_sync(self._inside, caller.pid, limiter=self._threads)
        finally:
            del self._looks[caller.pid]
            look.over.set()
        return look.person


class _Look:
    def __init__(self) -> None:
        self.over = anyio.Event()
        self.person = False


class Streams:
    """Counts streaming answers, which get fewer places than requests."""

    def __init__(self, most: int, inside: Callable[[int], bool]) -> None:
        self._places = Places("streams are open", "TOO_MANY_STREAMS", most, inside)

    def counted(self, response: Response, caller: From) -> Response:
        """Return the response; a stream takes a place while it is sent."""
        return response if "content-length" in response.headers else _Counted(response, caller, self._places)


class _Counted(Response):
    def __init__(self, response: Response, caller: From, places: Places) -> None:
        self._response = response
        self._caller = caller
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._places.admit(self._caller)
        except StoreError as refusal:
            await error_response(refusal, LAST)(scope, receive, send)
            return
        with self._places.one(self._caller):
            await self._response(scope, receive, send)


def _crowd(held: Counter[int | None]) -> tuple[str, str]:
    """Return the caller with the most connections, in words, and the command that shows it."""
    [(pid, count)] = held.most_common(1)
    if pid is None:
        return f"{count} of them over TCP", "ss -tnp"
    name = (proc.read(f"/proc/{pid}/comm") or b"").decode(errors="replace").strip()
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return f"{count} of them by process {pid} ({shown or 'ended'})", f"ps -fp {pid}"
