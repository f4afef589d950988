"""From a request to the arguments of an endpoint: the checks, and how errors are reported."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import anyio
import pytest
from starlette.requests import Request
from tests.support.refusals import refused

from handoffd.api.http.application import asked
from handoffd.api.http.auth import CALLER, From
from handoffd.api.http.endpoint import (
    BY,
    Asked,
    Endpoint,
    error_json,
    error_response,
    status_of,
)
from handoffd.api.questions import PROJECT, UrlParameter
from handoffd.api.verbs import Parameter
from handoffd.errors import HandoffdError, Locked, NotFound, Refused, StoreError


async def _never(_: Asked) -> dict[str, Any]:
    raise AssertionError


READ = Endpoint(
    name="read", path="/v1/read", help="A question.", answer=_never, hint="handoffd status",
    url=(
        PROJECT,
        UrlParameter(name="limit", help="how many", type="number", default=5, most=10),
        UrlParameter(name="follow", help="go on", type="flag", default=False),
        UrlParameter(name="by", help="by what", choices=("step", "model")),
    ),
)  # fmt: skip
ORDER = Endpoint(
    name="order", path="/v1/order", help="An order.", answer=_never, method="POST",
    body=(Parameter(name="text", type="text", required=True, help="what"), BY),
)  # fmt: skip


def ask(endpoint: Endpoint, query: str = "", body: bytes = b"") -> Asked:
    """Return what a request becomes."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope: dict[str, Any] = {
        "type": "http", "method": endpoint.method, "path": endpoint.path, "headers": [],
        "query_string": query.encode(), CALLER: From(42), "path_params": {},
    }  # fmt: skip

    async def run() -> Asked:
        return await asked(endpoint, Request(scope, receive), None, anyio.Event())  # type: ignore[arg-type]

    return anyio.run(run)


@pytest.mark.parametrize(
    ("query", "given"),
    [
        ("", {"project": None, "limit": 5, "follow": False, "by": None}),
        ("project=&by=", {"project": None, "limit": 5, "follow": False, "by": None}),
        ("limit=0&follow=true", {"project": None, "limit": 0, "follow": True, "by": None}),
        (
            "limit=9007199254740992&follow=0&by=step&project=/srv/a+b",
            {"project": "/srv/a b", "limit": 10, "follow": False, "by": "step"},
        ),
    ],
)
def test_every_parameter_has_a_value(query: str, given: dict[str, Any]) -> None:
    """Its own or its default, in its type; a number that is too large is the largest one."""
    assert given == ask(READ, query).given


@pytest.mark.parametrize(
    "query",
    [
        "limits=5", "limit=", "limit=5&limit=6", "limit=-1", "limit=٣", "limit=1e3", "limit=9007199254740993",
        f"limit={'9' * 5000}", "follow=yes", "by=moon",
    ],
)  # fmt: skip
def test_what_is_no_value_is_refused_with_what_to_type(query: str) -> None:
    """A slip of the pen is not the answer to another question."""
    with refused("BAD_ARGUMENT", "handoffd status"):
        ask(READ, query)


def test_what_is_missing_is_named() -> None:
    """In the URL and in the body."""
    needed = Endpoint(
        name="x", path="/x", help="", answer=_never,
        url=(UrlParameter(name="project", help="which", required=True),),
    )  # fmt: skip

    for endpoint, name in ((needed, "project"), (ORDER, "text")):
        with pytest.raises(Refused, match=f"{name} is missing"):
            ask(endpoint)


def test_the_caller_is_the_kernels_process_under_a_printable_name() -> None:
    """Whatever the body says."""
    names = {'"eve"': "eve", "null": "api", '""': "api", '"\\u001b[2J"': "api", f'"{"x" * 500}"': "x" * 100}

    for text, name in names.items():
        caller = ask(ORDER, body=f'{{"text": "t", "by": {text}}}'.encode()).caller
        assert (42, name) == (caller.pid, caller.by)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "BAD_REQUEST"),
        (b"[]", "BAD_REQUEST"),
        (b"\xff", "BAD_REQUEST"),
        (b'{"text": "t", "frob": 1}', "BAD_ARGUMENT"),
        (b'{"text": 5}', "BAD_ARGUMENT"),
        (b'{"text": "t", "by": []}', "BAD_ARGUMENT"),
        (b'{"text": "t", "by": "%b"}' % (b"x" * 65537), "BAD_ARGUMENT"),
        (b" " * (1024 * 1024 + 1), "TOO_LARGE"),
    ],
)
def test_a_body_that_cannot_be_used_is_refused(body: bytes, code: str) -> None:
    """Before anything is done."""
    with refused(code):
        ask(ORDER, body=body)


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    """The answer names the reason."""

    async def receive() -> dict[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    scope: dict[str, Any] = {
        "type": "http", "method": "POST", "path": "/v1/order", "headers": [], "query_string": b"",
        CALLER: From(42), "path_params": {},
    }  # fmt: skip

    with refused("REQUEST_TIMEOUT"):
        await asked(ORDER, Request(scope, receive), None, anyio.Event(), 0.01)  # type: ignore[arg-type]


def test_an_unknown_parameter_cannot_flood_the_answer() -> None:
    """Its name is shortened."""
    with pytest.raises(Refused) as caught:
        ask(READ, urlencode({"x" * 9000: ""}))

    assert len(caught.value.message) < 300


# --- errors ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("x"), 404),
        (Locked("x"), 409),
        (Refused("x"), 409),
        (Refused("x", code="BAD_ARGUMENT"), 400),
        (Refused("x", code="INSIDE_EXECUTOR"), 403),
        (StoreError("x"), 503),
        (HandoffdError("x"), 400),
        (HandoffdError("x", code="INTERNAL"), 500),
    ],
)
def test_the_status_follows_the_code_then_the_family(error: HandoffdError, status: int) -> None:
    """A code of its own wins."""
    assert status == status_of(error)


def test_an_error_has_one_shape() -> None:
    """With its details beside."""
    error = Refused("no", code="X", hint="handoffd status")
    error.details = {"problems": ["a"]}

    told = {"type": "error", "code": "X", "message": "no", "hint": "handoffd status", "problems": ["a"]}
    assert told == error_json(error)


def test_an_error_is_json_whatever_it_quotes() -> None:
    """Half a character, which UTF-8 cannot write, becomes a question mark."""
    answer = error_response(NotFound("no \ud800", hint="ls '\udfff'"), {"X-Y": "z"})

    assert (404, "application/json", "z") == (
        answer.status_code, answer.headers["content-type"], answer.headers["x-y"],
    )  # fmt: skip
    assert {"type": "error", "code": "NOT_FOUND", "message": "no ?", "hint": "ls '?'"} == json.loads(
        bytes(answer.body)
    )
