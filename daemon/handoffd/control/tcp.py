"""The loopback port: where it is, and its listening socket."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from handoffd.control.bounds import BACKLOG, BoundedProtocol, Limits, bounded
from handoffd.errors import StoreError


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
    limits: Limits = field(default_factory=Limits)

    @property
    def protocol(self) -> type[BoundedProtocol]:
        """What is spoken behind it: uvicorn makes one of these for each connection."""
        return bounded(BoundedProtocol, self.limits)


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
