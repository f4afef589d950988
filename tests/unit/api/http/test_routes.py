"""The JSON API as programs see it: raw HTTP over the socket."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import pytest
from tests.support.controlled import Controlled, controlled
from tests.support.supervision import MemorySupervision
from tests.unit.journal.making import record

import handoffd
from handoffd.api.http.application import rendered
from handoffd.api.verbs import VERBS
from handoffd.engine.decision import Refusal
from handoffd.engine.events import Approved, Noted
from handoffd.errors import Json, NotFound


class _Raw(http.client.HTTPConnection):
    def __init__(self, control: Controlled) -> None:
        super().__init__("localhost", timeout=60)
        self._path = str(control.socket)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def _ask(
    control: Controlled, method: str, path: str, body: bytes | None = None
) -> tuple[int, dict[str, Any]]:
    connection = _Raw(control)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def _post(control: Controlled, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    return _ask(control, "POST", path, json.dumps(body).encode())


def test_health_tells_version_and_api(control: Controlled) -> None:
    """What a program asks first."""
    status, told = _ask(control, "GET", "/v1/health")

    assert (200, handoffd.__version__, 1) == (status, told["version"], told["api"])


def test_status_and_projects(control: Controlled) -> None:
    """All, one by name, one by its encoded path."""
    assert ["/srv/shop", "/srv/empty"] == [
        one["project"] for one in _ask(control, "GET", "/v1/status")[1]["projects"]
    ]
    assert 2 == len(_ask(control, "GET", "/v1/projects")[1]["projects"])
    for path in ("/v1/projects/shop", "/v1/projects/%2Fsrv%2Fshop", "/v1/projects//srv/shop"):
        assert (200, "/srv/shop") == (
            (answer := _ask(control, "GET", path))[0],
            answer[1]["project"],
        )


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v1/nope", None, 404, "NOT_FOUND"),
        ("GET", "/v1/health/", None, 404, "NOT_FOUND"),
        ("POST", "/v1/verbs/note/", b"{}", 404, "NOT_FOUND"),
        ("GET", "/v1/projects/", None, 400, "BAD_ARGUMENT"),
        ("DELETE", "/v1/status", None, 405, "METHOD_NOT_ALLOWED"),
        ("TRACE", "/v1/status", None, 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/v1/status?projcet=shop", None, 400, "BAD_ARGUMENT"),
        ("GET", "/v1/verbs/frob", None, 404, "NOT_FOUND"),
        ("GET", "/v1/verbs/approve", None, 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/v1/stop", b'{"executors": "yes"}', 400, "BAD_ARGUMENT"),
        ("POST", "/v1/verbs/note", b'{"project": "shop", "text": "x", "by": 5}', 400, "BAD_ARGUMENT"),
        ("GET", "/v1/status?project=nope", None, 404, "NOT_FOUND"),
        ("GET", "/v1/peek", None, 400, "BAD_ARGUMENT"),
        ("GET", "/v1/events?after=-1", None, 400, "BAD_ARGUMENT"),
        ("GET", "/v1/runs?limit=x", None, 400, "BAD_ARGUMENT"),
        ("GET", "/v1/log?run=../../x", None, 404, "NOT_FOUND"),
        ("GET", "/v1/events?project=nope&follow=1", None, 404, "NOT_FOUND"),
        ("POST", "/v1/verbs/frob", b'{"project": "shop"}', 404, "NOT_FOUND"),
        ("POST", "/v1/verbs/approve", b"{}", 400, "BAD_ARGUMENT"),
        ("POST", "/v1/verbs/approve", b'{"project": 5}', 400, "BAD_ARGUMENT"),
        ("POST", "/v1/verbs/approve", b'{"project": "%b"}' % (b"x" * 65537), 400, "BAD_ARGUMENT"),
        ("POST", "/v1/verbs/approve", b"{", 400, "BAD_REQUEST"),
        ("POST", "/v1/verbs/approve", b"[]", 400, "BAD_REQUEST"),
        ("POST", "/v1/verbs/approve", b"[" * 200_000, 400, "BAD_REQUEST"),
        ("POST", "/v1/verbs/approve", b" " * (1024 * 1024 + 1), 413, "TOO_LARGE"),
        ("POST", "/v1/verbs/start", b'{"project": "shop", "story": "../x"}', 400, "INVALID_STORY"),
    ],
)  # fmt: skip
def test_errors_have_one_shape(
    control: Controlled, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    """Type, code, message, hint, and a status that fits."""
    answered, told = _ask(control, method, path, body)

    assert (status, "error", code) == (answered, told["type"], told["code"])
    assert {"type", "code", "message", "hint"} == set(told)


def test_all_methods_of_a_path_are_named(control: Controlled) -> None:
    """Also where several endpoints share it."""
    assert "(allowed: GET, POST)" in _ask(control, "DELETE", "/v1/projects")[1]["message"]
    assert "(allowed: GET)" in _ask(control, "DELETE", "/v1/status")[1]["message"]


@pytest.mark.parametrize("verb", sorted(VERBS))
@pytest.mark.parametrize("project", ["\ud800", "/tmp/\ud800", "shop\udfff"])
def test_half_a_character_is_no_project(control: Controlled, verb: str, project: str) -> None:
    """It cannot be written as UTF-8, in no file and in no answer."""
    status, told = _post(control, f"/v1/verbs/{verb}", project=project)

    assert (400, "BAD_ARGUMENT") == (status, told["code"])
    assert told["hint"].startswith(f"handoffd {VERBS[verb].typed} PROJECT")


def test_a_verb_is_given_in_somebodys_name(control: Controlled) -> None:
    """`by` is recorded; without it, it was the API; a name that is none is not recorded."""
    for by in ({"by": "eve"}, {}, {"by": "\x1b[2J"}, {"by": None}):
        assert 200 == _post(control, "/v1/verbs/note", project="shop", text="x", **by)[0]

    assert [Noted(text="x", by=name) for name in ("eve", "api", "api", "api")] == [
        verb for _, verb in control.supervision.given
    ]


def test_what_the_engine_refuses_is_409_with_its_result(control: Controlled) -> None:
    """The same JSON as everywhere, advice included."""
    control.supervision.answer = Refusal(code="WRONG_STEP", message="no", caller_instruction="no; wait")

    status, told = _post(control, "/v1/verbs/approve", project="shop")

    assert (409, "error", "no; wait") == (status, told["type"], told["caller_instruction"])


def test_an_executor_is_refused_by_its_process(supervision: MemorySupervision) -> None:
    """The process id is the kernel's, whatever the request says."""
    with controlled(supervision, inside=lambda pid: pid > 0) as control:
        status, told = _post(control, "/v1/verbs/approve", project="shop", by="a person")
        stopped, _ = _post(control, "/v1/stop")

    assert (403, "INSIDE_EXECUTOR", 403) == (status, told["code"], stopped)
    assert ([], []) == (supervision.given, control.stopped_with)


def test_a_person_is_not(control: Controlled) -> None:
    """The same request from elsewhere goes through."""
    _post(control, "/v1/verbs/approve", project="shop", by="eve")

    assert [("/srv/shop", Approved(by="eve"))] == control.supervision.given


def test_events_and_runs_are_listed(control: Controlled) -> None:
    """Limits and numbers hold."""
    for why in ("one", "two", "three"):
        control.commit(record(why=why))

    def whys(query: str) -> list[str]:
        return [event["why"] for event in _ask(control, "GET", f"/v1/events?{query}")[1]["events"]]

    assert ["two", "three"] == whys("limit=2")
    assert ["two"] == whys("after=1&limit=1")
    assert ["three"] == whys("project=shop&after=2")
    assert {"runs": []} == _ask(control, "GET", "/v1/runs")[1]


def test_following_begins_now_unless_told_otherwise(control: Controlled) -> None:
    """With `after` the past comes first."""
    control.commit(record(why="past"))

    with control.client.stream("/v1/events", follow=1, after=0) as stream:
        lines = stream.lines()
        assert "past" == json.loads(next(lines))["why"]
        control.commit(record(why="new"))
        assert "new" == json.loads(next(lines))["why"]
    with control.client.stream("/v1/events", follow=1) as stream:
        control.commit(record(why="newest"))
        assert "newest" == json.loads(next(stream.lines()))["why"]


def test_stop_and_reload(control: Controlled) -> None:
    """The daemon is told, with or without executors."""
    reloaded = _post(control, "/v1/reload")[1]
    assert ("reloaded", True, []) == (reloaded["type"], reloaded["settings"]["taken"], reloaded["problems"])
    _post(control, "/v1/stop")
    _post(control, "/v1/stop", executors=True)

    assert [False, True] == control.stopped_with


@pytest.mark.parametrize("fault", [NotFound("no \ud800"), ValueError("no \ud800")])
def test_an_error_that_quotes_what_is_no_text_is_told(control: Controlled, fault: Exception) -> None:
    """As JSON, whatever a message quotes; half a character becomes a question mark."""

    def find(_: str) -> str:
        raise fault

    control.supervision.find = find  # type: ignore[method-assign, assignment]

    status, told = _ask(control, "GET", "/v1/status?project=x")

    assert (404 if isinstance(fault, NotFound) else 500, "error") == (status, told["type"])
    assert told["message"].endswith("no ?")


def test_a_bug_is_told_and_does_not_end_the_server(control: Controlled) -> None:
    """The asker gets JSON, the next one an answer."""
    control.supervision.find = None  # type: ignore[method-assign, assignment]

    status, told = _ask(control, "GET", "/v1/status?project=x")

    assert (500, "INTERNAL") == (status, told["code"])
    assert 200 == _ask(control, "GET", "/v1/health")[0]


@pytest.mark.parametrize(
    "told",
    [
        {"projects": []},
        {"api": 1, "at": "店", "projects": [{"name": f"{number}", "x": None} for number in range(120)]},
        {"projects": [1], "after": {"projects": 2}},
    ],
)
async def test_nothing_is_lost_between_the_pieces(told: Json) -> None:
    """Whatever stands beside the long list."""
    response = await rendered(told, "projects")

    assert told == json.loads(bytes(response.body))
    assert ("application/json", str(len(response.body))) == (
        response.headers["content-type"],
        response.headers["content-length"],
    )
