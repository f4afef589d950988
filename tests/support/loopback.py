"""Raw HTTP over a loopback port or a socket: what well-behaved clients would not send can be sent, too."""

from __future__ import annotations

import json
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

LIMIT_S = 60.0


@contextmanager
def answering(server: ThreadingHTTPServer, over: threading.Event) -> Iterator[None]:
    """Have a server answer in a thread of its own until the block ends; `over` ends its slow answers."""
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        over.set()
        server.shutdown()
        thread.join()


def free_port() -> int:
    """Return a port that is free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the status, the headers in lower case, the body as it is."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Raw(ABC):
    """Sends requests to whatever `connect` leads to."""

    @property
    def usual(self) -> dict[str, str | None]:
        """The headers of every request."""
        return {"host": "localhost", "connection": "close"}

    @abstractmethod
    def connect(self) -> socket.socket:
        """Return a connection that waits no longer than a minute for anything."""

    def ask(self, method: str, path: str, body: bytes = b"", **changes: str | None) -> Answer:
        """Return the answer to a request with the usual headers; `changes` replace or, with None, drop some.

        `_` in their names means `-`.
        """
        headers = self.usual
        if body:
            headers |= {"content-type": "application/json", "content-length": str(len(body))}
        headers |= {name.replace("_", "-").lower(): value for name, value in changes.items()}
        lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
        return self.send("\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + body)

    def send(self, raw: bytes) -> Answer:
        """Return the answer to bytes as they are, once the server has ended the connection."""
        with closing(self.connect()) as connection:
            connection.sendall(raw)
            return answer_of(everything(connection))


@dataclass(frozen=True)
class OverSocket(Raw):
    """The socket of a daemon."""

    path: Path

    def connect(self) -> socket.socket:
        """Return a connection that waits no longer than a minute for anything."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(LIMIT_S)
        connection.connect(str(self.path))
        return connection


@dataclass(frozen=True)
class Loopback(Raw):
    """A port, the file of its token, and the address it is a port of."""

    port: int
    token_file: Path
    address: str = "127.0.0.1"

    @property
    def token(self) -> str:
        """The token as it is now."""
        return self.token_file.read_text().strip()

    @property
    def usual(self) -> dict[str, str | None]:
        """With the token, to the address of the port."""
        own = {"host": f"127.0.0.1:{self.port}", "authorization": f"Bearer {self.token}"}
        return super().usual | own

    def connect(self) -> socket.socket:
        """Return a connection that waits no longer than a minute for anything."""
        return socket.create_connection((self.address, self.port), timeout=LIMIT_S)


def everything(connection: socket.socket) -> bytes:
    """Return what comes until the other side ends."""
    pieces: list[bytes] = []
    try:
        while piece := connection.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


def answer_of(raw: bytes) -> Answer:
    """Return the first answer in `raw`; status 0 when there is none."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    length = int(headers.get("content-length", len(body)))
    return Answer(int(first.split()[1]) if first else 0, headers, body[:length])


def has_ipv6() -> bool:
    """Return whether this machine has `::1`."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
