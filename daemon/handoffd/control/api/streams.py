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

RUN_HEADER: Final = "X-Handoffd-Run"


async def _events(asked: Asked) -> Json | Response:
    after, project = asked.given["after"], asked.given["project"]
    if asked.given["follow"]:
        root = asked.service.root_of(project)
        start = asked.service.journal.newest if after is None else after
        return StreamingResponse(_lines(asked, start, root), media_type="application/x-ndjson")
    return {"events": await asked.service.events(after, project, asked.given["limit"])}


async def _lines(asked: Asked, after: int, root: str | None) -> AsyncIterator[str]:
    service = asked.service
    async for event in follow(service.journal, after, root, asked.closing, service.names):
        yield json.dumps(event, ensure_ascii=False) + "\n"


async def _log(asked: Asked) -> Response:
    found = await asked.service.log_of(asked.given["project"], asked.given["run"])
    output = pieces(found, follow=bool(asked.given["follow"]), closing=asked.closing)
    return StreamingResponse(output, media_type="application/octet-stream", headers={RUN_HEADER: found.run})


_FOLLOW: Final = UrlParameter(name="follow", type="flag", help="go on as more comes", default=False)

STREAMS: Final = (
    Endpoint(
        name="events", path="/v1/events",
        help="What happened, oldest first; with `follow` one object a line, as they come.",
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
        ),
        answer=_events, shape=EventsAnswer, media=("application/json", "application/x-ndjson"),
    ),
    Endpoint(
        name="log", path="/v1/log", media=("application/octet-stream",),
        help="The output of a run, or of a project's latest; the header `X-Handoffd-Run` names it.",
        url=(PROJECT, UrlParameter(name="run", help="the id of a run"), _FOLLOW),
        answer=_log,
    ),
)  # fmt: skip
