"""A login server on loopback that gives a new refresh token for each, and takes none a second time.

codex takes its address from a variable. claude's is fixed: it reaches the server through a proxy (`CONNECT`),
which the server is, too, and trusts its certificate.
"""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.real.provider.turns import Json
from tests.support.loopback import answering

from handoffd.clock import SystemClock

HOSTS = ("platform.claude.com", "api.anthropic.com")
_HOUR_S = 3600
_SLOW_S = 3.0
"""How long an answer takes: long enough that another agent wants a new token meanwhile."""


@dataclass
class Logins:
    """One account's login: which refresh token counts, and whether one was used twice."""

    port: int = 0
    number: int = 1
    strict: bool = True
    """Whether the account is logged out when a refresh token is used again; else that is only refused."""
    reused: list[str] = field(default_factory=list)
    """What was used again."""
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        """Its address, for plain requests and as a proxy."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def refresh_token(self) -> str:
        """The one that counts."""
        return refresh_token(self.number)

    def renewed(self, token: str) -> Json | None:
        """Return new tokens for a refresh token; None if it was used before, or the account is logged out."""
        with self.lock:
            if token != self.refresh_token or (self.strict and self.reused):
                self.reused.append(token)
                return None
            self.number += 1
            made = access_token(self.number, _HOUR_S)
            return {
                "token_type": "Bearer", "access_token": made, "id_token": made, "expires_in": _HOUR_S,
                "refresh_token": self.refresh_token, "scope": "user:inference user:profile",
            }  # fmt: skip


def refresh_token(number: int) -> str:
    """Return the refresh token of this number: 1 is the one of the login itself."""
    return f"refresh-{number}"


def access_token(number: int, for_s: float) -> str:
    """Return a token, as OpenAI makes them, that is valid for so long."""
    account = {"chatgpt_account_id": "account-1", "chatgpt_plan_type": "pro", "chatgpt_user_id": "user-1"}
    claims = {
        "exp": round(SystemClock().now().timestamp() + for_s), "jti": str(number), "email": "a@example.org",
        "https://api.openai.com/auth": account,
    }  # fmt: skip
    parts = [json.dumps(part).encode() for part in ({"alg": "none", "typ": "JWT"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, b"none"))


def certificate(folder: Path) -> Path:
    """Make a certificate for the hosts, with its key in the same file, by openssl."""
    file = folder / "login-server.pem"
    names = ",".join(f"DNS:{host}" for host in HOSTS)
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=logins",
            "-addext", f"subjectAltName={names}", "-keyout", file, "-out", f"{file}.crt",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


@contextlib.contextmanager
def logging_in(folder: Path) -> Iterator[Logins]:
    """Lend a server on a free loopback port, whose certificate is `login-server.pem` in `folder`."""
    logins = Logins()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(logins, context)) as server:
        logins.port = server.server_address[1]
        with answering(server, logins.over):
            yield logins


def _handler(logins: Logins, context: ssl.SSLContext) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with contextlib.suppress(OSError):  # an agent that went away
                super().handle()

        def finish(self) -> None:
            with contextlib.suppress(OSError):
                super().finish()
            self.connection.close()

        def do_CONNECT(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.rfile.close()
            self.connection = context.wrap_socket(self.connection, server_side=True)
            self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
            self.close_connection = False

        def do_GET(self) -> None:
            self._send(404, {})

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers.get("content-length", 0)))
            if not self.path.endswith("/oauth/token"):
                return self._send(404, {})
            answer = logins.renewed(json.loads(text)["refresh_token"])
            logins.over.wait(_SLOW_S)
            return self._send(400 if answer is None else 200, answer or {"error": "invalid_grant"})

        def _send(self, status: int, body: Json) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Keep nothing."""

    return Handler
