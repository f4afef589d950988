"""What an agent says and does, line by line, by the rules for claude's stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handoffd.engine.run import Usage
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.format import StreamFormat
from handoffd.execute.stream.line import LineReading, Part, Stated, StreamVerdict, decoded, read_line

CLAUDE = load_book(shipped_layer()).get("claude").stream or StreamFormat()


def rules(**line: Any) -> StreamFormat:
    """Return the rules of a stream with one kind of line."""
    return StreamFormat.model_validate({"lines": [line]})


def reading(data: object, stream: StreamFormat = CLAUDE) -> LineReading:
    """Return what the line of an object tells."""
    found = read_line(json.dumps(data), stream)
    assert found is not None
    return found


def parts_of(data: object) -> tuple[Part, ...]:
    """Return the parts of the line of an object."""
    return reading(data).parts


def test_a_message_is_taken_apart_in_its_order() -> None:
    """Thoughts, texts and calls of tools."""
    content = [
        {"type": "thinking", "thinking": "Tests first.", "signature": "x"},
        {"type": "text", "text": "I run the tests."},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "go test", "timeout": 5}},
    ]

    assert (
        Part(kind="thought", text="Tests first."),
        Part(kind="said", text="I run the tests."),
        Part(kind="tool", text="go test", tool="Bash"),
    ) == parts_of({"type": "assistant", "message": {"content": content}})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("ok", Part(kind="tool_result", text="ok")),
        (
            [{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}],
            Part(kind="tool_result", text="a\nb"),
        ),
        (None, Part(kind="tool_result", text="")),
    ],
)
def test_what_a_tool_answers_is_a_text(content: object, expected: Part) -> None:
    """Whether it came as one or in parts."""
    block = {"type": "tool_result", "tool_use_id": "t1", "content": content}

    assert (expected,) == parts_of({"type": "user", "message": {"content": [block]}})


def test_a_tool_that_failed_is_told_apart() -> None:
    """Only by its own flag."""
    blocks = [{"type": "tool_result", "content": "no", "is_error": flag} for flag in (True, "true", False, 1)]

    kinds = [part.kind for part in parts_of({"type": "user", "message": {"content": blocks}})]
    assert ["tool_error", "tool_result", "tool_result", "tool_result"] == kinds


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"file_path": "/srv/a.go", "content": "package a"}, "/srv/a.go"),
        ({"pattern": "TODO", "path": "src"}, "src"),
        ({"command": " ", "url": "https://x"}, "https://x"),
        ({"todos": ["é"]}, '{"todos": ["é"]}'),
        ({}, ""),
        ("text", "text"),
    ],
)
def test_a_call_is_told_by_its_main_argument(given: object, expected: str) -> None:
    """All arguments stand for a tool whose arguments are called otherwise."""
    block = {"type": "tool_use", "name": "Any", "input": given}

    assert (Part(kind="tool", text=expected, tool="Any"),) == parts_of(
        {"type": "assistant", "message": {"content": [block]}}
    )


def test_the_files_of_tools_that_write_are_told() -> None:
    """Not of those that read."""
    blocks = [
        {"type": "tool_use", "name": name, "input": {"file_path": f"{name}.py"}} for name in ("Read", "Edit")
    ]

    assert ("Edit.py",) == reading({"type": "assistant", "message": {"content": blocks}}).files


def test_thoughts_that_are_kept_secret_are_told_without_their_words() -> None:
    """What stands in their place is for the agent's maker."""
    secret = [
        {"type": "thinking", "thinking": "", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
    ]

    assert (Part(kind="thought", text=""),) * 2 == parts_of(
        {"type": "assistant", "message": {"content": secret}}
    )


def test_what_others_say_to_the_agent_is_not_what_it_said() -> None:
    """A message may also be a text by itself."""
    assert (Part(kind="told", text="Go on."),) == parts_of({"type": "user", "message": {"content": "Go on."}})
    assert (Part(kind="said", text="Yes."),) == parts_of(
        {"type": "assistant", "message": {"content": "Yes."}}
    )


def test_the_beginning_names_model_folder_and_session() -> None:
    """As far as they are there."""
    begun = {"type": "system", "subtype": "init", "model": "opus", "cwd": 7, "session_id": "s-1"}

    assert (Part(kind="session", text="opus, s-1"),) == parts_of(begun)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"type": ["assistant"]},
        {"type": "system", "subtype": "other"},
        {"type": "assistant"},
        {"type": "assistant", "message": "text"},
        {"type": "assistant", "message": {"content": {"type": "text"}}},
        {
            "type": "assistant",
            "message": {
                "content": [
                    7,
                    None,
                    {},
                    {"type": {}},
                    {"type": "text", "text": 7},
                    {"type": "text", "text": " "},
                ]
            },
        },
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": ["Bash"]}]}},
    ],
)
def test_what_is_not_understood_tells_nothing(data: dict[str, object]) -> None:
    """Streams change, and others write into them."""
    assert () == parts_of(data)


@pytest.mark.parametrize(
    "line",
    ["", "{", "}", "[]", "{]}", '"{}"', "{} {}", '{"a": tru}', "{" * 100_000 + "}", '{"a":' * 100_000 + "}",
     '{"a": ' + "9" * 10_000 + "}", b"{\xff}"],
)  # fmt: skip
def test_only_a_whole_object_is_one(line: str | bytes) -> None:
    """Whatever else stands in a line is no fault."""
    assert None is decoded(line)
    assert None is read_line(line, CLAUDE)


def test_an_object_is_read_from_text_and_bytes() -> None:
    """With blanks around it."""
    assert {"é": 1} == decoded(' {"é": 1}\r') == decoded(json.dumps({"é": 1}).encode() + b"\n")


def test_the_first_rule_that_fits_counts() -> None:
    """And a line that fits none is known to be one."""
    stream = StreamFormat.model_validate(
        {
            "lines": [
                {"when": {"type": "end", "status": ["ok", "fine"]}, "result": {"is_error": False}},
                {"when": {"type": "end"}, "result": {"is_error": True, "error": "why"}},
            ]
        }
    )

    assert StreamVerdict(is_error=False) == reading({"type": "end", "status": "fine"}, stream).verdict
    failed = reading({"type": "end", "status": "no", "why": "quota"}, stream).verdict
    assert StreamVerdict(is_error=True, error="quota") == failed
    assert not reading({"type": "begin"}, stream).known


def test_a_plain_line_is_read_by_an_expression() -> None:
    """Its named groups are what the paths lead to; an object is never taken for a plain line."""
    stream = rules(match=r"^used (?P<sent>\S+), \$(?P<cost>\S+)", usage={"input": "sent", "cost": "cost"})

    found = read_line(b"used 2.3k, $0.25 \xff", stream)
    assert found is not None
    expected = Usage(input_tokens=2300, cost_usd=0.25, priced="provider")
    assert Stated(mode="total", usage=expected) == found.usage
    assert None is read_line("used up", stream)
    assert not reading({"used": 1}, stream).known


def test_of_a_plain_line_no_more_than_the_beginning_is_looked_at() -> None:
    """An expression may take the square of what it is given."""
    stream = rules(match="asked: (?P<error>.*)refused", error="error")

    assert None is read_line(b"asked: " * 100_000, stream)
    assert read_line("asked: x refused" + "y" * 100_000, stream) is not None


def test_tokens_that_a_cache_had_are_counted_once() -> None:
    """Some providers count them among those that were sent."""
    keys = {"input": "in", "cache_read": "read", "cache_write": "wrote", "input_includes_cache": True}
    stream = rules(when={}, usage={**keys, "mode": "add", "per": "id"})

    found = reading({"in": 100, "read": 60, "wrote": 10, "id": "m-1"}, stream).usage
    usage = Usage(input_tokens=30, cache_read_tokens=60, cache_write_tokens=10)
    assert Stated(mode="add", usage=usage, key="m-1") == found
    less = reading({"in": 1, "read": 60}, stream).usage
    assert less is not None
    assert (0, 60) == (less.usage.input_tokens, less.usage.cache_read_tokens)


@pytest.mark.parametrize("value", [True, -1, [1], {"a": 1}, "x", "", None, 10**400, float("nan")])
def test_what_is_no_number_is_no_usage(value: object) -> None:
    """Negative tokens, a truth, a number with 400 digits."""
    stream = rules(when={}, usage={"input": "in", "cost": "cost"}, resets="at")

    found = reading({"in": value, "cost": value, "at": value}, stream)
    assert (None, None) == (found.usage, found.resets_at)


def test_an_error_and_the_end_of_a_limit_are_told() -> None:
    """The one in words, the other in seconds since 1970."""
    stream = rules(when={"type": "limit"}, error=["why", "error.message"], resets="at")

    found = reading({"type": "limit", "error": {"message": "enough"}, "at": 1893456000}, stream)
    assert ("enough", 1893456000) == (found.error, found.resets_at)
