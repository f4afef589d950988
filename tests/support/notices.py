"""A notice to send, and a web server that receives some."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from handoffd.notify.notice import Notice

NOTICE = Notice(
    id="main-7",
    at=datetime(2026, 1, 31, 22, 15, 9, 123000, tzinfo=UTC),
    project="/srv/shop",
    name="shop",
    story="US-005",
    step="review",
    kind="needs_human",
    text="US-005 waits for a review",
    why="the step needs a person",
    action="handoffd approve /srv/shop",
    review=("docs/bdd/US-005.md",),
)


Request = tuple[str, str, dict[str, str], Any]


class Server(ThreadingHTTPServer):
    """Answers every request with one status and remembers what it got."""

    daemon_threads = True

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.requests: list[Request] = []

    def address(self, path: str = "/", user: str = "") -> str:
        """Return a URL that leads here."""
        return f"http://{user}127.0.0.1:{self.server_address[1]}{path}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        """Take note and answer."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
        self.server.requests.append((self.command, self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        self.send_header("Location", self.server.address("/elsewhere"))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        """Take note of a request that should not have been made."""
        self.do_POST()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(status: int) -> Iterator[Server]:
    """Run a server for as long as the block lasts."""
    with Server(status) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
