"""Types of answers, for the OpenAPI document; and errors, which all have one shape.

The types describe the plain JSON of the service; tests compare real answers with them. New keys may come at
any time, so no schema forbids further keys. An error has a stable code and a fitting HTTP status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct
from starlette.responses import Response

from handoffd.engine.decision import Result
from handoffd.engine.views import (
    AccountView,
    BacklogView,
    IdleSchedule,
    Moment,
    ProjectView,
    ScheduleView,
    SlotsView,
)
from handoffd.errors import HandoffdError, Json, Locked, NotFound, Refused, StoreError

# --- answers of reads --------------------------------------------------------------------------------


class Health(Struct, frozen=True, kw_only=True):
    """Version and process of the daemon."""

    api: int
    version: str
    pid: int


class SinkBacklog(Struct, frozen=True, kw_only=True):
    """The undelivered notices of one sink."""

    sink: str
    undelivered: int
    oldest: Moment | None
    failed_tries: int
    last_error: str | None
    next_try_s: float | None
    given_up: int


class HeldBack(Struct, frozen=True, kw_only=True):
    """Notices held back from one sink; `until` is null while no daemon runs."""

    sink: str
    reason: Literal["quiet", "digest", "burst"]
    count: int
    since: Moment
    until: Moment | None


class WaitingMatter(Struct, frozen=True, kw_only=True):
    """A matter that needs a person: the last reminder, and the next one."""

    project: str
    track: str
    name: str | None
    story: str | None
    kind: str | None
    text: str | None
    next: str | None
    since: Moment
    reminded_min: float | None
    again_at: Moment | None


class NoticesAnswer(Struct, frozen=True, kw_only=True):
    """Undelivered notices, and coming reminders."""

    at: Moment
    sinks: list[SinkBacklog]
    held: list[HeldBack]
    waiting: list[WaitingMatter]
    more_waiting: int


class TriedSink(Struct, frozen=True, kw_only=True):
    """The outcome of a sample through one sink."""

    sink: str
    form: str
    ok: bool
    why: str | None
    seconds: float


class Tested(Struct, frozen=True, kw_only=True):
    """The outcome of a sample through each sink."""

    type: Literal["tested"]
    ok: bool
    sinks: list[TriedSink]


class StatusAnswer(Struct, frozen=True, kw_only=True):
    """The status of every project."""

    api: int
    daemon: bool
    at: Moment
    warnings: list[str]
    notices: list[SinkBacklog]
    projects: list[ProjectView]


class ProjectInShort(Struct, frozen=True, kw_only=True):
    """One project in short."""

    project: str
    name: str
    level: int
    condition: str
    story: str | None
    step: str | None
    status: str | None


class ProjectsAnswer(Struct, frozen=True, kw_only=True):
    """The supervised projects."""

    projects: list[ProjectInShort]


class PeekAnswer(Struct, frozen=True, kw_only=True):
    """What the next turn of a project would do. `prompt` is null if nothing would run."""

    project: str
    result: Result
    why: str
    step: str
    attempt: int
    executor: str
    prompt: str | None
    warnings: list[str]


class BacklogAnswer(BacklogView, frozen=True, kw_only=True):
    """The queued stories of a project."""

    name: str
    daemon: bool


class NamedSchedule(ScheduleView, frozen=True, kw_only=True):
    """A schedule of a project."""

    name: str


class SchedulesAnswer(Struct, frozen=True, kw_only=True):
    """The schedules."""

    at: Moment
    daemon: bool
    schedules: list[NamedSchedule]
    idle: list[IdleSchedule]
    """Schedules of the settings that match no project."""


class LimitsAnswer(Struct, frozen=True, kw_only=True):
    """The accounts that are limited."""

    at: Moment
    limits: list[AccountView]


class SlotsAnswer(SlotsView, frozen=True, kw_only=True):
    """The slots, and the running and waiting tracks."""

    daemon: bool
    at: Moment


class UsageAnswer(Struct, frozen=True, kw_only=True):
    """The usage of ended runs: a row for each group, and the total."""

    project: str | None
    since: Moment | None
    by: str
    rows: list[dict[str, Any]]
    total: dict[str, Any]


class Run(Struct, frozen=True, kw_only=True):
    """One dispatch, from the decision to the verdict. What has not happened yet is null."""

    run: str
    project: str
    name: str
    track: str
    story: str | None
    step: str
    attempt: int
    executor: str
    decided_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    seconds: float | None
    exit: dict[str, Any] | None
    usage: dict[str, Any] | None
    model: str | None
    memory_peak: int | None
    tasks_peak: int | None
    tests: dict[str, Any] | None
    result: str | None
    why: str | None


class RunsAnswer(Struct, frozen=True, kw_only=True):
    """Dispatches, newest first."""

    runs: list[Run]


class StepAndStatus(Struct, frozen=True, kw_only=True):
    """Step and status of a track."""

    step: str
    status: str


class HistoryEvent(Struct, frozen=True, kw_only=True):
    """One event: when, what, why, and step and status of the track before and after."""

    type: Literal["event"]
    seq: int
    at: Moment
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


class HistoryGap(Struct, frozen=True, kw_only=True):
    """Event numbers above `after` and below `next` that are no longer kept, across all projects."""

    type: Literal["gap"]
    after: int
    next: int
    why: str


class EventsAnswer(Struct, frozen=True, kw_only=True):
    """Events, oldest first, and the gaps among them."""

    events: list[HistoryEvent]
    gaps: list[HistoryGap]


class Error(Struct, frozen=True, kw_only=True):
    """An error, or a refusal of the engine. Further keys may give details."""

    type: Literal["error"]
    code: str
    message: str


# --- errors ------------------------------------------------------------------------------------------
class Problem(Struct, frozen=True, kw_only=True):
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
