"""The JSON API, version 1, as an application: each endpoint of the table gets its route.

Errors are `{"type": "error", "code", "message", "hint"}` with a fitting HTTP status, whatever happens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from handoffd.control.api.asking import asked
from handoffd.control.api.endpoint import Endpoint
from handoffd.control.api.idempotency import Replies, answered
from handoffd.control.api.problems import error_response
from handoffd.control.api.rendering import rendered
from handoffd.control.api.table import ENDPOINTS
from handoffd.control.bounds import Limits, Streams
from handoffd.control.gate import CALLER
from handoffd.control.service import Service
from handoffd.control.verbs import spec_of
from handoffd.errors import HandoffdError, NotFound, Refused

log = structlog.get_logger(__name__)

_VERBS = "/v1/verbs/"

Answer = Callable[[Request], Awaitable[Response]]


def application(service: Service, closing: anyio.Event, streams: int = Limits().kept) -> Starlette:
    """Return the API over `service`; its streams, so many at once, end when `closing` is set."""
    replies, going_on = Replies(service), Streams(streams, service.inside)
    routes = [_route(endpoint, service, closing, replies, going_on) for endpoint in ENDPOINTS]
    api = Starlette(routes=routes, exception_handlers={404: _no_such_path, 405: _no_such_method})
    api.router.redirect_slashes = False  # it would send people to whatever host the request names
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
            return answered(given) if endpoint.long is None else await rendered(given, endpoint.long)

        key = question.caller.request
        return await do() if key is None else await replies.once(key, question, endpoint, do)

    route = Route(endpoint.path, _answering(answer), name=endpoint.name, methods=[endpoint.method])
    route.methods = {endpoint.method}  # no HEAD: of a stream it would never end
    return route


def _answering(answer: Answer) -> Answer:
    async def safely(request: Request) -> Response:
        try:
            return await answer(request)
        except HandoffdError as error:
            return error_response(error)
        except Exception as error:
            # A bug: the asker shall hear of it in the same form, and the log has the traceback.
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
            error = unknown  # with the verbs there are
    return error_response(error)


async def _no_such_method(request: Request, _: Exception) -> Response:
    """Refuse a method with those of every route at the path; Starlette knows only the first one."""
    here = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    allowed = ", ".join(sorted({method for route in here for method in route.methods}))
    message = f"there is no {request.method[:20]} {request.url.path[:200]} (allowed: {allowed})"
    error = Refused(message, code="METHOD_NOT_ALLOWED", hint="handoffd --help")
    return error_response(error, {"Allow": allowed})
