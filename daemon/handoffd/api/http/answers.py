"""Types of answers, for the OpenAPI document; and errors, which all have one shape.

The types describe the plain JSON of the service; tests compare real answers with them. New keys may come at
any time, so no schema forbids further keys. An error has a stable code and a fitting HTTP status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field
from starlette.responses import Response

from handoffd.engine.decision import Result
from handoffd.engine.views import (
    AccountView,
    BacklogView,
    IdleSchedule,
    ProjectView,
    ScheduleView,
    SlotsView,
)
from handoffd.errors import HandoffdError, Json, Locked, NotFound, Refused, StoreError

# --- answers of reads --------------------------------------------------------------------------------
ResultOfVerb = Annotated[Result, Field(discriminator="type")]


@dataclass(frozen=True, kw_only=True)
class Health:
    """Version and process of the daemon."""

    api: int
    version: str
    pid: int


@dataclass(frozen=True, kw_only=True)
class SinkBacklog:
    """The undelivered notices of one sink."""

    sink: str
    undelivered: int
    oldest: datetime | None
    failed_tries: int
    last_error: str | None
    next_try_s: float | None
    given_up: int


@dataclass(frozen=True, kw_only=True)
class HeldBack:
    """Notices held back from one sink; `until` is null while no daemon runs."""

    sink: str
    reason: Literal["quiet", "digest", "burst"]
    count: int
    since: datetime
    until: datetime | None


@dataclass(frozen=True, kw_only=True)
class WaitingMatter:
    """A matter that needs a person: the last reminder, and the next one."""

    project: str
    track: str
    name: str | None
    story: str | None
    kind: str | None
    text: str | None
    next: str | None
    since: datetime
    reminded_min: float | None
    again_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class NoticesAnswer:
    """Undelivered notices, and coming reminders."""

    at: datetime
    sinks: list[SinkBacklog]
    held: list[HeldBack]
    waiting: list[WaitingMatter]
    more_waiting: int


@dataclass(frozen=True, kw_only=True)
class TriedSink:
    """The outcome of a sample through one sink."""

    sink: str
    form: str
    ok: bool
    why: str | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Tested:
    """The outcome of a sample through each sink."""

    type: Literal["tested"]
    ok: bool
    sinks: list[TriedSink]


@dataclass(frozen=True, kw_only=True)
class StatusAnswer:
    """The status of every project."""

    api: int
    daemon: bool
    at: datetime
    warnings: list[str]
    notices: list[SinkBacklog]
    projects: list[ProjectView]


@dataclass(frozen=True, kw_only=True)
class ProjectInShort:
    """One project in short."""

    project: str
    name: str
    level: int
    condition: str
    story: str | None
    step: str | None
    status: str | None


@dataclass(frozen=True, kw_only=True)
class ProjectsAnswer:
    """The supervised projects."""

    projects: list[ProjectInShort]


@dataclass(frozen=True, kw_only=True)
class PeekAnswer:
    """What the next turn of a project would do. `prompt` is null if nothing would run."""

    project: str
    result: ResultOfVerb
    why: str
    step: str
    attempt: int
    executor: str
    prompt: str | None
    warnings: list[str]


@dataclass(frozen=True, kw_only=True)
class BacklogAnswer(BacklogView):
    """The queued stories of a project."""

    name: str
    daemon: bool


@dataclass(frozen=True, kw_only=True)
class NamedSchedule(ScheduleView):
    """A schedule of a project."""

    name: str


@dataclass(frozen=True, kw_only=True)
class SchedulesAnswer:
    """The schedules."""

    at: datetime
    daemon: bool
    schedules: list[NamedSchedule]
    idle: list[IdleSchedule]
    """Schedules of the settings that match no project."""


@dataclass(frozen=True, kw_only=True)
class LimitsAnswer:
    """The accounts that are limited."""

    at: datetime
    limits: list[AccountView]


@dataclass(frozen=True, kw_only=True)
class _Asked:
    daemon: bool
    at: datetime


@dataclass(frozen=True, kw_only=True)
class SlotsAnswer(SlotsView, _Asked):
    """The slots, and the running and waiting tracks."""


@dataclass(frozen=True, kw_only=True)
class UsageAnswer:
    """The usage of ended runs: a row for each group, and the total."""

    project: str | None
    since: datetime | None
    by: str
    rows: list[dict[str, Any]]
    total: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One dispatch, from the decision to the verdict. What has not happened yet is null."""

    run: str
    project: str
    name: str
    track: str
    story: str | None
    step: str
    attempt: int
    executor: str
    decided_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    seconds: float | None
    exit: dict[str, Any] | None
    usage: dict[str, Any] | None
    model: str | None
    memory_peak: int | None
    tasks_peak: int | None
    tests: dict[str, Any] | None
    result: str | None
    why: str | None


@dataclass(frozen=True, kw_only=True)
class RunsAnswer:
    """Dispatches, newest first."""

    runs: list[Run]


@dataclass(frozen=True, kw_only=True)
class StepAndStatus:
    """Step and status of a track."""

    step: str
    status: str


@dataclass(frozen=True, kw_only=True)
class HistoryEvent:
    """One event: when, what, why, and step and status of the track before and after."""

    type: Literal["event"]
    seq: int
    at: datetime
    project: str
    name: str
    track: str
    kind: str
    what: str
    rules: list[dict[str, Any]]
    why: str
    next: str | None
    before: StepAndStatus | None
    after: StepAndStatus | None
    event: dict[str, Any]
    result: dict[str, Any]
    orders: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class HistoryGap:
    """Event numbers above `after` and below `next` that are no longer kept, across all projects."""

    type: Literal["gap"]
    after: int
    next: int
    why: str


@dataclass(frozen=True, kw_only=True)
class EventsAnswer:
    """Events, oldest first, and the gaps among them."""

    events: list[HistoryEvent]
    gaps: list[HistoryGap]


@dataclass(frozen=True, kw_only=True)
class Error:
    """An error, or a refusal of the engine. Further keys may give details."""

    type: Literal["error"]
    code: str
    message: str


# --- errors ------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A status, its meaning and its codes. `name` is that of the response in OpenAPI."""

    status: int
    name: str
    codes: tuple[str, ...]
    when: str
    others: bool = False
    """Whether the status also comes with codes that are not listed here: codes of verbs and files."""


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
        when="another account, another host, a page in a browser; or a verb for people, from another caller",
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
"""Every error status, in order."""

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
    """Return an error as JSON: type, code, message, hint, and its details."""
    told = {"type": "error", "code": error.code, "message": error.message, "hint": error.hint}
    return {**told, **error.details}


def error_body(error: HandoffdError) -> bytes:
    """Return an error as bytes of JSON. A message may quote half characters, which become `?`."""
    text = json.dumps(error_json(error), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", errors="replace")


def error_response(error: HandoffdError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for an error, with its status."""
    return Response(error_body(error), status_of(error), headers, "application/json")
