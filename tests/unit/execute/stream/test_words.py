"""What people read of an output that is over."""

from __future__ import annotations

import json

import pytest

from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.format import StreamFormat
from handoffd.execute.stream.line import StreamVerdict
from handoffd.execute.stream.reader import last_words, plain_words

CLAUDE = load_book(shipped_layer()).get("claude").stream or StreamFormat()


def line(**fields: object) -> bytes:
    """Return one line of a stream."""
    return json.dumps(fields).encode() + b"\n"


def assistant(*content: object) -> bytes:
    """Return the line of a message of the agent."""
    return line(type="assistant", message={"role": "assistant", "content": list(content)})


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (StreamVerdict(is_error=True, error="no credit"), "it reported: no credit"),
        (StreamVerdict(is_error=False, said="Nothing to do."), "it said: Nothing to do."),
        (
            StreamVerdict(is_error=False, said="Please permit it.", denied=("Write",)),
            "it said: Please permit it.\nit was not permitted to use Write",
        ),
    ],
)
def test_the_last_words_are_for_people(verdict: StreamVerdict, expected: str) -> None:
    """They become last_error and part of the next prompt, where JSON would explain nothing."""
    assert expected == last_words(CLAUDE, verdict, assistant({"type": "text", "text": "x"}))


@pytest.mark.parametrize("verdict", [None, StreamVerdict()])
def test_without_a_result_the_last_words_are_what_is_no_json(verdict: StreamVerdict | None) -> None:
    """A program that gives up early says why on standard error."""
    output = b'ut off"}\n' + line(type="system") + b"no such \x1boption\n\n  try --help\n" + b'{"type":"assi'

    assert "no such \N{REPLACEMENT CHARACTER}option\ntry --help" == last_words(CLAUDE, verdict, output)
    assert "" == last_words(CLAUDE, verdict, line(type="system"))


def test_without_a_result_the_last_words_are_what_it_said_and_did_last() -> None:
    """An agent that was ended in the middle; what it was at is what explains most."""
    output = (
        b"warning: old version\n"
        + assistant({"type": "text", "text": "First."})
        + assistant({"type": "text", "text": "Now the\n\x1b[1mtests."})
        + assistant({"type": "tool_use", "name": "Read", "input": {"file_path": "a.go"}})
        + assistant({"type": "tool_use", "name": "Bash", "input": {"command": "go test ./... \x07"}})
        + line(type="user", message={"content": [{"type": "text", "text": "interrupted"}]})
        + b"killed\n"
    )

    assert (
        "it said: Now the \N{REPLACEMENT CHARACTER}[1mtests.\n"
        "it called Bash: go test ./... \N{REPLACEMENT CHARACTER}\n"
        "killed"
    ) == last_words(CLAUDE, None, output)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([{"type": "text", "text": "x" * 2000}], "it said: " + "x" * 500),
        ([{"type": "tool_use", "name": "T" * 100}], "it called " + "T" * 64),
        ([{"type": "tool_use", "name": "A"}, {"type": "text", "text": "b"}], "it said: b"),
        ([{"type": "thinking", "thinking": "hm"}], ""),
    ],
)
def test_the_last_acts_are_bounded_and_in_order(parts: list[object], expected: str) -> None:
    """A tool that was called before the last text is over."""
    assert expected == last_words(CLAUDE, None, assistant(*parts))


def test_plain_words_are_harmless_and_keep_their_lines() -> None:
    """What a terminal would obey is replaced; a bar of progress is a line for each of its states."""
    assert "1%\n2%\n\N{REPLACEMENT CHARACTER}[31mno way\n" == plain_words("1%\r2%\r\n\x1b[31mno\tway\n")
    assert "" == plain_words("")
