"""What an agent says and does, line by line."""

from __future__ import annotations

import json

import pytest

from handoffd.execute.messages import Part, decoded, parts_of


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
    blocks = [{"type": "tool_result", "content": "no", "is_error": flag} for flag in (True, "true", False)]

    kinds = [part.kind for part in parts_of({"type": "user", "message": {"content": blocks}})]
    assert ["tool_error", "tool_result", "tool_result"] == kinds


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"file_path": "/srv/a.go", "content": "package a"}, "/srv/a.go"),
        ({"pattern": "TODO", "path": "src"}, "src"),
        ({"command": " ", "url": "https://x"}, "https://x"),
        ({"todos": ["é"]}, '{"todos": ["é"]}'),
        ({}, ""),
        ("text", ""),
    ],
)
def test_a_call_is_told_by_its_main_argument(given: object, expected: str) -> None:
    """All arguments stand for a tool whose arguments are called otherwise."""
    block = {"type": "tool_use", "name": "Any", "input": given}

    assert (Part(kind="tool", text=expected, tool="Any"),) == parts_of(
        {"type": "assistant", "message": {"content": [block]}}
    )


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


def test_an_object_is_read_from_text_and_bytes() -> None:
    """With blanks around it."""
    assert {"é": 1} == decoded(' {"é": 1}\r') == decoded(json.dumps({"é": 1}).encode() + b"\n")
