"""The endpoints: questions, live streams, verbs, orders to the daemon itself, and messages of a chat.

Questions and verbs come from their tables; the rest is declared here.

Events come as lines of JSON, or as server-sent events for EventSource clients. A reader's position is an
event number of the journal, not a queue in memory: a slow reader falls behind but misses nothing, and costs
one batch of memory. After a disconnection it continues from the last number it saw.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Final

import anyio
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

import handoffd
from handoffd.api.answers import (
    Added,
    AddedMany,
    AppliedAnswer,
    CheckedAnswer,
    CleanedAnswer,
    DiscardedAnswer,
    EventsAnswer,
    HandedOut,
    Health,
    HistoryEvent,
    HistoryGap,
    Initialised,
    LandedAnswer,
    Lifted,
    MessageAnswer,
    Removed,
    Stopping,
    Tested,
    TriedTests,
    TriedWorkspace,
    Trusted,
    VerbContext,
)
from handoffd.api.arguments import usage, values
from handoffd.api.chat import Messages
from handoffd.api.events import follow
from handoffd.api.flows import FlowGiven
from handoffd.api.http.endpoint import BY, Asked, Endpoint
from handoffd.api.outcomes import Reloaded, TrustedSettings
from handoffd.api.past import Narrowed
from handoffd.api.places import Spoken
from handoffd.api.questions import PROJECT, QUESTIONS, Question, UrlParameter
from handoffd.api.reads import API, pieces
from handoffd.api.verbs import TAKE, VERBS, Parameter, VerbSpec
from handoffd.chat.wording import LANGUAGES
from handoffd.engine.decision import Result
from handoffd.engine.views import ProjectView
from handoffd.errors import Json, NotFound, Refused
from handoffd.journal.records import Part
from handoffd.metrics.recorder import MEDIA
from handoffd.protocol.state import encoded


# --- questions ---------------------------------------------------------------------------------------
async def _ask(asked: Asked, question: Question) -> Struct:
    return await question.ask(asked.service, **asked.given)


async def _health(_: Asked) -> Health:
    return Health(api=API, version=handoffd.__version__, pid=os.getpid())


async def _project(asked: Asked) -> ProjectView:
    return await asked.service.project(asked.given["project"])


async def _metrics(asked: Asked) -> Response:
    return Response(await asked.service.metrics(), headers={"Content-Type": MEDIA})


def _question(question: Question) -> Endpoint:
    return Endpoint(
        name=question.name, path=question.path, help=question.help, url=question.parameters,
        answer=partial(_ask, question=question), shape=question.shape, long=question.long, hint=question.hint,
    )  # fmt: skip


READS: Final = (
    Endpoint(
        name="health", path="/v1/health", help="Versions of the API and of handoffd, and the process id.",
        answer=_health, shape=Health,
    ),
    *(_question(one) for one in QUESTIONS.values() if one.name != "events"),
    Endpoint(
        name="project", path="/v1/projects/{project:path}",
        help="The state of one project, as in `status`.",
        url=(UrlParameter(name="project", help="a name, or a path, encoded or not", place="path"),),
        answer=_project, shape=ProjectView,
    ),
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


def message(line: HistoryEvent | HistoryGap) -> bytes:
    """Return an event of the history, or a gap in it, as one message.

    A gap's `from` and `to` are the first and the last missing number; `to` null: the end is unknown. Its id
    lets a reader that reconnects continue after the gap.
    """
    if isinstance(line, HistoryGap):
        first, last = line.after + 1, line.next - 1
        gap = {"from": first, "to": last if last >= first else None, "next": line.next, "why": line.why}
        return _message(last, "gap", gap)
    return _message(line.seq, line.kind, line)


def _message(number: int, kind: str, data: object) -> bytes:
    return f"id: {number}\nevent: {kind}\ndata: ".encode() + encoded(data) + b"\n\n"


class EventStream(Response):
    """A response that streams messages, with a comment as a heartbeat when there is none for a while."""

    media_type = EVENT_STREAM

    def __init__(self, lines: AsyncIterator[HistoryEvent | HistoryGap], beat_s: float = BEAT_S) -> None:
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
                await self._send(send, message(line))
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


async def _events(asked: Asked) -> EventsAnswer | Response:
    after, project = asked.given["after"], asked.given["project"]
    narrowed = Narrowed(**{name: asked.given[name] for name in Narrowed.__optional_keys__})  # type: ignore[typeddict-item]
    sent = asked.given["stream"] or EVENT_STREAM in asked.request.headers.get("accept", "")
    if sent or asked.given["follow"]:
        seen = asked.given["Last-Event-ID"] if sent else None  # EventSource sends it when it reconnects
        coming = _coming(
            asked, after if seen is None else seen, asked.service.part(project, narrowed, "events")
        )
        return EventStream(coming) if sent else StreamingResponse(_lines(coming), media_type=NDJSON)
    return await asked.service.events(project, after, asked.given["limit"], **narrowed)


def _coming(asked: Asked, after: int | None, part: Part) -> AsyncIterator[HistoryEvent | HistoryGap]:
    service = asked.service
    start = service.journal.newest if after is None else after
    return follow(service.journal, start, part, asked.closing, service.names)


async def _lines(coming: AsyncIterator[HistoryEvent | HistoryGap]) -> AsyncIterator[bytes]:
    async for line in coming:
        yield encoded(line) + b"\n"


async def _log(asked: Asked) -> Response:
    project, run = asked.given["project"], asked.given["run"]
    if project is None and run is None:
        raise NotFound("no run is named: name one, or its project", hint="handoffd runs")
    found = await asked.service.log_of(project, run, asked.given["story"])
    output = pieces(found, follow=bool(asked.given["follow"]), closing=asked.closing)
    return StreamingResponse(output, media_type="application/octet-stream", headers={RUN_HEADER: found.run})


_FOLLOW: Final = UrlParameter(
    name="follow", type="flag", help="keep the connection open for new data", default=False
)

STREAMS: Final = (
    replace(
        _question(QUESTIONS["events"]),
        url=(
            *QUESTIONS["events"].parameters,
            replace(_FOLLOW, help="wait for new events; without `after`, send nothing else"),
            UrlParameter(
                name="stream", type="flag", default=False,
                help="stream as server-sent events; so does `Accept: text/event-stream`",
            ),
            UrlParameter(
                name="Last-Event-ID", place="header", type="number",
                help="of a stream: the last known number, in place of `after`",
            ),
        ),
        answer=_events, media=("application/json", NDJSON, EVENT_STREAM),
    ),
    Endpoint(
        name="log", path="/v1/log", media=("application/octet-stream",),
        help="The output of a run, or of a project's latest; the header `X-Handoffd-Run` names it.",
        url=(
            PROJECT,
            UrlParameter(name="run", help="the id of a run"),
            UrlParameter(name="story", help="a story of the project, whose latest run is meant"),
            _FOLLOW,
        ),
        answer=_log,
    ),
)  # fmt: skip


# --- verbs, and orders to the daemon itself ----------------------------------------------------------
_PROJECT: Final = Parameter(name="project", type="text", required=True, help="a project's name, or its path")

_SHAPES: Final[Mapping[str, Any]] = {
    "init": Initialised, "add": Added, "remove": Removed, "trust": Trusted,
    "apply": AppliedAnswer, "check": CheckedAnswer, "land": LandedAnswer, "discard": DiscardedAnswer,
    **{name: FlowGiven for name, spec in VERBS.items() if spec.of_flow},
}  # fmt: skip
"""Types of the answers of verbs, but for verbs that answer with a result of the engine."""


def _beside(spec: VerbSpec) -> tuple[type[Struct], ...]:
    if spec.name in _SHAPES:
        return ()
    return (VerbContext, HandedOut) if spec.name == "dispatch" else (VerbContext,)


async def _give(asked: Asked, spec: VerbSpec) -> Json:
    given = {name: value for name, value in asked.body.items() if name != "by"}
    try:
        project = values((_PROJECT,), {"project": given.pop("project", None)})["project"]
    except Refused as refused:
        refused.hint = usage(spec, "PROJECT")
        raise
    return await asked.service.call(spec.name, project, given, asked.caller)


async def _lift_limit(asked: Asked) -> Struct:
    return await asked.service.lift_limit(asked.given["account"], asked.caller)


async def _add_many(asked: Asked) -> Struct:
    given = asked.given
    return await asked.service.add_many(given["projects"], asked.caller, take=given["take"])


async def _test_notices(asked: Asked) -> Struct:
    return await asked.service.test_notices(asked.given["sink"], asked.caller)


async def _try_tests(asked: Asked) -> Struct:
    return await asked.service.try_tests(asked.given["project"], asked.caller)


async def _try_workspace(asked: Asked) -> Struct:
    given = asked.given
    return await asked.service.try_workspace(
        given["project"], given["wanted"], asked.caller, again=given["again"]
    )


async def _reload(asked: Asked) -> Struct:
    return await asked.service.reload(asked.caller)


async def _trust_settings(asked: Asked) -> Struct:
    return await asked.service.trust_settings(asked.given["sign"], asked.caller)


async def _gc(asked: Asked) -> Struct:
    return await asked.service.gc(asked.caller, dry_run=asked.given["dry_run"])


async def _stop(asked: Asked) -> Struct:
    return await asked.service.stop(asked.caller, executors=asked.given["executors"])


def _verb(spec: VerbSpec) -> Endpoint:
    return Endpoint(
        name=spec.name, path=f"/v1/verbs/{spec.name}", method="POST", help=spec.help,
        body=(_PROJECT, *spec.parameters, BY), raw=True, answer=partial(_give, spec=spec),
        one_event=spec.event is not None, shape=_SHAPES.get(spec.name, Result), beside=_beside(spec),
    )  # fmt: skip


ORDERS: Final = (
    *(_verb(spec) for spec in VERBS.values()),
    Endpoint(
        name="lift_limit", path="/v1/limits/lift", method="POST",
        help="Stop waiting for an account: as `limits lift --json`.",
        body=(
            Parameter(name="account", type="text", required=True, help="name one that is limited"),
            BY,
        ),
        answer=_lift_limit, shape=Lifted, hint="handoffd limits lift ACCOUNT",
    ),
    Endpoint(
        name="add_many", path="/v1/projects", method="POST",
        help="Supervise many projects at once, as `scan --add`; dispatches as `add` does.",
        body=(
            Parameter(name="projects", type="paths", required=True, help="their absolute paths"),
            TAKE,
            BY,
        ),
        answer=_add_many, shape=AddedMany, hint="handoffd scan DIR --add",
    ),
    Endpoint(
        name="test_notices", path="/v1/notices/test", method="POST",
        help="Send a sample through each sink, or one: as `notify test --json`.",
        body=(Parameter(name="sink", type="text", help="the name of one sink; all without it"),),
        keyed=False, answer=_test_notices, shape=Tested, hint="handoffd notify test",
    ),
    Endpoint(
        name="try_tests", path="/v1/tests/try", method="POST",
        help="Run a project's tests once as the daemon does, for at most 40 s.",
        body=(_PROJECT, BY),
        keyed=False, answer=_try_tests, shape=TriedTests, hint="handoffd doctor PROJECT",
    ),
    Endpoint(
        name="try_workspace", path="/v1/workspace/try", method="POST",
        help="Find out whether stories can work in clones, and choose, as `init --workspace`.",
        body=(
            _PROJECT,
            Parameter(
                name="wanted", type="text", required=True, choices=("auto", "clone", "root", "stop"),
                help="where stories shall work; auto: in clones if the tests pass there; stop: end the trial",
            ),
            Parameter(name="again", type="flag", help="wait for the trial that you have asked for before"),
            BY,
        ),
        keyed=False, answer=_try_workspace, shape=TriedWorkspace, hint="handoffd init PROJECT",
    ),
    Endpoint(
        name="reload", path="/v1/reload", method="POST",
        help="Read the settings, the projects and their files again: as `reload --json`.",
        body=(), answer=_reload, shape=Reloaded,
    ),
    Endpoint(
        name="trust_settings", path="/v1/settings/trust", method="POST",
        help="The edits of the daemon's settings that wait for a person; with their `sign`, trust them.",
        body=(Parameter(name="sign", type="text", help="`sign` of an answer without it"), BY),
        keyed=False, answer=_trust_settings, shape=TrustedSettings, hint="handoffd trust --daemon",
    ),
    Endpoint(
        name="gc", path="/v1/gc", method="POST",
        help="Remove what is no longer needed, or say what would be removed: as `gc --json`.",
        body=(Parameter(name="dry_run", type="flag", help="only report"), BY),
        answer=_gc, shape=CleanedAnswer,
    ),
    Endpoint(
        name="stop", path="/v1/stop", method="POST",
        help="End the daemon; executors continue unless `executors` is true.",
        body=(Parameter(name="executors", type="flag", help="end the executors first"),),
        keyed=False, answer=_stop, shape=Stopping,
    ),
)  # fmt: skip


# --- messages from a chat ----------------------------------------------------------------------------
async def _answer(asked: Asked) -> Struct:
    given = asked.given
    messages = Messages(asked.service)
    spoken = Spoken(project=given["project"], here=given["here"], supervised_only=given["supervised_only"])
    return await messages.answer(spoken, given["text"], asked.caller, given["language"])


MESSAGES: Final = (
    Endpoint(
        name="message", path="/v1/messages", method="POST",
        help="Do what a message means: as `auto --json`. 200 also if refused.",
        body=(
            Parameter(name="text", type="text", required=True, help="what a person wrote"),
            Parameter(name="project", type="text", help="the project that the message is about"),
            Parameter(
                name="here", type="text",
                help="the absolute path of the sender's folder: read if the message names no project, never "
                "changed",
            ),
            Parameter(
                name="supervised_only", type="flag",
                help="start no work in an unsupervised folder, even if the message names it",
            ),
            Parameter(name="language", type="text", choices=LANGUAGES, help="of the report: en or zh-TW"),
            BY,
        ),
        answer=_answer, shape=MessageAnswer, hint="handoffd auto PROJECT TEXT",
    ),
)  # fmt: skip
