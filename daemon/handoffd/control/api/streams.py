"""Endpoints whose answer may still be coming: events as they are committed, output as it grows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

from starlette.responses import Response, StreamingResponse

from handoffd.control.api.endpoint import PROJECT, Asked, Endpoint, UrlParameter
from handoffd.control.api.shapes import EventsAnswer
from handoffd.control.history import MOST_EVENTS, Json, follow
from handoffd.control.runlog import pieces
from handoffd.control.sse import MEDIA, EventStream
from handoffd.errors import NotFound

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
