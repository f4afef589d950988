"""Errors as the API tells them: one shape, stable codes, and a fitting HTTP status for each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from handoffd.api.events import Json
from handoffd.errors import HandoffdError, Locked, NotFound, Refused, StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a status means, and the codes that come with it. `name` is that of the response in OpenAPI."""

    status: int
    name: str
    codes: tuple[str, ...]
    when: str
    others: bool = False
    """Whether codes that are listed nowhere here come with it, too: those of verbs and files."""


PROBLEMS: Final = (
    Problem(
        status=400, name="BadRequest", codes=("BAD_REQUEST", "BAD_ARGUMENT", "INVALID_STORY"),
        when="the request or an argument cannot be used",
    ),
    Problem(
        status=401, name="Unauthorized", codes=("UNAUTHORIZED",),
        when="over TCP: no token, or not the one of `handoffd token`",
    ),
    Problem(
        status=403, name="Forbidden", codes=("FORBIDDEN", "INSIDE_EXECUTOR", "NOT_OVER_TCP"),
        when="another account, another host, a page in a browser; or a verb for people, from elsewhere",
    ),
    Problem(
        status=404, name="NotFound", codes=("NOT_FOUND",), others=True,
        when="no such path, verb, project or run",
    ),
    Problem(
        status=405, name="MethodNotAllowed", codes=("METHOD_NOT_ALLOWED",),
        when="the path has other methods; the header `Allow` names them",
    ),
    Problem(
        status=408, name="TooSlow", codes=("REQUEST_TIMEOUT",), when="the body did not arrive in time"
    ),
    Problem(
        status=409, name="Conflict", codes=("IDEMPOTENCY_CONFLICT", "REQUEST_CUT_SHORT"), others=True,
        when="refused: by the engine (the body is its result), because something is locked, or by its key",
    ),
    Problem(status=413, name="TooLarge", codes=("TOO_LARGE",), when="the body is too large"),
    Problem(
        status=415, name="UnsupportedMediaType", codes=("UNSUPPORTED_MEDIA_TYPE",),
        when="over TCP: a body that does not say that it is JSON",
    ),
    Problem(
        status=429, name="TooMany", codes=("TOO_MANY_REQUESTS",), when="over TCP: too many wrong tokens"
    ),
    Problem(
        status=431, name="HeadersTooLarge", codes=("HEADERS_TOO_LARGE",),
        when="the request line and the headers are larger than 32 KiB",
    ),
    Problem(
        status=500, name="Fault", codes=("INTERNAL",), when="a fault of handoffd; its log has more"
    ),
    Problem(
        status=503, name="Unavailable", codes=("TOO_MANY_CONNECTIONS", "TOO_MANY_STREAMS"), others=True,
        when="too many requests or streams at once; or the journal or a file could not be read or written",
    ),
)  # fmt: skip
"""Every status that is no answer, in order."""

BY_CODE: Final[Mapping[str, int]] = {code: one.status for one in PROBLEMS for code in one.codes}
"""The status of a code, whatever its family."""

_BY_FAMILY: Final[tuple[tuple[type[HandoffdError], int], ...]] = (
    (NotFound, 404),
    (Locked, 409),
    (Refused, 409),
    (StoreError, 503),
)


def status_of(error: HandoffdError) -> int:
    """Return the HTTP status for an error; 400 for a family without one."""
    by_family = next((code for kind, code in _BY_FAMILY if isinstance(error, kind)), 400)
    return BY_CODE.get(error.code, by_family)


def error_json(error: HandoffdError) -> Json:
    """Return an error as the API tells it: type, code, message, hint, and what belongs to it."""
    told = {"type": "error", "code": error.code, "message": error.message, "hint": error.hint}
    return {**told, **error.details}


def error_body(error: HandoffdError) -> bytes:
    """Return an error as bytes of JSON. What a message quotes may be no text; it can be told all the same."""
    text = json.dumps(error_json(error), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", errors="replace")


def error_response(error: HandoffdError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer that tells an error, with the status that fits it."""
    return Response(error_body(error), status_of(error), headers, "application/json")
