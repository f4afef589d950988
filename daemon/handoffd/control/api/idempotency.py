"""A request with a key is carried out once: whoever repeats it gets the answer of then.

The key is claimed in the journal before anything is done. A verb's event is committed together with the
key, so a daemon that dies between doing and answering leaves behind that it was done, and the next one
tells what came of it. A claim without event and answer is one of which nothing came: it is done when it
is asked for again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from handoffd.control.api.endpoint import Asked, Endpoint
from handoffd.control.history import Json
from handoffd.control.service import Service
from handoffd.control.verbs import BAD_ARGUMENT
from handoffd.errors import HandoffdError, Refused
from handoffd.store.requests import StoredRequest

log = structlog.get_logger(__name__)

HEADER: Final = "Idempotency-Key"
REPLAY_HEADER: Final = "Idempotent-Replay"
MOST_KEY: Final = 128


def key_of(request: Request, endpoint: Endpoint) -> str | None:
    """Return the key of a request. Raises Refused (BAD_ARGUMENT) for one that is none, or not wanted."""
    given = request.headers.getlist(HEADER)
    if not given:
        return None
    if not endpoint.keyed:
        message = f"{endpoint.name} takes no {HEADER}: once it is done, nobody is there to remember"
        raise Refused(message, code=BAD_ARGUMENT)
    [key, *more] = given
    visible = all("!" <= letter <= "~" for letter in key)
    if more or not visible or not 1 <= len(key) <= MOST_KEY:
        message = f"{HEADER} must be 1 to {MOST_KEY} visible characters of ASCII, once"
        raise Refused(message, code=BAD_ARGUMENT)
    return key


@dataclass(slots=True, eq=False)
class _Running:
    asks: str
    ended: anyio.Event = field(default_factory=anyio.Event)


class Replies:
    """Requests with a key that are carried out now, and what the journal knows of earlier ones."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._running: dict[str, _Running] = {}

    async def once(
        self, key: str, asked: Asked, endpoint: Endpoint, do: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Return what `do` answers, or what it answered when it was asked for first.

        Raises Refused (IDEMPOTENCY_CONFLICT) when the key was that of another request, (REQUEST_CUT_SHORT)
        when it is not known what came of it.
        """
        asks = fingerprint(asked.request.url.path, asked.body)
        while (running := self._running.get(key)) is not None:
            _check(running.asks, asks)
            await running.ended.wait()  # as long as the other one takes: it is the same request
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
            # Nothing came of it, or what did is an event: mended, it can be asked for under the same key.
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
            message = f"an earlier daemon ended while it did this; event {known.seq} came of it, perhaps more"
            raise Refused(message, code="REQUEST_CUT_SHORT", hint="handoffd events")
        told = await self._service.recalled(known.seq)
        response = answered(told)
        await self._keep(key, response)
        response.headers[REPLAY_HEADER] = "true"
        return response

    async def _keep(self, key: str, response: Response) -> None:
        """Keep an answer. If that fails it was done all the same, and its event is known."""
        try:
            body = bytes(response.body).decode()
            await self._service.journal.requests.answer(key, response.status_code, body)
        except HandoffdError as error:
            log.warning("answer not kept", error=error.message)


def answered(told: Json) -> Response:
    """Return a JSON answer: 409 for what the engine refused."""
    return JSONResponse(told, 409 if told.get("type") == "error" else 200)


def fingerprint(path: str, body: Json) -> str:
    """Return what tells one request from another."""
    text = json.dumps([path, body], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _check(before: str, now: str) -> None:
    if before != now:
        message = f"this {HEADER} was that of another request: take a new one for each"
        raise Refused(message, code="IDEMPOTENCY_CONFLICT", hint="cat /proc/sys/kernel/random/uuid")
