"""What an agent's stream says about itself."""

from __future__ import annotations

import json

import pytest

from handoffd.execute.executor import Executor, ResultLine
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream import StreamVerdict, last_words, plain_words, stream_verdict, verdict_in

AGENT = Executor(
    name="agent",
    argv=("agent",),
    output="stream-json",
    result=ResultLine(
        errors="errors", denials="permission_denials", session="session_id", cost="total_cost_usd"
    ),
)


def line(**fields: object) -> bytes:
    """Return one line of a stream."""
    return json.dumps(fields).encode() + b"\n"


def test_the_error_flag_counts_and_not_the_subtype() -> None:
    """A failed request calls itself a success."""
    output = line(type="system", subtype="init") + line(
        type="result",
        subtype="success",
        is_error=True,
        result="API Error: 401\n  invalid key",
        session_id="s-1",
        total_cost_usd=0.25,
    )

    assert StreamVerdict(
        is_error=True, error="API Error: 401 invalid key", session_id="s-1", cost=0.25
    ) == stream_verdict(AGENT, output)


def test_a_success_has_no_error_text() -> None:
    """What the agent said at the end is not an error."""
    output = line(type="result", is_error=False, result="All\ndone.")

    assert StreamVerdict(is_error=False, said="All done.") == stream_verdict(AGENT, output)


def test_the_last_result_counts_whatever_surrounds_it() -> None:
    """Tools write into the stream, lines are cut, and words are not results."""
    output = (
        b'"}}garbage\n'
        + line(type="result", is_error=True, result="first")
        + line(type="user", is_error=True)
        + line(type="result", is_error=False)
        + b'{"type":"result","is_error":tr\n\xff\xfe{}\n'
        + b"["
        + b"[" * 100_000
        + b"\n"
        + line(type=["result"])
    )

    assert False is stream_verdict(AGENT, output).is_error


@pytest.mark.parametrize("output", [b"", b"hello\n", b'{"type":"result"', b'{"type":"result"}\n'])
def test_a_stream_that_does_not_say_is_unknown(output: bytes) -> None:
    """Unknown is neither success nor failure."""
    assert StreamVerdict() == stream_verdict(AGENT, output)


def test_fields_of_the_wrong_kind_are_left_out() -> None:
    """A stream is text that others wrote."""
    output = line(type="result", is_error="yes", result=["x"], session_id=7, total_cost_usd=float("nan"))

    assert StreamVerdict() == stream_verdict(AGENT, output)
    assert "an error without a text" == (
        stream_verdict(AGENT, line(type="result", is_error=True, result=None)).error
    )


def test_an_error_is_one_bounded_line() -> None:
    """It becomes part of a state file and of a notice."""
    error = stream_verdict(AGENT, line(type="result", is_error=True, result="x\x1b " * 1000)).error

    assert error is not None
    assert 500 == len(error)
    assert error.isprintable()


def test_an_error_without_a_last_message_is_in_the_list_of_errors() -> None:
    """A session that was broken off has no last message."""
    output = line(type="result", is_error=True, errors=["aborted", 7, "by a signal"])

    assert "aborted by a signal" == stream_verdict(AGENT, output).error


def test_denied_tools_are_named_once() -> None:
    """Nobody was there to permit them; the agent calls the run a success all the same."""
    denials = [{"tool_name": "WebFetch"}, {"tool_name": "Write"}, {"tool_name": "WebFetch"}, {}, "x"]
    output = line(type="result", is_error=False, permission_denials=denials)

    assert ("WebFetch", "Write") == stream_verdict(AGENT, output).denied


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"is_error": True, "result": "Credit balance is too low"}, "it reported: Credit balance is too low"),
        ({"is_error": False, "result": "Nothing to do."}, "it said: Nothing to do."),
        (
            {
                "is_error": False,
                "result": "Please permit it.",
                "permission_denials": [{"tool_name": "Write"}],
            },
            "it said: Please permit it.\nit was not permitted to use Write",
        ),
    ],
)
def test_the_last_words_are_for_people(fields: dict[str, object], expected: str) -> None:
    """They become last_error and part of the next prompt, where JSON would explain nothing."""
    output = line(type="assistant", message={}) + line(type="result", **fields)

    assert expected == last_words(stream_verdict(AGENT, output), output)


def test_without_a_result_the_last_words_are_what_is_no_json() -> None:
    """A program that gives up early says why on standard error."""
    output = b'ut off"}\n' + line(type="system") + b"no such \x1boption\n\n  try --help\n" + b'{"type":"assi'

    assert "no such \N{REPLACEMENT CHARACTER}option\ntry --help" == last_words(StreamVerdict(), output)
    assert "" == last_words(StreamVerdict(), line(type="system"))


def assistant(*content: object) -> bytes:
    """Return the line of a message of the agent."""
    return line(type="assistant", message={"role": "assistant", "content": list(content)})


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
    ) == last_words(StreamVerdict(), output)


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
    assert expected == last_words(StreamVerdict(), assistant(*parts))


def test_plain_words_are_harmless_and_keep_their_lines() -> None:
    """What a terminal would obey is replaced; a bar of progress is a line for each of its states."""
    assert "1%\n2%\n\N{REPLACEMENT CHARACTER}[31mno way\n" == plain_words("1%\r2%\r\n\x1b[31mno\tway\n")
    assert "" == plain_words("")


def test_a_result_line_is_told_from_others() -> None:
    """By the type that the executor's own description gives it."""
    keys = ResultLine(type="end")

    assert None is verdict_in({"type": "result", "is_error": True}, keys)
    assert StreamVerdict(is_error=False) == verdict_in({"type": "end", "is_error": False}, keys)


def test_claude_is_understood() -> None:
    """The keys that ship are those of its result line."""
    claude = load_book(shipped_layer()).get("claude")
    output = line(
        type="result",
        subtype="success",
        is_error=False,
        api_error_status=None,
        num_turns=2,
        result="I need your permission.",
        session_id="s-1",
        total_cost_usd=0.001,
        permission_denials=[{"tool_name": "Write", "tool_use_id": "t-1", "tool_input": {}}],
    )

    assert StreamVerdict(
        is_error=False, said="I need your permission.", denied=("Write",), session_id="s-1", cost=0.001
    ) == stream_verdict(claude, output)


def test_plain_text_says_nothing() -> None:
    """Without a described stream there is no verdict."""
    plain = Executor(name="plain", argv=("plain",))

    assert StreamVerdict() == stream_verdict(plain, line(type="result", is_error=True))
