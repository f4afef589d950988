"""From a request to what an endpoint is given: every parameter checked, nothing unknown let through."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import anyio
from starlette.requests import ClientDisconnect, Request

from handoffd.control.api.endpoint import MOST, Asked, Endpoint, UrlParameter
from handoffd.control.api.idempotency import key_of
from handoffd.control.gate import CALLER, From
from handoffd.control.history import Json
from handoffd.control.service import Caller, Service
from handoffd.control.verbs import BAD_ARGUMENT, values
from handoffd.control.vocabulary import MAX_TEXT
from handoffd.errors import Refused

MAX_BODY: Final = 1024 * 1024
BODY_S: Final = 30.0
"""How long a body may take to arrive."""
_FLAGS: Final = {"1": True, "true": True, "0": False, "false": False}
_MOST_NAME: Final = 100


async def asked(
    endpoint: Endpoint,
    request: Request,
    service: Service,
    closing: anyio.Event,
    body_s: float = BODY_S,
) -> Asked:
    """Return what `request` asks of `endpoint`. Raises Refused (BAD_ARGUMENT, BAD_REQUEST, TOO_LARGE)."""
    try:
        given = _of_url(endpoint, request)
        body = await _in_time(request, body_s) if endpoint.method == "POST" else {}
        caller = _caller(endpoint, request, body.get("by"))
        if not endpoint.raw:
            given.update(values(endpoint.body or (), body))
    except Refused as refused:
        refused.hint = refused.hint or endpoint.hint
        raise
    return Asked(service=service, given=given, body=body, caller=caller, closing=closing, request=request)


def _of_url(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    known = {parameter.name for parameter in endpoint.url if parameter.place == "query"}
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if name not in known:
            allowed = ", ".join(sorted(known)) or "none"
            raise _bad(f"unknown parameter {name[:80]!r} (allowed: {allowed})")
        if names.count(name) > 1:
            raise _bad(f"{name} is given more than once")
    places: Mapping[str, Mapping[str, str]] = {
        "query": request.query_params, "path": request.path_params, "header": request.headers,
    }  # fmt: skip
    return {one.name: _value(one, places[one.place].get(one.name)) for one in endpoint.url}


def _value(parameter: UrlParameter, text: str | None) -> Any:
    if text == "" and parameter.type == "flag":
        return True
    if text is None or (text == "" and parameter.type == "text"):
        if parameter.required or parameter.place == "path":
            raise _bad(f"{parameter.name} is missing: {parameter.help}")
        return parameter.default
    if parameter.type == "number":
        return _number(parameter, text)
    if parameter.type == "flag":
        if text not in _FLAGS:
            raise _bad(f"{parameter.name} must be 1, true, 0 or false")
        return _FLAGS[text]
    if parameter.choices and text not in parameter.choices:
        raise _bad(f"{text[:80]!r} is no {parameter.name} (allowed: {', '.join(parameter.choices)})")
    return text


def _number(parameter: UrlParameter, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 16 or int(text) > MOST:
        raise _bad(f"{parameter.name} must be a whole number from 0")
    return min(int(text), parameter.most)


def _caller(endpoint: Endpoint, request: Request, by: object) -> Caller:
    key = key_of(request, endpoint) if endpoint.method == "POST" else None
    source = request.scope[CALLER]  # set by what stands between the socket and the application
    assert isinstance(source, From)
    if by is not None and not isinstance(by, str):
        raise _bad("by must be a text: the name to record")
    if by is not None and len(by) > MAX_TEXT:
        raise _bad(f"by must be a text of at most {MAX_TEXT} characters")
    name = by[:_MOST_NAME] if by and by.isprintable() else "api"
    return Caller(pid=source.pid, by=name, vouched=source.vouched, request=key)


async def _in_time(request: Request, within_s: float) -> Json:
    try:
        with anyio.fail_after(within_s):
            return await _body(request)
    except TimeoutError:
        message = f"the body did not arrive in {within_s:.0f} seconds"
        raise Refused(message, code="REQUEST_TIMEOUT") from None
    except ClientDisconnect:  # its connection was ended, by itself or because another one needed the place
        raise Refused("the connection ended before the body had arrived", code="BAD_REQUEST") from None


async def _body(request: Request) -> Json:
    """Return the JSON object in the body; an empty body is an empty object."""
    raw = b""
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BODY:
            raise Refused(f"the request is larger than {MAX_BODY} bytes", code="TOO_LARGE")
    try:
        data: Any = json.loads(raw or b"{}")
    except (ValueError, RecursionError) as error:
        raise Refused(f"the request is no JSON: {error}", code="BAD_REQUEST") from error
    if not isinstance(data, dict):
        raise Refused("the request is no JSON object", code="BAD_REQUEST")
    return data


def _bad(message: str) -> Refused:
    return Refused(message, code=BAD_ARGUMENT)
