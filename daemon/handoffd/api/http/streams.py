"""Endpoints whose answer may still be coming: events as they are committed, output as it grows.

Events come as lines of JSON, or as server-sent events, which browsers' EventSource and its kin in every
language read. A reader's place is a number of the journal, not a queue of ours: a slow one is behind and
misses nothing, and what is held for it is one batch. It comes back with the last number it saw and goes on
from there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Final

import anyio
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from handoffd.api.events import MOST_EVENTS, Json, follow
from handoffd.api.http.endpoint import PROJECT, Asked, Endpoint, UrlParameter
from handoffd.api.http.shapes import EventsAnswer
from handoffd.api.run_output import pieces
from handoffd.errors import NotFound

# --- server-sent events ------------------------------------------------------------------------------
MEDIA: Final = "text/event-stream"
BEAT_S: Final = 15.0
"""How often a reader hears that the connection is alive, while nothing happens."""
_HELLO: Final = b"retry: 2000\n\n"
_BEAT: Final = b": nothing new\n\n"


def encoded(line: Json) -> bytes:
    """Return an event of the history, or a gap in it, as one message.

    A gap's `from` and `to` are the first and the last number that is not to be had; `to` null: whatever
    was beyond. Its id is such that a reader which comes back goes on behind it.
    """
    if line["type"] == "gap":
        first, last = line["after"] + 1, line["next"] - 1
        gap = {"from": first, "to": last if last >= first else None, "next": line["next"], "why": line["why"]}
        return _message(last, "gap", gap)
    return _message(line["seq"], line["kind"], line)


def _message(number: int, kind: str, data: Mapping[str, object]) -> bytes:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


class EventStream(Response):
    """An answer of messages as they come, with a comment when none has come for a while."""

    media_type = MEDIA

    def __init__(self, lines: AsyncIterator[Json], beat_s: float = BEAT_S) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._lines = lines
        self._beat_s = beat_s
        self._alone = anyio.Lock()
        self._sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send messages until there are no more, or the reader is gone."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await self._send(send, _HELLO)
        async with anyio.create_task_group() as tasks:

            async def follow_reader() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(follow_reader, name="reader of events")
            tasks.start_soon(self._beat, send, name="heartbeat of events")
            async for line in self._lines:
                await self._send(send, encoded(line))
            tasks.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, piece: bytes) -> None:
        async with self._alone:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            self._sent += 1

    async def _beat(self, send: Send) -> None:
        while True:
            before = self._sent
            await anyio.sleep(self._beat_s)
            if self._sent == before:
                await self._send(send, _BEAT)


# --- the endpoints -----------------------------------------------------------------------------------
NDJSON: Final = "application/x-ndjson"
RUN_HEADER: Final = "X-Handoffd-Run"


async def _events(asked: Asked) -> Json | Response:
    after, project = asked.given["after"], asked.given["project"]
    sent = asked.given["stream"] or MEDIA in asked.request.headers.get("accept", "")
    if sent or asked.given["follow"]:
        seen = asked.given["Last-Event-ID"] if sent else None  # of a reader that comes back by itself
        coming = _coming(asked, after if seen is None else seen, asked.service.root_of(project))
        return EventStream(coming) if sent else StreamingResponse(_lines(coming), media_type=NDJSON)
    return await asked.service.history(after, project, asked.given["limit"])


def _coming(asked: Asked, after: int | None, root: str | None) -> AsyncIterator[Json]:
    service = asked.service
    start = service.journal.newest if after is None else after
    return follow(service.journal, start, root, asked.closing, service.names)


async def _lines(coming: AsyncIterator[Json]) -> AsyncIterator[str]:
    async for event in coming:
        yield json.dumps(event, ensure_ascii=False) + "\n"


async def _log(asked: Asked) -> Response:
    project, run = asked.given["project"], asked.given["run"]
    if project is None and run is None:
        raise NotFound("no run is named: name one, or its project", hint="handoffd runs")
    found = await asked.service.log_of(project, run)
    output = pieces(found, follow=bool(asked.given["follow"]), closing=asked.closing)
    return StreamingResponse(output, media_type="application/octet-stream", headers={RUN_HEADER: found.run})


_FOLLOW: Final = UrlParameter(name="follow", type="flag", help="go on as more comes", default=False)

STREAMS: Final = (
    Endpoint(
        name="events", path="/v1/events",
        help="What happened, oldest first; as they come with `follow` (one object a line) or `stream`.",
        url=(
            PROJECT,
            UrlParameter(
                name="after", type="number",
                help="the last number that is known; without it the latest ones, with `follow` those to come",
            ),
            UrlParameter(
                name="limit", type="number", default=500, most=MOST_EVENTS, help="how many; at most 1000"
            ),
            _FOLLOW,
            UrlParameter(
                name="stream", type="flag", default=False,
                help="go on as server-sent events; so does `Accept: text/event-stream`",
            ),
            UrlParameter(
                name="Last-Event-ID", place="header", type="number",
                help="of a stream: the last number that is known, in place of `after`",
            ),
        ),
        answer=_events, shape=EventsAnswer, media=("application/json", NDJSON, MEDIA),
    ),
    Endpoint(
        name="log", path="/v1/log", media=("application/octet-stream",),
        help="The output of a run, or of a project's latest; the header `X-Handoffd-Run` names it.",
        url=(PROJECT, UrlParameter(name="run", help="the id of a run"), _FOLLOW),
        answer=_log,
    ),
)  # fmt: skip
