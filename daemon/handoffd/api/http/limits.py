"""What others can make the daemon hold: connections, streams, and how much a request says.

Each connection costs a descriptor, of which projects, the journal and what runs need theirs. So their
number is bounded, and what does not get on with a request, or does not read its answer, loses its
connection: when its time is over, or at once when another one needs the place. A request at work whose
answer is read keeps its place, so these are counted, and a quarter of them is for people: an agent of the
same account is refused there, as at a gate, and so is a process that has many already. A person therefore
always gets in.

The HTTP library counts only what is still incomplete of a head, so one that comes in one piece is measured
here; and what the library refuses itself would be told as plain text, not as our JSON.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeVar

import anyio
import h11
from anyio import to_thread
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from handoffd.api.http.answers import error_body, error_response, status_of
from handoffd.api.http.auth import From
from handoffd.engine.wording import counted
from handoffd.errors import HandoffdError, Refused, StoreError
from handoffd.execute.runner import proc

# --- how much a request may say before its body ------------------------------------------------------
MOST_HEAD_BYTES: Final = 32 * 1024
"""Request line and headers together."""
REST_S: Final = 2.0
"""How long the rest of what was refused is still taken: an end in the midst of it would lose the answer."""

_BESIDE_A_HEADER: Final = len(": \r\n")


class SmallHeads:
    """Lets requests through whose head is small enough; others hear 431 before anything else is looked at."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        if head_bytes(scope) > MOST_HEAD_BYTES:
            await error_response(_too_large())(scope, receive, send)
            return
        await self._app(scope, receive, send)


def head_bytes(scope: Scope) -> int:
    """Return how much a request says before its body, the line ends of its headers included."""
    line = len(scope["method"]) + len(scope["raw_path"]) + len(scope["query_string"])
    return line + sum(len(name) + len(value) + _BESIDE_A_HEADER for name, value in scope["headers"])


class HeadProtocol(H11Protocol):
    """HTTP that refuses what is no request as everything is refused: as JSON, with a fitting status."""

    _ending: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Take what came; at the end nothing is looked at any more."""
        if self._ending is None:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Answer what the HTTP library refused, and end the connection once the asker has had its say."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # in the midst of an answer there is no room for another one
            return
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None:
            cycle.disconnected = True  # whoever still works on it has nobody to answer any more
            cycle.message_event.set()
        for event in _refusal(sys.exception()):
            self.transport.write(self.conn.send(event) or b"")
        self.end()

    def end(self, within_s: float = REST_S) -> None:
        """End the connection behind what was answered; what still comes until then is not looked at."""
        self.transport.write_eof()
        self._ending = self.loop.call_later(within_s, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for no rest."""
        if self._ending is not None:
            self._ending.cancel()
        super().connection_lost(exc)


def _refusal(raised: BaseException | None) -> tuple[h11.Response, h11.Data, h11.EndOfMessage]:
    """Return the answer to what raised this in the HTTP library, which knows whether it was too much."""
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
    return Refused("this is no request of HTTP/1.1", code="BAD_REQUEST", hint="handoffd --help")


# --- how many may connect, and for how long ----------------------------------------------------------
BACKLOG: Final = 1024
"""How many wait to be accepted; the kernel keeps them, and each is taken within milliseconds."""
AT_ONCE: Final = 4
"""How many are accepted in one turn of the loop, so that a crowd does not hold up what is at work."""
MOST: Final = 256
"""Connections over the socket, where there are descriptors enough."""
_FEWEST: Final = 16
_SHARE: Final = 4
"""Connections have a quarter of the descriptors at most; of them a quarter is for streams, one for people. Of
what is for people, a process that holds a quarter gets no more."""

TOO_MANY: Final = "TOO_MANY_CONNECTIONS"
LAST: Final = {"Connection": "close"}
"""Headers of a refusal: a connection that is refused holds no place."""
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Retry-After: 1\r\nContent-Length: %d\r\n\r\n%b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What others can make us hold, and for how long."""

    connections: int = 128
    """At a time. One more takes the place of one that waits for a request, or whose answer is unread; if
    there is none, it hears 503."""
    head_s: float = 10
    """How long a request's headers may take to arrive."""
    stalled_s: float = 60
    """How long an answer may lie unread before its connection is ended; a stream can be taken up again."""

    @classmethod
    def of_socket(cls) -> Limits:
        """Return those of the socket: never more than a quarter of the files this process may open."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = MOST if files == resource.RLIM_INFINITY else min(MOST, files // _SHARE)
        return cls(connections=max(most, _FEWEST))

    @property
    def kept(self) -> int:
        """How many of them are for people, and how many streams there may be."""
        return self.connections // _SHARE


class BoundedProtocol(HeadProtocol):
    """HTTP with limits on how many connect, and on how long they keep us waiting."""

    limits = Limits()
    connections: set[BoundedProtocol]  # type: ignore[assignment]
    pid: int | None = None
    """The process that connected, where the kernel tells it."""
    undecided = False
    """Whether its request has yet to get a place among those at work."""
    since = 0.0
    """When it was made, by the loop's clock."""
    _late: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, in the place of one that gives way when there are too many."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # what the kernel does not take is unread: `pause_writing`
        self.since = self.loop.time()
        over = len(self.connections) > self.limits.connections
        if self._crowds() or (over and not self._gain_place()):
            transport.write(self._full())
            transport.close()
            return
        self._await_request()

    def gives_way(self) -> bool:
        """Return whether no request is at work here, or its answer is not read."""
        return self.waits_for_request() or self.undecided or self.flow.write_paused

    def waits_for_request(self) -> bool:
        """Return whether no request is here as a whole, head and body."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete or self.conn.their_state is h11.SEND_BODY

    def _crowds(self) -> bool:
        """Return whether its process holds all that is for one: its request is not even read."""
        held = sum(one.pid == self.pid for one in self.connections)
        return self.pid is not None and held > self.limits.connections - self.limits.kept

    def _gain_place(self) -> bool:
        """End a connection that gives way: the oldest of the process that holds most."""
        held = Counter(one.pid for one in self.connections)
        giving = (one for one in self.connections if one is not self and one.gives_way())
        ended = max(giving, key=lambda one: (held[one.pid], -one.since), default=None)
        if ended is None:
            return False
        self.connections.discard(ended)  # at once: it is lost in the next turn of the loop
        ended.transport.abort()
        return True

    def _full(self) -> bytes:
        others = Counter(one.pid for one in self.connections if one is not self)
        crowd, hint = _crowd(others)
        message = f"{counted(others.total(), 'connection is', 'connections are')} open, {crowd}; ask again"
        body = error_body(StoreError(message, code=TOO_MANY, hint=hint))
        return _FULL % (len(body), body)

    def data_received(self, data: bytes) -> None:
        """Take what came; the clock runs while a request is not whole."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self._await_request()
        else:
            self._await_nothing()

    def on_response_complete(self) -> None:
        """Let the keep-alive clock of an idle connection run instead of ours.

        One that sent its next request before it had this answer is ended: hundreds of answers would be worked
        out of which none is read.
        """
        self._await_nothing()
        if not self.conn.trailing_data[0] or self.transport.is_closing():
            super().on_response_complete()
            return
        self.end(self.limits.stalled_s)
        self.flow.resume_reading()

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
    """So many requests, or streams, at a time: the last quarter is for people, and for no process alone."""

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
        self._threads = anyio.CapacityLimiter(2)  # of its own: the others may be what all wait for

    @contextmanager
    def one(self, caller: From) -> Iterator[None]:
        """Count a place for as long as it is held."""
        self._held[caller.pid] += 1
        try:
            yield
        finally:
            self._held[caller.pid] -= 1
            self._held += Counter()  # drops those that hold none

    async def admit(self, caller: From) -> None:
        """Raise StoreError when no place is left, or when those that are left are not for this caller."""
        if self._held.total() < self._for_all:
            return
        person = await self._is_person(caller)
        taken = self._held.total()  # by now
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
        """Return whether no executor asks. A process is looked at once, however many of its requests wait."""
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
    """Answers that go on: fewer than there are places, however many readers come."""

    def __init__(self, most: int, inside: Callable[[int], bool]) -> None:
        self._places = Places("streams are open", "TOO_MANY_STREAMS", most, inside)

    def counted(self, response: Response, caller: From) -> Response:
        """Return a response that takes a place while it is sent, if it is a stream."""
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
    """Return who holds most, and the command that shows it."""
    [(pid, count)] = held.most_common(1)
    if pid is None:
        return f"{count} of them over TCP", "ss -tnp"
    name = (proc.read(f"/proc/{pid}/comm") or b"").decode(errors="replace").strip()
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return f"{count} of them by process {pid} ({shown or 'ended'})", f"ps -fp {pid}"
