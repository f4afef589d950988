"""Answers and errors, as the protocol carries them."""

from __future__ import annotations

import json

import mcp_types as types

from handoffd.entrance.requests import Answer
from handoffd.errors import HandoffdError, InvalidFile, Problem
from handoffd.mcp.server import MOST_CHARS, RECORDED, failure, result_of


def texts(result: types.CallToolResult) -> list[str]:
    """Return the texts of a result."""
    return [content.text for content in result.content if isinstance(content, types.TextContent)]


def test_an_answer_is_the_json_of_every_other_entrance() -> None:
    """Structured, and as text for clients that read only that."""
    result = result_of(Answer({"type": "accepted", "story": None}, daemon=True))

    assert not result.is_error
    assert {"type": "accepted", "story": None, "daemon": True} == result.structured_content
    assert [{"type": "accepted", "story": None}] == [json.loads(text) for text in texts(result)]


def test_a_verb_without_a_daemon_says_that_nothing_goes_on() -> None:
    """A read does not need to, and what was refused would not go on."""
    answer = Answer({"type": "accepted"}, daemon=False)

    assert f"{RECORDED} No daemon runs." == texts(result_of(answer, idle="No daemon runs."))[0]
    assert 1 == len(texts(result_of(answer)))
    refused = Answer({"type": "error"}, daemon=False)
    assert 1 == len(texts(result_of(refused, idle="No daemon runs.")))


def test_what_the_engine_refuses_is_an_error_of_the_tool() -> None:
    """With all it said."""
    refusal = {"type": "error", "code": "WRONG_STEP", "message": "m", "next_command": "handoffd status x"}

    result = result_of(Answer(refusal, daemon=True))

    assert result.is_error
    assert "WRONG_STEP" in texts(result)[0]
    assert "handoffd status x" == result.structured_content["next_command"]


def test_our_errors_are_errors_of_the_tool() -> None:
    """Code, message, the next command, and what programs are told besides."""
    result = failure(InvalidFile((Problem(file="x.yaml", line=3, message="bad"),), hint="vi x.yaml"))

    assert result.is_error
    told = result.structured_content
    assert ("INVALID_FILE", "x.yaml:3: bad", "vi x.yaml") == (told["code"], told["message"], told["hint"])
    assert 3 == told["problems"][0]["line"]
    assert "NO_ANSWER" in texts(failure(HandoffdError("m", code="NO_ANSWER")))[0]


def test_an_answer_that_is_too_large_is_refused() -> None:
    """It would crowd out everything else; the error says what to ask for."""
    result = result_of(Answer({"lines": ["x" * MOST_CHARS]}, daemon=True))

    assert result.is_error
    assert "TOO_LARGE" == result.structured_content["code"]
