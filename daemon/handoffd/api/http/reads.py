"""Endpoints that only read: supervised projects, any folder by its files, and live streams.

Events come as lines of JSON, or as server-sent events for EventSource clients. A reader's position is an
event number of the journal, not a queue in memory: a slow reader falls behind but misses nothing, and costs
one batch of memory. After a disconnection it continues from the last number it saw.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal, get_args

import anyio
from msgspec import Struct
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

import handoffd
from handoffd.api.events import MOST_EVENTS, follow
from handoffd.api.folders import LANGUAGES
from handoffd.api.http.answers import (
    BacklogAnswer,
    EventsAnswer,
    Health,
    LimitsAnswer,
    NoticesAnswer,
    PeekAnswer,
    ProjectsAnswer,
    RunsAnswer,
    SchedulesAnswer,
    SlotsAnswer,
    StatusAnswer,
    UsageAnswer,
)
from handoffd.api.http.endpoint import ONE_PROJECT, PROJECT, Asked, Endpoint, UrlParameter
from handoffd.api.reads import API, pieces
from handoffd.engine.views import ProjectView
from handoffd.errors import Json, NotFound
from handoffd.inspection.discovery import ListedProject
from handoffd.inspection.framework import Framework
from handoffd.inspection.project_status import PrerequisiteCheck, ProjectStatus
from handoffd.journal.dispatches import Grouping
from handoffd.metrics.prometheus import MEDIA


# --- supervised projects -----------------------------------------------------------------------------
async def _health(_: Asked) -> Json:
    return {"api": API, "version": handoffd.__version__, "pid": os.getpid()}


async def _status(asked: Asked) -> Json:
    return await asked.service.status(asked.given["project"])


async def _projects(asked: Asked) -> Json:
    return await asked.service.projects()


async def _project(asked: Asked) -> Json:
    return await asked.service.project(asked.given["project"])


async def _peek(asked: Asked) -> Json:
    return await asked.service.peek(asked.given["project"])


async def _backlog(asked: Asked) -> Json:
    return await asked.service.backlog(asked.given["project"])


async def _schedules(asked: Asked) -> Json:
    return await asked.service.schedules(asked.given["project"])


async def _limits(asked: Asked) -> Json:
    return await asked.service.limits()


async def _slots(asked: Asked) -> Json:
    return await asked.service.slots()


async def _notices(asked: Asked) -> Json:
    return await asked.service.notices_in_full(asked.given["project"])


async def _runs(asked: Asked) -> Json:
    return {"runs": await asked.service.runs(asked.given["project"], asked.given["limit"])}


async def _usage(asked: Asked) -> Json:
    given = asked.given
    return await asked.service.usage(given["by"], given["since"], given["project"])


_SINCE: Final = "^([0-9]{1,4}[hdw]|20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8]))$"
"""The forms of a time that the description documents; the check accepts more."""

READS: Final = (
    Endpoint(
        name="health", path="/v1/health", help="Versions of the API and of handoffd, and the process id.",
        answer=_health, shape=Health,
    ),
    Endpoint(
        name="status", path="/v1/status", help="The state of every project, or of one: as `status --json`.",
        url=(PROJECT,), answer=_status, long="projects", shape=StatusAnswer,
    ),
    Endpoint(
        name="projects", path="/v1/projects", help="The supervised projects, in short.",
        answer=_projects, long="projects", shape=ProjectsAnswer,
    ),
    Endpoint(
        name="project", path="/v1/projects/{project:path}",
        help="The state of one project, as in `status`.",
        url=(UrlParameter(name="project", help="a name, or a path, encoded or not", place="path"),),
        answer=_project, shape=ProjectView,
    ),
    Endpoint(
        name="peek", path="/v1/peek", help="What the next turn of a project would do: as `peek --json`.",
        url=(ONE_PROJECT,), answer=_peek, shape=PeekAnswer, hint="handoffd peek PROJECT",
    ),
    Endpoint(
        name="backlog", path="/v1/backlog",
        help="A project's backlog, and what each story waits for: as `backlog --json`.",
        url=(ONE_PROJECT,), answer=_backlog, shape=BacklogAnswer, hint="handoffd backlog PROJECT",
    ),
    Endpoint(
        name="schedules", path="/v1/schedules",
        help="Schedules of one project or of all, next and last start: as `schedule --json`.",
        url=(PROJECT,), answer=_schedules, shape=SchedulesAnswer, hint="handoffd schedule",
    ),
    Endpoint(
        name="limits", path="/v1/limits", help="The limited accounts: as `limits --json`.",
        answer=_limits, shape=LimitsAnswer,
    ),
    Endpoint(
        name="slots", path="/v1/slots", help="Slots, running and waiting tracks: as `slots --json`.",
        answer=_slots, shape=SlotsAnswer,
    ),
    Endpoint(
        name="notices", path="/v1/notices",
        help="Undelivered notices and coming reminders: as `notices --json`.",
        url=(PROJECT,), answer=_notices, shape=NoticesAnswer, hint="handoffd notices",
    ),
    Endpoint(
        name="usage", path="/v1/usage", help="What finished runs used: as `usage --json`.",
        url=(
            PROJECT,
            UrlParameter(name="by", choices=get_args(Grouping), help="how to group; `step` without it"),
            UrlParameter(
                name="since", pattern=_SINCE, help="as `--since` of `usage`, or an RFC 3339 time"
            ),
        ),
        answer=_usage, shape=UsageAnswer,
    ),
    Endpoint(
        name="runs", path="/v1/runs", help="The latest dispatches, newest first: as `runs --json`.",
        url=(
            PROJECT,
            UrlParameter(
                name="limit", type="number", default=100, most=MOST_EVENTS, help="how many; at most 1000"
            ),
        ),
        answer=_runs, shape=RunsAnswer, hint="handoffd runs --help",
    ),
)  # fmt: skip


# --- any folder, supervised or not -------------------------------------------------------------------
class QueryAnswer(ProjectStatus, frozen=True, kw_only=True):
    """The state of a project by its files, and by the journal if it is supervised."""

    root: str
    supervised: bool
    level: int
    waits_for: str | None
    next_command: str | None
    caller_instruction: str


class FolderAnswer(Struct, frozen=True, kw_only=True):
    """The projects in a folder."""

    folder: str
    projects: list[ListedProject]


class PrerequisitesAnswer(PrerequisiteCheck, frozen=True, kw_only=True):
    """The missing files that the current step reads."""

    project: str
    caller_instruction: str


class ReviewAnswer(Struct, frozen=True, kw_only=True):
    """A prompt for a session that examines a project."""

    type: Literal["review_prompt"]
    prompt: str
    fw_lv: int
    project: str
    caller_instruction: str


class TriageAnswer(Struct, frozen=True, kw_only=True):
    """A prompt for a session that sorts the open issues of a project."""

    type: Literal["triage_prompt"]
    prompt: str
    issues: list[str]
    fw_lv: int
    project: str
    caller_instruction: str


async def _detect(asked: Asked) -> Json:
    return await asked.service.detect(asked.given["project"])


async def _query(asked: Asked) -> Json:
    return await asked.service.query(asked.given["project"])


async def _list_projects(asked: Asked) -> Json:
    return await asked.service.list_projects(asked.given["folder"])


async def _check_prereqs(asked: Asked) -> Json:
    return await asked.service.check_prereqs(asked.given["project"])


async def _review(asked: Asked) -> Json:
    return await asked.service.review(asked.given["project"], asked.given["language"])


async def _triage(asked: Asked) -> Json:
    return await asked.service.triage(asked.given["project"], asked.given["language"])


_ANY: Final = UrlParameter(
    name="project", required=True, help="a project's name, or the path of any folder, supervised or not"
)
_LANGUAGE: Final = UrlParameter(
    name="language", choices=LANGUAGES, help="of the prompt; without it, as the settings say"
)

INSPECTIONS: Final = (
    Endpoint(
        name="detect", path="/v1/detect", url=(_ANY,), answer=_detect, shape=Framework,
        help="Which of the protocol's files a folder has, and the level of adoption.",
        hint="handoffd detect PROJECT",
    ),
    Endpoint(
        name="query", path="/v1/query", url=(_ANY,), answer=_query, shape=QueryAnswer,
        help="The state of a project by its files, and by the journal if supervised.",
        hint="handoffd query PROJECT",
    ),
    Endpoint(
        name="list_projects", path="/v1/list-projects", answer=_list_projects, shape=FolderAnswer,
        url=(UrlParameter(name="folder", required=True, pattern="^/", help="the absolute path of a folder"),),
        help="The projects in a folder.", hint="handoffd list-projects FOLDER",
    ),
    Endpoint(
        name="check_prereqs", path="/v1/check-prereqs", url=(_ANY,), answer=_check_prereqs,
        shape=PrerequisitesAnswer, help="The missing files that the current step reads.",
        hint="handoffd check-prereqs PROJECT",
    ),
    Endpoint(
        name="review", path="/v1/review", url=(_ANY, _LANGUAGE), answer=_review, shape=ReviewAnswer,
        help="The prompt of a session that reviews a project.",
        hint="handoffd review PROJECT",
    ),
    Endpoint(
        name="triage", path="/v1/triage", url=(_ANY, _LANGUAGE), answer=_triage, shape=TriageAnswer,
        help="The prompt of a session that sorts the open issues of a project's memory.",
        hint="handoffd triage PROJECT",
    ),
)  # fmt: skip


# --- Prometheus --------------------------------------------------------------------------------------
async def _metrics(asked: Asked) -> Response:
    return Response(await asked.service.metrics(), headers={"Content-Type": MEDIA})


METRICS: Final = (
    Endpoint(
        name="metrics", path="/metrics", help="The daemon's series in the text format of Prometheus.",
        answer=_metrics, shape=str, media=("text/plain",), hint="handoffd metrics",
    ),
)  # fmt: skip


# --- server-sent events ------------------------------------------------------------------------------
EVENT_STREAM: Final = "text/event-stream"
BEAT_S: Final = 15.0
"""Seconds between heartbeats while there are no events."""
_HELLO: Final = b"retry: 2000\n\n"
_BEAT: Final = b": nothing new\n\n"


def encoded(line: Json) -> bytes:
    """Return an event of the history, or a gap in it, as one message.

    A gap's `from` and `to` are the first and the last missing number; `to` null: the end is unknown. Its id
    lets a reader that reconnects continue after the gap.
    """
    if line["type"] == "gap":
        first, last = line["after"] + 1, line["next"] - 1
        gap = {"from": first, "to": last if last >= first else None, "next": line["next"], "why": line["why"]}
        return _message(last, "gap", gap)
    return _message(line["seq"], line["kind"], line)


def _message(number: int, kind: str, data: Mapping[str, object]) -> bytes:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


class EventStream(Response):
    """A response that streams messages, with a comment as a heartbeat when there is none for a while."""

    media_type = EVENT_STREAM

    def __init__(self, lines: AsyncIterator[Json], beat_s: float = BEAT_S) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._lines = lines
        self._beat_s = beat_s
        self._alone = anyio.Lock()
        self._sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send messages until they end or the reader disconnects."""
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


# --- live streams: events as they are committed, output as it grows ----------------------------------
NDJSON: Final = "application/x-ndjson"
RUN_HEADER: Final = "X-Handoffd-Run"


async def _events(asked: Asked) -> Json | Response:
    after, project = asked.given["after"], asked.given["project"]
    sent = asked.given["stream"] or EVENT_STREAM in asked.request.headers.get("accept", "")
    if sent or asked.given["follow"]:
        seen = asked.given["Last-Event-ID"] if sent else None  # EventSource sends it when it reconnects
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


_FOLLOW: Final = UrlParameter(
    name="follow", type="flag", help="keep the connection open for new data", default=False
)

STREAMS: Final = (
    Endpoint(
        name="events", path="/v1/events",
        help="Events, oldest first; live with `follow` (one object a line) or `stream`.",
        url=(
            PROJECT,
            UrlParameter(
                name="after", type="number",
                help="the last known number; without it the latest events, with `follow` the coming ones",
            ),
            UrlParameter(
                name="limit", type="number", default=500, most=MOST_EVENTS, help="how many; at most 1000"
            ),
            _FOLLOW,
            UrlParameter(
                name="stream", type="flag", default=False,
                help="stream as server-sent events; so does `Accept: text/event-stream`",
            ),
            UrlParameter(
                name="Last-Event-ID", place="header", type="number",
                help="of a stream: the last known number, in place of `after`",
            ),
        ),
        answer=_events, shape=EventsAnswer, media=("application/json", NDJSON, EVENT_STREAM),
    ),
    Endpoint(
        name="log", path="/v1/log", media=("application/octet-stream",),
        help="The output of a run, or of a project's latest; the header `X-Handoffd-Run` names it.",
        url=(PROJECT, UrlParameter(name="run", help="the id of a run"), _FOLLOW),
        answer=_log,
    ),
)  # fmt: skip
