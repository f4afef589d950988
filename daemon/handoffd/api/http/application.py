"""The JSON API, version 1, as an ASGI application: a route for each endpoint, and the checks of requests.

Every error is `{"type": "error", "code", "message", "hint"}` with a fitting HTTP status. Routes,
docs/reference/api.md and the OpenAPI document are generated from `ENDPOINTS`.

A request with a key is carried out once: a repeat gets the first answer. The journal records a claim of the
key before anything is done, and commits a verb's event together with the key. So when a daemon dies after
the event and before the answer, the next daemon answers a repeat from the event. A claim without event and
answer had no effect: a repeat carries the request out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final

import anyio
import structlog
from anyio.lowlevel import checkpoint
from msgspec import Struct, field
from msgspec.structs import asdict
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route

from handoffd.api.arguments import BAD_ARGUMENT, spec_of, values
from handoffd.api.http.auth import CALLER, From
from handoffd.api.http.endpoint import KEY_HEADER, MOST_KEY, Asked, Endpoint, document, error_response
from handoffd.api.http.limits import Limits, Streams
from handoffd.api.http.routes import MESSAGES, ORDERS, READS, STREAMS
from handoffd.api.questions import check_names, value_of
from handoffd.api.service import Caller, Service
from handoffd.api.verbs import MAX_TEXT
from handoffd.errors import HandoffdError, Json, NotFound, Refused
from handoffd.journal.commit import StoredRequest
from handoffd.protocol.state import encoded


async def _openapi(_: Asked) -> Json:
    return described()


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *READS,
    *STREAMS,
    *ORDERS,
    *MESSAGES,
    Endpoint(
        name="openapi", path="/v1/openapi.json", help="This API as an OpenAPI document.", answer=_openapi
    ),
)


@cache
def described() -> Json:
    """Return the OpenAPI document of all endpoints."""
    return document(ENDPOINTS)


log = structlog.get_logger(__name__)

_VERBS = "/v1/verbs/"

Answer = Callable[[Request], Awaitable[Response]]


def application(service: Service, closing: anyio.Event, streams: int = Limits().kept) -> Starlette:
    """Return the API over `service`. At most `streams` are open at once; `closing` ends them."""
    replies, going_on = Replies(service), Streams(streams, service.inside)
    routes = [_route(endpoint, service, closing, replies, going_on) for endpoint in ENDPOINTS]
    api = Starlette(routes=routes, exception_handlers={404: _no_such_path, 405: _no_such_method})
    api.router.redirect_slashes = False  # a redirect would name the host of the request's header
    return api


def _route(
    endpoint: Endpoint, service: Service, closing: anyio.Event, replies: Replies, streams: Streams
) -> Route:
    async def answer(request: Request) -> Response:
        question = await asked(endpoint, request, service, closing)

        async def do() -> Response:
            given = await endpoint.answer(question)
            if isinstance(given, Response):
                return streams.counted(given, request.scope[CALLER])
            if isinstance(given, Struct) and endpoint.long is not None:
                return await rendered(given, endpoint.long)
            return answered(given)

        key = question.caller.request
        return await do() if key is None else await replies.once(key, question, endpoint, do)

    safely = _answering(answer, service.name)
    route = Route(endpoint.path, safely, name=endpoint.name, methods=[endpoint.method])
    route.methods = {endpoint.method}  # no HEAD: it would never end for a stream
    return route


def _answering(answer: Answer, name: Callable[[HandoffdError], None]) -> Answer:
    async def safely(request: Request) -> Response:
        try:
            return await answer(request)
        except HandoffdError as error:
            name(error)
            return error_response(error)
        except Exception as error:
            # A bug. The caller gets the usual form of an error; the log has the traceback.
            log.exception("request failed", path=request.url.path)
            message = f"handoffd failed on this: {type(error).__name__}: {error}"
            return error_response(HandoffdError(message, code="INTERNAL"))

    return safely


async def _no_such_path(request: Request, _: Exception) -> Response:
    error = NotFound(f"there is no {request.method} {request.url.path[:200]}", hint="handoffd --help")
    if request.url.path.startswith(_VERBS):
        try:
            spec_of(request.url.path.removeprefix(_VERBS))
        except NotFound as unknown:
            error = unknown  # its message lists the known verbs
    return error_response(error)


async def _no_such_method(request: Request, _: Exception) -> Response:
    """Refuse a method, and list the methods of every route at the path; Starlette lists only the first."""
    here = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    allowed = ", ".join(sorted({method for route in here for method in route.methods}))
    message = f"there is no {request.method[:20]} {request.url.path[:200]} (allowed: {allowed})"
    error = Refused(message, code="METHOD_NOT_ALLOWED", hint="handoffd --help")
    return error_response(error, {"Allow": allowed})


# --- from a request to the arguments of its endpoint -------------------------------------------------
MAX_BODY: Final = 1024 * 1024
BODY_S: Final = 30.0
"""How long a body may take to arrive."""
_MOST_NAME: Final = 100


async def asked(
    endpoint: Endpoint,
    request: Request,
    service: Service,
    closing: anyio.Event,
    body_s: float = BODY_S,
) -> Asked:
    """Return the checked request. Raises Refused (BAD_ARGUMENT, BAD_REQUEST, TOO_LARGE)."""
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
    check_names(names, known)
    if twice := [name for name in names if names.count(name) > 1]:
        raise _bad(f"{twice[0]} is given more than once")
    places: Mapping[str, Mapping[str, str]] = {
        "query": request.query_params, "path": request.path_params, "header": request.headers,
    }  # fmt: skip
    return {one.name: value_of(one, places[one.place].get(one.name)) for one in endpoint.url}


def _caller(endpoint: Endpoint, request: Request, by: object) -> Caller:
    key = key_of(request, endpoint) if endpoint.method == "POST" else None
    source = request.scope[CALLER]  # set by the middleware between the socket and the application
    assert isinstance(source, From)
    if by is not None and not isinstance(by, str):
        raise _bad("by must be a text: the name to record")
    if by is not None and len(by) > MAX_TEXT:
        raise _bad(f"by must be a text of at most {MAX_TEXT} characters")
    name = by[:_MOST_NAME] if by is not None and by.isprintable() else ""
    way = "" if source.pid is not None else " over TCP"  # anyone who has the token may give any name
    return Caller(pid=source.pid, by=f"{name or 'api'}{way}", vouched=source.vouched, request=key)


async def _in_time(request: Request, within_s: float) -> Json:
    try:
        with anyio.fail_after(within_s):
            return await _body(request)
    except TimeoutError:
        message = f"the body did not arrive in {within_s:.0f} seconds"
        raise Refused(message, code="REQUEST_TIMEOUT") from None
    except ClientDisconnect:  # the client closed it, or `limits` ended it to make room for another connection
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
        raise Refused(f"the request is not JSON: {error}", code="BAD_REQUEST") from error
    if not isinstance(data, dict):
        raise Refused("the request is not a JSON object", code="BAD_REQUEST")
    return data


def _bad(message: str) -> Refused:
    return Refused(message, code=BAD_ARGUMENT)


# --- a request with a key is carried out once --------------------------------------------------------

REPLAY_HEADER: Final = "Idempotent-Replay"


def key_of(request: Request, endpoint: Endpoint) -> str | None:
    """Return the key of a request. Raises Refused (BAD_ARGUMENT) for an invalid or unsupported key."""
    given = request.headers.getlist(KEY_HEADER)
    if not given:
        return None
    if not endpoint.keyed:
        message = f"{endpoint.name} takes no {KEY_HEADER}: its answer is not recorded"
        raise Refused(message, code=BAD_ARGUMENT)
    [key, *more] = given
    visible = all("!" <= letter <= "~" for letter in key)
    if more or not visible or not 1 <= len(key) <= MOST_KEY:
        message = f"{KEY_HEADER} must be 1 to {MOST_KEY} visible characters of ASCII, once"
        raise Refused(message, code=BAD_ARGUMENT)
    return key


class _Running(Struct, eq=False):
    asks: str
    ended: anyio.Event = field(default_factory=anyio.Event)


class Replies:
    """Answers to requests with a key: requests in progress here, and earlier answers from the journal."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._running: dict[str, _Running] = {}

    async def once(
        self, key: str, asked: Asked, endpoint: Endpoint, do: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Return the answer of `do`, or the recorded answer of the first request with this key.

        Raises Refused (IDEMPOTENCY_CONFLICT) when another request used the key, (REQUEST_CUT_SHORT) when the
        outcome of the first request is unknown.
        """
        asks = fingerprint(asked.request.url.path, asked.body)
        while (running := self._running.get(key)) is not None:
            _check(running.asks, asks)
            await running.ended.wait()  # without a limit: it is the same request
        self._running[key] = running = _Running(asks)
        try:
            known = await self._service.journal.requests.claim(key, asks, self._service.now())
            if known is None:
                return await self._do(key, do)
            _check(known.fingerprint, asks)
            return await self._again(key, known, endpoint, do)
        finally:
            del self._running[key]
            running.ended.set()

    async def _do(self, key: str, do: Callable[[], Awaitable[Response]]) -> Response:
        try:
            response = await do()
        except HandoffdError:
            # Nothing changed, or the change is an event: a corrected request may use the same key.
            await self._service.journal.requests.release(key)
            raise
        await self._keep(key, response)
        return response

    async def _again(
        self, key: str, known: StoredRequest, endpoint: Endpoint, do: Callable[[], Awaitable[Response]]
    ) -> Response:
        if known.status is not None:
            headers = {REPLAY_HEADER: "true"}
            return Response(known.body, known.status, headers, "application/json")
        if known.seq is None:
            return await self._do(key, do)
        if not endpoint.one_event:
            message = (
                f"an earlier daemon ended during this request; it committed event {known.seq}, perhaps more"
            )
            raise Refused(message, code="REQUEST_CUT_SHORT", hint="handoffd events")
        told = await self._service.recalled(known.seq)
        response = answered(told)
        await self._keep(key, response)
        response.headers[REPLAY_HEADER] = "true"
        return response

    async def _keep(self, key: str, response: Response) -> None:
        """Record an answer. A failure is only logged: the request was carried out, and its event is known."""
        try:
            body = bytes(response.body).decode()
            await self._service.journal.requests.answer(key, response.status_code, body)
        except HandoffdError as error:
            log.warning("answer not kept", error=error.message)


def answered(told: Struct | Json) -> Response:
    """Return a JSON answer: 409 for a refusal of the engine."""
    refused = not isinstance(told, Struct) and told.get("type") == "error"
    return Response(encoded(told), 409 if refused else 200, media_type="application/json")


def fingerprint(path: str, body: Json) -> str:
    """Return a hash that identifies a request by path and body."""
    text = json.dumps([path, body], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _check(before: str, now: str) -> None:
    if before != now:
        message = f"another request used this {KEY_HEADER}: take a new one for each"
        raise Refused(message, code="IDEMPOTENCY_CONFLICT", hint="cat /proc/sys/kernel/random/uuid")


# --- long answers ------------------------------------------------------------------------------------
_AT_ONCE = 50


async def rendered(told: Struct, long: str) -> Response:
    """Return the JSON answer `told`; `long` is its field with a list of perhaps thousands of entries.

    Encoding yields to other tasks between parts of that list.
    """
    values = asdict(told)
    entries = iter(values.pop(long))
    pieces = [encoded(values)[:-1], b"," if values else b"", encoded(long), b":["]
    between = b""
    while some := list(islice(entries, _AT_ONCE)):
        pieces += [between, encoded(some)[1:-1]]
        between = b","
        await checkpoint()
    return Response(b"".join([*pieces, b"]}"]), media_type="application/json")
