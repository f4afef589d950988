"""The loopback port: a listening socket, and connections that cannot be used to wear the daemon out.

A Unix socket is for processes of one account; to a TCP port everybody on the machine can connect. So their
number is bounded, and whoever does not get on with a request, or does not read its answer, loses the
connection.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from handoffd.control.head import HeadProtocol
from handoffd.errors import StoreError

BACKLOG: Final = 128

_FULL_BODY: Final = (
    b'{"type": "error", "code": "TOO_MANY_CONNECTIONS", "message": "too many connections", "hint": null}\n'
)
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Retry-After: 1\r\nContent-Length: %d\r\n\r\n%b" % (len(_FULL_BODY), _FULL_BODY)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a stranger can make us hold, and for how long."""

    connections: int = 128
    """At a time; whoever comes then is told so and sent away."""
    head_s: float = 10
    """How long a request's headers may take to arrive."""
    stalled_s: float = 60
    """How long an answer may lie unread before its connection is ended; a stream can be taken up again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpDoor:
    """Where to listen, and for whom. `port` 0 takes any. `gates`: verbs for people are taken, too.

    `token` is what opens it; without, the one in `token_file`.
    """

    host: str
    port: int
    token_file: Path
    token: str | None = field(default=None, repr=False)
    gates: bool = False
    limits: Limits = Limits()

    @property
    def protocol(self) -> type[H11Protocol]:
        """What is spoken behind it: uvicorn makes one of these for each connection."""
        return type("BoundedProtocol", (TcpProtocol,), {"limits": self.limits})


class TcpProtocol(HeadProtocol):
    """HTTP with limits on how many connect, and on how long they keep us waiting."""

    limits = Limits()
    _late: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.write(_FULL)
            transport.close()
            return
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Take what came; the clock runs while a request is not whole."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
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


def listen_on_loopback(door: TcpDoor) -> socket.socket:
    """Return a listening socket. Raises StoreError when the address is taken."""
    family = socket.AF_INET6 if ":" in door.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((door.host, door.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        message = f"cannot listen on {door.host} port {door.port} (control.tcp): {error.strerror}"
        raise StoreError(message, code="PORT_TAKEN", hint=f"ss -ltnp 'sport = :{door.port}'") from error
    except BaseException:
        listening.close()
        raise
    return listening


def port_of(listening: socket.socket) -> int:
    """Return the port of a listening socket."""
    address: Any = listening.getsockname()
    return int(address[1])
