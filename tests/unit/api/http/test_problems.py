"""Errors as the API tells them."""

from __future__ import annotations

import json

import pytest

from handoffd.api.http.answers import error_json, error_response, status_of
from handoffd.errors import HandoffdError, Locked, NotFound, Refused, StoreError


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
    """What belongs to it stands beside."""
    error = Refused("no", code="X", hint="handoffd status")
    error.details = {"problems": ["a"]}

    told = {"type": "error", "code": "X", "message": "no", "hint": "handoffd status", "problems": ["a"]}
    assert told == error_json(error)


def test_an_error_can_be_told_whatever_it_quotes() -> None:
    """A message may hold what UTF-8 cannot write."""
    answer = error_response(NotFound("no \ud800", hint="ls '\udfff'"), {"X-Y": "z"})

    assert (404, "application/json", "z") == (
        answer.status_code, answer.headers["content-type"], answer.headers["x-y"],
    )  # fmt: skip
    assert {"type": "error", "code": "NOT_FOUND", "message": "no ?", "hint": "ls '?'"} == json.loads(
        bytes(answer.body)
    )
