"""A connection to whoever listens at a launcher's socket.

One packet is one request or one answer. Only a launcher of the same account counts, and every wait
has a limit: one that hangs must cost a delay and never a daemon.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import structlog

import handoffd
from handoffd.execute.runner import proc

log = structlog.get_logger(__name__)

_ANSWER_S = 15.0
_CROWDED_S = 0.01
_PACKET_BYTES = 8192
_CREDENTIALS = struct.Struct("3i")


class Connection:
    """An open connection; a context manager that closes it."""

    def __init__(self, connection: socket.socket, pid: int, patience_s: float) -> None:
        self._socket = connection
        self._patience_s = patience_s
        self.pid = pid
        """The process that listens, as the kernel knows it: it need not be asked."""

    @classmethod
    async def open(cls, path: Path, patience_s: float) -> Self | None:
        """Return a connection to whoever listens at `path`, None when nobody of this account does.

        Who takes longer than `patience_s` seconds to say a word counts as hung. The socket of a launcher that
        was killed outlives it for a moment in a shim that it had just forked, and does not count.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            with anyio.fail_after(patience_s):
                await _connect(connection, path)
            raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid, user, _ = _CREDENTIALS.unpack(raw)
            if user == os.geteuid() and proc.is_alive(pid):
                return cls(connection, pid, patience_s)
        except (OSError, TimeoutError):
            log.debug("no launcher answers", socket=str(path))
        except BaseException:
            connection.close()
            raise
        connection.close()
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    async def is_current(self) -> bool:
        """Tell whether it is a launcher of this version, and says so in time."""
        answer = await self._ask(b"hello")
        return (answer or "").split()[:2] == ["handoffd", handoffd.__version__]

    async def run(self, run_dir: Path) -> str | None:
        """Have `run_dir` run; None when nobody has taken the request: a hung or another launcher.

        Otherwise the answer, when the run's start (or why it has none) is recorded; empty when
        there was none in time.
        """
        request = b"run %s %s" % (handoffd.__version__.encode(), os.fsencode(run_dir))
        taken = await self._ask(request)
        if taken != "accepted":
            return taken if taken is not None and taken.startswith("error ") else None
        return await self._answer(_ANSWER_S) or ""

    async def retire(self) -> None:
        """Have the launcher give up its place; its runs go on."""
        await self._ask(b"retire")

    def tell_to_retire(self) -> None:
        """The same without waiting: one that hangs may read it later."""
        self._send(b"retire")

    def _send(self, request: bytes) -> bool:
        try:
            # A packet goes whole or not at all; there is no room only for one that does not read.
            self._socket.send(request)
        except OSError as error:
            log.debug("launcher did not take a request", error=error.strerror)
            return False
        return True

    async def _ask(self, request: bytes) -> str | None:
        """Return the answer to `request`; None when there is none in time."""
        return await self._answer(self._patience_s) if self._send(request) else None

    async def _answer(self, within_s: float) -> str | None:
        try:
            with anyio.fail_after(within_s):
                packet = await asyncio.get_running_loop().sock_recv(self._socket, _PACKET_BYTES)
        except (OSError, TimeoutError):
            return None
        return packet.decode("utf-8", "replace") or None


async def _connect(connection: socket.socket, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Through the descriptor, because a socket's address has room for 107 bytes only.
        address = f"/proc/self/fd/{folder}/{path.name}"
        while True:
            try:
                return connection.connect(address)
            except BlockingIOError:  # so many wait to be accepted; no event tells when one fewer does
                await anyio.sleep(_CROWDED_S)
    finally:
        os.close(folder)
