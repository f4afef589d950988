"""How much a request may say before its body, and what is answered to bytes that are no request.

The HTTP library counts only what is still incomplete, so a head that comes in one piece has to be measured
here; and what the library refuses itself would be told as plain text, not as our JSON.
"""

from __future__ import annotations

import asyncio
import sys
from http import HTTPStatus
from typing import Final

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from handoffd.control.api.problems import error_body, error_response, status_of
from handoffd.errors import HandoffdError, Refused

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
