"""The scripted model server: four providers' APIs on one loopback port, answered by one function."""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.real.provider.anthropic import Anthropic
from tests.real.provider.chat import Chat
from tests.real.provider.gemini import Gemini
from tests.real.provider.responses import Responses
from tests.real.provider.sse import PLAIN
from tests.real.provider.turns import Answer, Asked, Dialect, Fault, Json, Model, Silence, Slow, Turn
from tests.support.loopback import answering

_SUFFIXES: tuple[tuple[str, Dialect], ...] = (
    ("/messages", Anthropic()),
    ("/responses", Responses()),
    ("/chat/completions", Chat()),
    (":streamGenerateContent", Gemini()),
    (":generateContent", Gemini()),
)


@dataclass
class Provider:
    """A running server: where it listens, and what it was asked so far."""

    port: int
    asked: list[Asked] = field(default_factory=list)
    requests: list[tuple[str, str, Json]] = field(default_factory=list)
    """Method, path and body of everything that came, understood or not."""
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """The base URL, without a version."""
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def serving(model: Model) -> Iterator[Provider]:
    """Lend a server on a free loopback port that answers what `model` decides."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        provider = Provider(server.server_address[1])
        server.RequestHandlerClass = _handler(provider, model)
        with answering(server, provider.over):
            yield provider


def _handler(provider: Provider, model: Model) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # an agent that went away in mid-sentence
                super().handle()

        def do_GET(self) -> None:
            provider.requests.append(("GET", self.path, {}))
            # A refused upgrade is the answer that sends codex from its web socket to plain requests at once.
            status = 426 if "upgrade" in self.headers else 404
            self._send(status, PLAIN, b'{"error": {"message": "not here"}}', {})

        def do_CONNECT(self) -> None:
            provider.requests.append(("CONNECT", self.path, {}))
            self._send(403, PLAIN, b"{}", {})

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            body = _decoded(raw, self.headers.get("content-encoding", ""))
            path = self.path.partition("?")[0]
            provider.requests.append(("POST", self.path, body))
            for suffix, dialect in _SUFFIXES:
                if path.endswith(suffix):
                    return self._answer(dialect, dialect.asked(path, body))
            return self._send(200, PLAIN, json.dumps(_aside(path)).encode(), {})

        def _answer(self, dialect: Dialect, asked: Asked) -> None:
            provider.asked.append(asked)
            answer: Answer = model(asked)
            if isinstance(answer, Silence):
                provider.over.wait(answer.seconds)
                self.close_connection = True
            elif isinstance(answer, Fault):
                self._send(answer.status, PLAIN, json.dumps(answer.body).encode(), dict(answer.headers))
            elif isinstance(answer, Slow):
                self._drip(dialect, asked, answer)
            else:
                kind, content = dialect.answer(asked, answer)
                self._send(200, kind, content, {})

        def _drip(self, dialect: Dialect, asked: Asked, slow: Slow) -> None:
            kind, content = dialect.answer(asked, Turn(slow.text, by_word=True))
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True
            ping_s = slow.ping_s or slow.pause_s
            for event in content.split(b"\n\n")[:-1]:
                left = slow.pause_s
                while left > 0 and not provider.over.wait(min(ping_s, left)):
                    left -= ping_s
                    if slow.ping_s is not None:
                        self.wfile.write(dialect.ping)
                self.wfile.write(event + b"\n\n")

        def _send(self, status: int, kind: str, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "content-type": kind, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the requests in `Provider.requests` only."""

    return Handler


def _aside(path: str) -> Json:
    """Return the answer to what is asked beside the model itself."""
    return {"totalTokens": 100} if path.endswith(":countTokens") else {"input_tokens": 100}


def _decoded(raw: bytes, encoding: str) -> Json:
    match encoding:
        case "gzip":
            raw = gzip.decompress(raw)
        case "deflate":
            raw = zlib.decompress(raw)
    try:
        body = json.loads(raw or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
