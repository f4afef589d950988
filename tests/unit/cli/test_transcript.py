"""An agent's output in words: line by line, whatever comes."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from handoffd.cli.log import MOST_CHARS, Kind, Line, Transcript, read_line
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.format import StreamFormat

RULES = load_book(shipped_layer()).get("claude").stream


def line(**fields: object) -> str:
    """Return one line of a stream."""
    return json.dumps(fields)


def assistant(*content: object) -> str:
    """Return the line of a message of the agent."""
    return line(type="assistant", message={"content": list(content)})


def called(name: str, **arguments: object) -> str:
    """Return the line in which the agent calls a tool."""
    return assistant({"type": "tool_use", "name": name, "input": arguments})


def answered(content: object, **more: object) -> str:
    """Return the line in which a tool answers."""
    return line(type="user", message={"content": [{"type": "tool_result", "content": content, **more}]})


def said(text: str) -> str:
    """Return the line of a text by the agent."""
    return assistant({"type": "text", "text": text})


def lines(
    pieces: Iterable[bytes], rules: StreamFormat | None = RULES, *, whole_lines: bool = False
) -> list[Line]:
    """Return the lines of a whole output."""
    transcript = Transcript(rules, whole_lines=whole_lines)
    return [*(line for piece in pieces for line in transcript.feed(piece)), *transcript.end()]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (said("I run\n\n  the tests."), "said", "I run the tests."),
        (assistant({"type": "thinking", "thinking": "Tests first."}), "thought", "[thought] Tests first."),
        (assistant({"type": "thinking", "thinking": ""}), "thought", "[thought]"),
        (called("Bash", command="go\ntest"), "tool", "[tool] Bash: go test"),
        (called("TaskList"), "tool", "[tool] TaskList"),
        (answered("ok\nPASS"), "tool_result", "[tool result] ok PASS"),
        (answered("no", is_error=True), "tool_error", "[tool failed] no"),
        (line(type="user", message={"content": "Go on."}), "told", "[told] Go on."),
        (line(type="system", subtype="init", model="opus", cwd="/srv"), "session", "[session] opus, /srv"),
        (line(type="result", is_error=False, result="All done."), "result", "[result] All done."),
        (line(type="result", is_error=True, result="no credit"), "result", "[result] error: no credit"),
        (line(type="result", is_error=False), "result", "[result] no text"),
        (line(type="system", subtype="api_retry", error="overloaded"), "error", "[error] overloaded"),
        (
            line(type="result", is_error=False, result="Hm.", permission_denials=[{"tool_name": "Write"}]),
            "result",
            "[result] Hm.; it lacked permission to use Write",
        ),
    ],
)
def test_a_line_of_the_stream_is_one_line_of_words(text: str, kind: Kind, expected: str) -> None:
    """For each kind of message, and for the end."""
    assert Line(text=expected, kind=kind) == read_line(text, RULES)


def test_several_things_in_one_message_are_one_line() -> None:
    """Its kind is that of the first."""
    call = {"type": "tool_use", "name": "Read", "input": {"file_path": "a.go"}}

    found = read_line(assistant({"type": "text", "text": "Look:"}, call, call), RULES)
    assert Line(text="Look: | [tool] Read: a.go | [tool] Read: a.go", kind="said") == found


def test_the_result_has_what_the_run_used() -> None:
    """As far as it is there, under the keys of the executor's description."""
    usage = {
        "input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000,
        "output_tokens": 567, "server_tool_use": {"web_search_requests": 1},
    }  # fmt: skip
    whole = line(type="result", is_error=False, result="Done.", usage=usage, total_cost_usd=0.425)

    expected = "[result] Done. (3210 tokens in, 567 tokens out, $0.42)"
    assert expected == read_line(whole, RULES).text


@pytest.mark.parametrize("value", [True, -1, "x", [1], None, 10**20, float("nan"), {"a": 1}])
def test_values_that_are_not_numbers_are_left_out(value: object) -> None:
    """A stream is text from another program."""
    usage = {"input_tokens": value, "output_tokens": value}

    text = line(type="result", is_error=False, result="Done.", usage=usage, total_cost_usd=value)
    assert "[result] Done." == read_line(text, RULES).text
    assert (
        "[result] Done."
        == read_line(line(type="result", is_error=False, result="Done.", usage=value), RULES).text
    )


def test_unknown_lines_stay_as_they_are() -> None:
    """Objects of other kinds, broken ones, and plain text."""
    unknown = line(type="rate_limit_event", info={"a": 1})

    assert Line(text=unknown, kind="other") == read_line(unknown, RULES)
    for text in ('{"type": "assist', "warning: {}", "", "  indented", '["type"]', "{" * 50_000 + "}"):
        assert Line(text=text, kind="text") == read_line(text, RULES)


def test_without_a_described_stream_nothing_is_put_into_words() -> None:
    """A program that prints JSON of its own is left alone."""
    assert Line(text=said("x"), kind="text") == read_line(said("x"), None)


@pytest.mark.parametrize("rules", [RULES, None])
def test_control_characters_are_shown_everywhere(rules: StreamFormat | None) -> None:
    """In plain text, and hidden in the texts of the stream."""
    nasty = "\x1b]0;pwned\x07\x9b2J\u202e\ud800"
    several = [
        "\x1b[2Jclear\ttab",
        said(nasty),
        called(f"B{nasty}", command=nasty),
        line(type="system", subtype="init", model=nasty),
        line(type="result", is_error=True, result=nasty),
        line(type="?", text=nasty),
    ]

    for text in several:
        shown = read_line(text, rules).text
        assert all(sign.isprintable() or sign == "\t" for sign in shown)
    assert "\\x1b[2Jclear\ttab" == read_line(several[0], rules).text


def test_arguments_and_answers_of_tools_are_shortened() -> None:
    """The contents of a file would bury the agent's words."""
    for text in (called("Bash", command="x" * 5000), answered("y" * 5000)):
        assert len(read_line(text, RULES).text) < 400
    assert "z" * 5000 == read_line(said("z" * 5000), RULES).text


def test_lines_are_put_together_from_pieces() -> None:
    """A piece may end in a character; the rest at the end is a line without a line break."""
    output = f"plain é\r\n{said('請 go on')}\n\n{said('cut off')[:20]}".encode()
    expected = [
        Line(text="plain é", kind="text"),
        Line(text="請 go on", kind="said"),
        Line(text="", kind="text"),
        Line(text=said("cut off")[:20], kind="text", ended=False),
    ]

    for size in (1, 2, 7, len(output)):
        pieces = [output[start : start + size] for start in range(0, len(output), size)]
        assert expected == lines(pieces)


def test_plain_text_is_not_held_back() -> None:
    """A row of dots appears dot by dot; half a character or half a line break waits."""
    transcript = Transcript(None)
    given = [list(transcript.feed(piece)) for piece in (b"..", b".\xc3", b"\xa9\r", b"\n", b"")]

    shown = [[(line.text, line.ended) for line in some] for some in given]
    assert [[("..", False)], [(".", False)], [], [("é", True)], []] == shown
    assert [] == list(transcript.end())


def test_for_programs_lines_are_whole() -> None:
    """Of plain text as well."""
    assert [Line(text="....", kind="text")] == lines([b"..", b"..", b"\n"], None, whole_lines=True)


def test_at_most_a_part_of_one_line_is_held() -> None:
    """A line without an end comes in pieces; the next line is read as usual."""
    piece = b"x" * 65_536
    transcript = Transcript(RULES)
    count, longest = 0, 0
    for _ in range(3 * MOST_CHARS // len(piece)):
        for part in transcript.feed(piece):
            count, longest = count + len(part.text), max(longest, len(part.text))
            assert ("text", False) == (part.kind, part.ended)
    rest = [*transcript.feed(b"}\n" + said("again").encode() + b"\n"), *transcript.end()]

    assert longest <= MOST_CHARS + len(piece)
    assert 3 * MOST_CHARS == count + len(rest[0].text) - 1
    assert [("text", True), ("said", True)] == [(line.kind, line.ended) for line in rest]


def test_the_rest_of_a_cut_line_is_text() -> None:
    """Although it looks like a line of the stream."""
    output = b"x" * (MOST_CHARS + 1), said("I").encode() + b"\n"

    assert ["text", "text"] == [line.kind for line in lines(output)]


@settings(suppress_health_check=list(HealthCheck))
@given(output=st.lists(st.binary(max_size=80)), whole=st.booleans(), plain=st.booleans())
@example(output=[b"\r", b"", b"x"], whole=False, plain=True)
def test_no_output_is_fatal_and_nothing_is_lost(output: list[bytes], whole: bool, plain: bool) -> None:
    """The lines are the same in whatever pieces they come."""
    rules = None if plain else RULES

    def joined(pieces: Iterable[bytes]) -> str:
        return "".join(line.text + "\n" * line.ended for line in lines(pieces, rules, whole_lines=whole))

    assert joined([b"".join(output)]) == joined(output)


words = st.sampled_from(
    [
        "type",
        "subtype",
        "message",
        "content",
        "text",
        "tool_use",
        "name",
        "input",
        "result",
        "usage",
        "is_error",
    ]
) | st.text(max_size=5)
json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)
types = st.sampled_from(
    ["assistant", "user", "system", "result", "text", "tool_use", "tool_result", "thinking"]
)


@settings(suppress_health_check=list(HealthCheck))
@given(kind=types, inner=types, value=json_values, more=st.dictionaries(words, json_values, max_size=4))
def test_no_line_of_a_stream_is_fatal(kind: str, inner: str, value: object, more: dict[str, object]) -> None:
    """Whatever is in the place of an expected value."""
    block = {"type": inner, "text": value, "thinking": value, "name": value, "input": value, "content": value}
    for content in (value, [value], [block | more]):
        text = line(
            **{**more, "type": kind, "subtype": "init", "message": {"content": content}, "usage": value}
        )
        shown = read_line(text, RULES).text
        assert all(sign.isprintable() or sign == "\t" for sign in shown)
