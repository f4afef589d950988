"""The control socket: HTTP for processes of the same account only; and, if configured, a loopback port.

The socket is 0600 in a folder of 0700; besides, the daemon reads every connection's credentials from the
kernel and answers another account with 403 before it reads the request. `auth.py` guards the port.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import anyio
import anyio.lowlevel
import structlog
import uvicorn
from anyio import to_thread
from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from handoffd.api.http.application import application
from handoffd.api.http.auth import CALLER, From, Gate, Token, ensured
from handoffd.api.http.endpoint import error_response
from handoffd.api.http.limits import (
    AT_ONCE,
    BACKLOG,
    LAST,
    MOST_HEAD_BYTES,
    TOO_MANY,
    BoundedProtocol,
    Limits,
    Places,
    SmallHeads,
    bounded,
)
from handoffd.api.service import Service
from handoffd.errors import HandoffdError, Locked, Refused, StoreError
from handoffd.execute.runner import proc

log = structlog.get_logger(__name__)

STOP_S = 2.0
"""How long a stopping daemon waits for requests in flight."""
_PROBE_S = 1.0


_CONNECTION: Final = "connection"
"""Key of a scope's state: the connection of the request."""


class _PeerProtocol(BoundedProtocol):
    """HTTP that knows its peer: the scope's client is uid and pid."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, with its credentials from the kernel."""
        peer = peer_of(transport.get_extra_info("socket"))
        self.pid = peer.pid
        self.app_state = {_CONNECTION: self}
        super().connection_made(transport)
        self.client = (str(peer.uid), peer.pid)

    def connection_lost(self, exc: Exception | None) -> None:
        """Break the reference cycle through `app_state`."""
        self.app_state = {}
        super().connection_lost(exc)


class _OnlyAccounts:
    """Passes on requests of some accounts while there are places; refuses the others."""

    def __init__(self, app: ASGIApp, uids: frozenset[int], places: Places) -> None:
        self._app = app
        self._uids = uids
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        uid, pid = scope["client"]
        try:
            await self._admit(scope["state"].pop(_CONNECTION), int(uid), From(pid))
        except HandoffdError as refusal:
            await error_response(refusal, LAST)(scope, receive, send)
            return
        with self._places.one(From(pid)):
            await self._app({**scope, CALLER: From(pid)}, receive, send)

    async def _admit(self, connection: _PeerProtocol, uid: int, caller: From) -> None:
        if uid not in self._uids:
            log.warning("connection refused", uid=uid, pid=caller.pid)
            raise Refused("this daemon answers its own account only", code="FORBIDDEN")
        connection.undecided = True
        try:
            await self._places.admit(caller)
        finally:
            connection.undecided = False
        if connection.transport.is_closing():
            raise StoreError("another connection needed the place", code=TOO_MANY)  # before any effect


class ControlServer:
    """Serves the API on a Unix socket, and with `door` on a loopback port, until cancelled.

    `started` is set when it listens; from then on `tcp_port` is the port, if there is one.
    """

    def __init__(
        self,
        service: Service,
        path: Path,
        *,
        uids: frozenset[int] | None = None,
        door: TcpDoor | None = None,
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits.of_socket()
        self._path = path
        self._door = door
        self.started = anyio.Event()
        self.tcp_port: int | None = None
        self._closing = anyio.Event()
        self._api = application(service, self._closing, limits.kept)
        accounts = uids if uids is not None else frozenset({os.geteuid()})
        places = Places("requests are being answered", TOO_MANY, limits.connections, service.inside)
        known = _OnlyAccounts(self._api, accounts, places)
        self._server = _server(known, bounded(_PeerProtocol, limits))

    async def run(self) -> None:
        """Listen and serve.

        Raises Locked when a process answers on the socket already, StoreError when the port is taken.
        """
        listening, inode = await to_thread.run_sync(_listen, self._path)
        try:
            serving = [(self._server, listening), *await self._behind_the_door()]
            try:
                await self._serve(serving)
            finally:
                for _, port in serving[1:]:
                    port.close()
        finally:
            listening.close()
            _leave(self._path, inode)

    async def _behind_the_door(self) -> list[tuple[uvicorn.Server, socket.socket]]:
        door = self._door
        if door is None:
            return []
        if door.token is None:
            await to_thread.run_sync(ensured, door.token_file)
        listening = listen_on_loopback(door)
        self.tcp_port = port_of(listening)
        gate = Gate(self._api, Token(door.token_file, door.token), gates=door.gates)
        return [(_server(gate, door.protocol), listening)]

    async def _serve(self, serving: Sequence[tuple[uvicorn.Server, socket.socket]]) -> None:
        for server, listening in serving:
            server.config.load()
            server.lifespan = server.config.lifespan_class(server.config)
            await server.startup(sockets=[listening])
            listening.listen(BACKLOG)  # asyncio has lowered the backlog to AT_ONCE
        self.started.set()
        try:
            # Not uvicorn's main loop: it wakes up ten times a second for headers we do not send.
            await anyio.sleep_forever()
        finally:
            self._closing.set()
            with anyio.move_on_after(STOP_S, shield=True):
                async with anyio.create_task_group() as tasks:
                    for server, listening in serving:
                        tasks.start_soon(_wind_down, server, listening)


def _server(app: ASGIApp, protocol: type[H11Protocol]) -> uvicorn.Server:
    """Return a server. Do not call its `serve`, which would take over the daemon's signal handlers."""
    config = uvicorn.Config(
        cast("Any", SmallHeads(app)),
        http=cast("Any", protocol),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        backlog=AT_ONCE,
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )
    return uvicorn.Server(config)


async def _wind_down(server: uvicorn.Server, listening: socket.socket) -> None:
    await _stop_accepting(listening)
    await server.shutdown(sockets=[listening])


async def _stop_accepting(listening: socket.socket) -> None:
    """Stop accepting, and let just accepted connections complete.

    asyncio leaks a connection that is accepted in the turn of the loop in which its server is closed.
    """
    asyncio.get_running_loop().remove_reader(listening)
    for _ in range(3):
        await anyio.lowlevel.checkpoint()


def _listen(path: Path) -> tuple[socket.socket, int]:
    """Return a listening socket at `path`, and its inode; replace a socket on which no process answers."""
    if len(os.fsencode(path)) > 90:
        raise HandoffdError(
            f"the socket's path is too long: {path}",
            hint="export HANDOFFD_RUNTIME_DIR=/run/user/$(id -u)/handoffd",
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _answers(path):
            raise Locked(f"another process answers on {path} already", hint="handoffd status")
        _sweep(path)
        return _bound(path.with_name(f".{path.name}.{os.getpid()}"), path)
    except OSError as error:
        raise StoreError(f"cannot listen on {path}: {error.strerror}") from error


def _bound(temporary: Path, path: Path) -> tuple[socket.socket, int]:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listening.bind(os.fspath(temporary))
        temporary.chmod(0o600)  # before it listens, so that no client connects earlier
        listening.listen(BACKLOG)
        inode = temporary.stat().st_ino
        temporary.rename(path)  # clients find it only now, when it accepts connections
    except BaseException:
        listening.close()
        temporary.unlink(missing_ok=True)
        raise
    return listening, inode


def _sweep(path: Path) -> None:
    """Remove temporary sockets of processes that died before the rename."""
    for left in path.parent.glob(f".{path.name}.*"):
        pid = left.suffix[1:]
        if pid.isdecimal() and (int(pid) == os.getpid() or not proc.is_alive(int(pid))):
            left.unlink(missing_ok=True)


def _leave(path: Path, inode: int) -> None:
    """Remove our socket, unless another process has replaced it."""
    with suppress(OSError):
        if path.lstat().st_ino == inode:
            path.unlink()


def _answers(path: Path) -> bool:
    """Return whether a process listens at `path`.

    For a moment, a child that a killed daemon has just forked keeps the socket open until it runs its own
    program; the pid in the credentials is that of the dead daemon.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(os.fspath(path))
        except BlockingIOError:  # a full queue: its process is alive, or was a moment ago
            return True
        except OSError:
            return False
        return proc.is_alive(peer_of(probe).pid)


# --- the peer of a Unix socket -----------------------------------------------------------------------
_CREDENTIALS: Final = struct.Struct("3i")


class Peer(Struct, frozen=True):
    """The process that connected, from the kernel."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the peer of a Unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)


# --- the loopback port -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class TcpDoor:
    """The configuration of the port. `port` 0: any free one. `gates`: also accept verbs for people.

    `token` None: use the one in `token_file`.
    """

    host: str
    port: int
    token_file: Path
    token: str | None = field(default=None, repr=False)
    gates: bool = False
    limits: Limits = field(default_factory=Limits)

    @property
    def protocol(self) -> type[BoundedProtocol]:
        """The protocol class: uvicorn makes an instance for each connection."""
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
