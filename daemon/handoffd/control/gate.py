"""What stands between a TCP port and the API: who may come in, before anything else is looked at.

A browser on this machine can be made to send requests to loopback by any page it shows. So the host must
be named as a loopback one (a page cannot, whatever its name resolves to), nothing that has an origin is
answered, a body must say that it is JSON (a page cannot, without its origin being asked about first), and
there are no CORS headers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from handoffd.control.api.problems import error_response, status_of
from handoffd.control.token import Token
from handoffd.errors import HandoffdError, Refused

log = structlog.get_logger(__name__)

CALLER: Final = "handoffd.caller"
"""Key of an ASGI scope: who asks, as `From`."""

BURST: Final = 100
"""Wrong tokens that are answered at once; then `PER_S` a second. The right one is never made to wait."""
PER_S: Final = 10.0

_HOW: Final = 'curl -H "Authorization: Bearer $(handoffd token)" ...'


@dataclass(frozen=True, slots=True)
class From:
    """Where a request comes from. `pid` None: over TCP, from a process that nobody knows.

    `vouched`: whoever has the token counts as a person.
    """

    pid: int | None
    vouched: bool = False


class Bucket:
    """Counts what comes too often: `BURST` at once, `PER_S` a second after that."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        self._left = float(BURST)
        self._at = now_s()

    def take(self) -> bool:
        """Return whether there is one left, and take it."""
        now = self._now_s()
        self._left = min(float(BURST), self._left + (now - self._at) * PER_S)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Gate:
    """Lets requests through that name this machine, come from no page, and bring the token."""

    def __init__(self, app: ASGIApp, token: Token, *, gates: bool, bucket: Bucket | None = None) -> None:
        self._app = app
        self._token = token
        self._from = From(None, vouched=gates)
        self._wrong = bucket or Bucket()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on. The scope's `server` is where the connection was accepted."""
        try:
            self._check(scope)
        except HandoffdError as error:
            extra = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}.get(status_of(error))
            await error_response(error, extra)(scope, receive, send)
            return
        await self._app({**scope, CALLER: self._from}, receive, send)

    def _check(self, scope: Scope) -> None:
        headers: Sequence[tuple[bytes, bytes]] = scope["headers"]
        if _all(headers, b"host") not in _hosts(scope["server"][1]):
            message = "the request is for another host: name this one as 127.0.0.1, [::1] or localhost"
            raise Refused(message, code="FORBIDDEN", hint="handoffd config show")
        if _all(headers, b"origin"):
            raise Refused("pages in browsers are not answered", code="FORBIDDEN", hint="handoffd status")
        self._check_token(_all(headers, b"authorization"))
        has_body = _all(headers, b"content-length") not in ([], [b"0"]) or _all(headers, b"transfer-encoding")
        if has_body and not _is_json(_all(headers, b"content-type")):
            message = "a body must be JSON, and say so: Content-Type: application/json"
            raise Refused(message, code="UNSUPPORTED_MEDIA_TYPE", hint="curl --json '{\"project\": ...}' ...")

    def _check_token(self, given: list[bytes]) -> None:
        if not given:
            raise Refused("a token is needed", code="UNAUTHORIZED", hint=_HOW)
        scheme, _, text = given[0].partition(b" ")
        if len(given) == 1 and scheme.lower() == b"bearer" and self._token.opens(text.strip()):
            return
        if not self._wrong.take():
            raise Refused("too many wrong tokens", code="TOO_MANY_REQUESTS", hint=_HOW)
        log.warning("wrong token")
        raise Refused("this is not the token", code="UNAUTHORIZED", hint=_HOW)


def _all(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def _hosts(port: int) -> list[list[bytes]]:
    return [[f"{name}:{port}".encode()] for name in ("127.0.0.1", "[::1]", "localhost")]


def _is_json(given: list[bytes]) -> bool:
    return len(given) == 1 and given[0].partition(b";")[0].strip().lower() == b"application/json"
