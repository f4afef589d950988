"""The JSON API as programs see it, over the socket; over the port: test_tcp.py."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, to_builtins
from tests.support.controlled import Controlled, controlled
from tests.support.loopback import OverSocket
from tests.support.supervision import MemorySupervision, project_view, track_view
from tests.unit.api.http.test_openapi import told
from tests.unit.inspection.making import write, write_state
from tests.unit.journal.making import record

import handoffd
from handoffd.api.http.application import ENDPOINTS, rendered
from handoffd.api.http.limits import MOST_HEAD_BYTES, head_bytes
from handoffd.api.verbs import VERBS
from handoffd.engine.decision import Refusal
from handoffd.engine.events import Approved, Noted, Paused
from handoffd.errors import HandoffdError, NotFound, Refused


@pytest.fixture(scope="module")
def lasting() -> Iterator[Controlled]:
    """A server for all requests of this module that change nothing."""
    with controlled(MemorySupervision(project_view("/srv/shop", track_view()))) as lent:
        yield lent


def _ask(control: Controlled, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
    answer = OverSocket(control.socket).ask(method, path, body)
    return answer.status, answer.json


def _post(control: Controlled, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    return _ask(control, "POST", path, json.dumps(body).encode())


def test_health_status_and_projects(control: Controlled) -> None:
    """All, one by name, one by its encoded path; programs ask for health first."""
    status, health = _ask(control, "GET", "/v1/health")
    assert (200, handoffd.__version__, 1) == (status, health["version"], health["api"])
    assert ["/srv/shop", "/srv/empty"] == [
        one["project"] for one in _ask(control, "GET", "/v1/status")[1]["projects"]
    ]
    assert 2 == len(_ask(control, "GET", "/v1/projects")[1]["projects"])
    for path in ("/v1/projects/shop", "/v1/projects/%2Fsrv%2Fshop", "/v1/projects//srv/shop"):
        status, one = _ask(control, "GET", path)
        assert (200, "/srv/shop") == (status, one["project"])


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
    lasting: Controlled, method: str, path: str, body: bytes | None, status: int, code: str
) -> None:
    """Type, code, message, hint, and a status that fits."""
    answered, error = _ask(lasting, method, path, body or b"")

    assert (status, "error", code) == (answered, error["type"], error["code"])
    assert {"type", "code", "message", "hint"} == set(error)


def test_all_methods_of_a_path_are_named(lasting: Controlled) -> None:
    """Also where several endpoints share it."""
    assert "(allowed: GET, POST)" in _ask(lasting, "DELETE", "/v1/projects")[1]["message"]
    assert "(allowed: GET)" in _ask(lasting, "DELETE", "/v1/status")[1]["message"]


@pytest.mark.parametrize("verb", sorted(VERBS))
@pytest.mark.parametrize("project", ["\ud800", "/tmp/\ud800", "shop\udfff"])
def test_half_a_character_names_no_project(lasting: Controlled, verb: str, project: str) -> None:
    """It cannot be written as UTF-8, in no file and in no answer."""
    status, error = _post(lasting, f"/v1/verbs/{verb}", project=project)

    assert (400, "BAD_ARGUMENT") == (status, error["code"])
    named = "" if verb.startswith("flow_") else " PROJECT"  # the id of a flow says it
    assert error["hint"].startswith(f"handoffd {VERBS[verb].typed}{named}")


def test_a_verb_is_recorded_under_a_name(control: Controlled) -> None:
    """The one in `by`; without a usable one, that of the API."""
    for by in ({"by": "eve"}, {}, {"by": "\x1b[2J"}, {"by": None}):
        assert 200 == _post(control, "/v1/verbs/note", project="shop", text="x", **by)[0]

    assert [Noted(text="x", by=name) for name in ("eve", "api", "api", "api")] == [
        verb for _, verb in control.supervision.given
    ]


def test_a_refusal_of_the_engine_is_409_with_its_result(control: Controlled) -> None:
    """The same JSON as everywhere, advice included."""
    control.supervision.answer = Refusal(code="WRONG_STEP", message="no", caller_instruction="no; wait")

    status, answer = _post(control, "/v1/verbs/approve", project="shop")

    assert (409, "error", "no; wait") == (status, answer["type"], answer["caller_instruction"])


def test_an_executor_is_refused_by_its_process(supervision: MemorySupervision) -> None:
    """The process id is the kernel's, whatever the request says."""
    with controlled(supervision, inside=lambda pid: pid > 0) as control:
        status, error = _post(control, "/v1/verbs/approve", project="shop", by="a person")
        stopped, _ = _post(control, "/v1/stop")

    assert (403, "INSIDE_EXECUTOR", 403) == (status, error["code"], stopped)
    assert ([], []) == (supervision.given, control.stopped_with)


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


def test_following_begins_now_without_a_number(control: Controlled) -> None:
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
    """Stopping ends executors only if the request has the flag."""
    reloaded = _post(control, "/v1/reload")[1]
    assert ("reloaded", True, []) == (reloaded["type"], reloaded["settings"]["taken"], reloaded["problems"])
    _post(control, "/v1/stop")
    _post(control, "/v1/stop", executors=True)

    assert [False, True] == control.stopped_with


@pytest.mark.parametrize("fault", [NotFound("no \ud800"), ValueError("no \ud800")])
def test_an_error_may_quote_anything(control: Controlled, fault: Exception) -> None:
    """It is JSON all the same; half a character becomes a question mark."""

    def find(_: str) -> str:
        raise fault

    control.supervision.find = find  # type: ignore[method-assign, assignment]

    status, error = _ask(control, "GET", "/v1/status?project=x")

    expected = (404, "NOT_FOUND") if isinstance(fault, NotFound) else (500, "INTERNAL")
    assert expected == (status, error["code"])
    assert error["message"].endswith("no ?")
    assert 200 == _ask(control, "GET", "/v1/health")[0]


class Short(Struct):
    """An answer that is nothing but its list."""

    projects: list[Any]


class Long(Short):
    """One with more."""

    after: dict[str, int]
    at: str = "店"


@pytest.mark.parametrize(
    "answer",
    [
        Short([]),
        Long([{"name": f"{number}", "x": None} for number in range(120)], {}),
        Long([1], {"projects": 2}),
    ],
)
async def test_nothing_is_lost_between_the_pieces(answer: Struct) -> None:
    """Whatever else is in the answer, beside the long list."""
    response = await rendered(answer, "projects")

    assert to_builtins(answer) == json.loads(bytes(response.body))
    assert ("application/json", str(len(response.body))) == (
        response.headers["content-type"],
        response.headers["content-length"],
    )


# --- verbs and messages ------------------------------------------------------------------------------
def test_a_verb_goes_to_its_project(control: Controlled) -> None:
    """With its arguments; one without its project is refused with the command."""
    control.client.post("/v1/verbs/pause", {"project": "shop"})
    control.client.post("/v1/verbs/note", {"project": "/srv/shop", "text": "hello", "by": "eve"})
    with pytest.raises(Refused) as caught:
        control.client.post("/v1/verbs/reject", {"reason": "x"})

    given = [verb for _, verb in control.supervision.given]
    assert [Paused(by="api"), Noted(text="hello", by="eve")] == given
    assert (caught.value.hint or "").startswith("handoffd reject PROJECT REASON")


@pytest.mark.parametrize("text", ["status", "approve", "ok", "list projects", "approve US-9", "繼續"])
def test_an_answer_to_a_message_has_its_shape(control: Controlled, text: str) -> None:
    """Refused or not, it is an answer."""
    answer = control.client.post("/v1/messages", {"project": "shop", "text": text})

    assert [] == told(answer, "/v1/messages", "post")


def test_the_sender_of_a_message_is_recorded(control: Controlled) -> None:
    """As with a verb."""
    control.client.post("/v1/messages", {"project": "shop", "text": "核准", "by": "eve"})
    control.client.post("/v1/verbs/approve", {"project": "/srv/shop", "by": "eve"})

    approved = [Approved(story="US-001", undoable=True, by="eve"), Approved(undoable=True, by="eve")]
    assert [("/srv/shop", one) for one in approved] == control.supervision.given


@pytest.mark.parametrize(
    "body", [{}, {"text": 5}, {"text": "x", "language": "tlh"}, {"text": "x", "speed": 1}]
)
def test_a_wrong_message_is_refused(control: Controlled, body: dict[str, object]) -> None:
    """With a command that works."""
    with pytest.raises(HandoffdError) as refused:
        control.client.post("/v1/messages", body)

    assert "BAD_ARGUMENT" == refused.value.code
    assert refused.value.hint


# --- any folder ------------------------------------------------------------------------------------
@pytest.mark.parametrize("read", ["detect", "query", "check-prereqs", "review", "triage", "list-projects"])
@pytest.mark.parametrize("language", [None, "zh-TW"])
def test_an_answer_about_a_folder_has_its_shape(
    control: Controlled, tmp_path: Path, read: str, language: str | None
) -> None:
    """Supervised or not; only prompts have a language."""
    write_state(tmp_path / "shop", tests={"pass": 1, "fail": 0, "skip": 0})
    write(tmp_path / "shop", "PROJECT_MEMORY.md", "## ISSUES\n- [ ] one\n")
    asked = {"folder": tmp_path} if read == "list-projects" else {"project": tmp_path / "shop"}
    if read in {"review", "triage"}:
        asked["language"] = language  # type: ignore[assignment]

    assert [] == told(control.client.get(f"/v1/{read}", **asked), f"/v1/{read}")


def test_the_journal_answers_about_a_supervised_project(control: Controlled) -> None:
    """By its name, also without its folder."""
    found = control.client.get("/v1/query", project="shop")

    assert [] == told(found, "/v1/query")
    assert ("/srv/shop", True, "a person's decision") == (
        found["root"], found["supervised"], found["waits_for"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("detect", "BAD_ARGUMENT"),
        ("list-projects?folder=work", "BAD_ARGUMENT"),
        ("query?project=none", "NOT_FOUND"),
        ("review?project=shop&language=fr", "BAD_ARGUMENT"),
        ("triage?project=/", "NO_MEMORY"),
    ],
)
def test_a_wrong_question_about_a_folder_is_an_error(lasting: Controlled, path: str, code: str) -> None:
    """With a next command."""
    with pytest.raises(HandoffdError) as caught:
        lasting.client.get(f"/v1/{path}")

    assert code == caught.value.code
    assert caught.value.hint


# --- the table of endpoints --------------------------------------------------------------------------
def test_every_question_is_answered_where_its_declaration_says(control: Controlled) -> None:
    """With JSON, or a refusal of missing parameters; never with a fault or `no such path`."""
    with pytest.raises(NotFound) as caught, control.client.stream("/metrics"):
        pass
    assert "handoffd run" == caught.value.hint  # the service of one verb has no counts
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and "{" not in endpoint.path:
            assert not refusal(control, endpoint.path).startswith("there is no GET"), endpoint.name


def refusal(control: Controlled, path: str) -> str:
    """Return why a question is refused; nothing when it is answered."""
    try:
        control.client.get(path)
    except (Refused, NotFound) as error:
        return error.message
    return ""


def test_every_endpoint_is_described_once() -> None:
    """With a name and sentences; only a POST has a body. Every verb has an endpoint."""
    names = Counter(endpoint.name for endpoint in ENDPOINTS)
    requests = Counter((endpoint.method, endpoint.path) for endpoint in ENDPOINTS)

    assert {1} == {*names.values(), *requests.values()}
    assert {("POST", f"/v1/verbs/{verb}") for verb in VERBS} <= requests.keys()
    for endpoint in ENDPOINTS:
        assert endpoint.help.endswith("."), endpoint.name
        assert ("POST" == endpoint.method) == (endpoint.body is not None), endpoint.name
        assert all(parameter.help for parameter in endpoint.url), endpoint.name
        assert all(parameter.help for parameter in endpoint.body or ()), endpoint.name


# --- what a request has before its body --------------------------------------------------------------
def _request(line: str, *headers: str) -> bytes:
    """Return a whole request without a body."""
    whole = [f"{line} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]
    return "\r\n".join(whole).encode()


@pytest.mark.parametrize(("size", "status"), [(20_000, 200), (40_000, 431), (100_000, 431)])
def test_headers_have_a_limit(lasting: Controlled, size: int, status: int) -> None:
    """One that is long, and many; in one piece they are complete before the HTTP library counts them."""
    many = [f"X{number}: {'x' * 90}" for number in range(size // 100)]

    for headers in ([f"X: {'x' * size}"], many):
        answer = OverSocket(lasting.socket).send(_request("GET /v1/health", *headers))
        code = None if status == 200 else "HEADERS_TOO_LARGE"
        assert (status, code) == (answer.status, answer.json.get("code"))


@pytest.mark.parametrize(
    "raw",
    [
        _request(f"GET /v1/status?project={'x' * 40_000}"),
        b"GET /v1/health HTTP/1.1\r\nX: " + b"x" * 100_000,
    ],
    ids=["a long path", "no end"],
)
def test_a_head_that_is_too_large_is_refused(lasting: Controlled, raw: bytes) -> None:
    """Also one that does not end: the HTTP library gives up on it, and the answer arrives all the same."""
    answer = OverSocket(lasting.socket).send(raw)

    assert (431, "HEADERS_TOO_LARGE", "close") == (
        answer.status, answer.json["code"], answer.headers["connection"],
    )  # fmt: skip


@pytest.mark.parametrize("raw", [b"\x16\x03\x01\x02\r\n\r\n", b"frob\r\n\r\n"])
def test_anything_else_than_a_request_is_refused_as_json(lasting: Controlled, raw: bytes) -> None:
    """With a status, and nothing after it."""
    answer = OverSocket(lasting.socket).send(raw)

    assert (400, "BAD_REQUEST", "application/json") == (
        answer.status, answer.json["code"], answer.headers["content-type"],
    )  # fmt: skip


def test_a_body_that_breaks_off_ends_its_request(control: Controlled) -> None:
    """Its verb is not given, and the next one is answered."""
    head = _request("POST /v1/verbs/note", "Transfer-Encoding: chunked")

    assert 400 == OverSocket(control.socket).send(head + b"frob\r\n").status
    assert [] == control.supervision.given
    assert 1 == control.client.get("/v1/health")["api"]


def test_a_head_is_counted_with_its_line_ends() -> None:
    """As it came, without the characters between the words of its first line."""
    scope = {
        "method": "GET",
        "raw_path": b"/v1",
        "query_string": b"a=1",
        "headers": [(b"x", b"yz"), (b"n", b"")],
    }

    assert 3 + 3 + 3 + (1 + 2 + 4) + (1 + 4) == head_bytes(scope)
    assert MOST_HEAD_BYTES > head_bytes(scope)
