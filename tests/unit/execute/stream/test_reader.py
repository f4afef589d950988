"""An output, read as it comes: lines, usage, and its last words for people."""

from __future__ import annotations

import json
import sys
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from handoffd.engine.run import Usage
from handoffd.execute.executor import Executor
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.format import StreamFormat
from handoffd.execute.stream.line import Part, Stated, StreamVerdict
from handoffd.execute.stream.reader import (
    MAX_ERRORS,
    MAX_FILES,
    MOST_LINE_BYTES,
    OPEN_KEYS,
    LineSplitter,
    Seen,
    StreamReader,
    Tally,
    last_words,
    plain_words,
)

BOOK = load_book(shipped_layer())
CLAUDE = BOOK.get("claude")
RULES = CLAUDE.stream or StreamFormat()
PLAIN = Executor(name="plain", argv=("plain",))


def line(**fields: object) -> bytes:
    """Return one line of a stream."""
    return json.dumps(fields).encode() + b"\n"


def assistant(*content: object, **more: object) -> bytes:
    """Return the line of a message of the agent."""
    return line(type="assistant", message={"content": list(content), **more}, session_id="s-1")


def said(text: str) -> bytes:
    """Return the line in which the agent says a text."""
    return assistant({"type": "text", "text": text})


def called(name: str, **arguments: object) -> bytes:
    """Return the line in which the agent calls a tool."""
    return assistant({"type": "tool_use", "name": name, "input": arguments})


def seen(*pieces: bytes, executor: Executor = CLAUDE) -> Seen:
    """Return the reading of an output that came in these pieces."""
    reader = StreamReader(executor)
    for piece in pieces:
        reader.feed(piece)
    reader.end()
    return reader.seen


def test_a_session_is_followed_from_line_to_line() -> None:
    """Each fact is known as soon as its line has ended."""
    reader = StreamReader(CLAUDE)
    assert Seen() == reader.seen

    reader.feed(line(type="system", subtype="init", session_id="s-1", model="opus"))
    assert ("s-1", "opus", None) == (reader.seen.session, reader.seen.model, reader.seen.activity)

    assert () == reader.feed(said("I\nbegin.")[:-1])
    assert (Part(kind="said", text="I\nbegin."),) == reader.feed(b"\n")
    assert "says I begin." == reader.seen.activity

    reader.feed(called("Write", file_path="/srv/a.py", content="x"))
    assert ("calls Write: /srv/a.py", 1, ("/srv/a.py",)) == (
        reader.seen.activity, reader.seen.tools, reader.seen.files,
    )  # fmt: skip

    reader.feed(line(type="result", is_error=False, result="Done.", total_cost_usd=0.5))
    assert StreamVerdict(is_error=False, said="Done.") == reader.seen.result
    assert (0.5, 4, 0) == (reader.seen.usage.cost_usd, reader.seen.lines, reader.seen.malformed)


def test_usage_is_live_and_in_the_end_the_agents_own_sum() -> None:
    """A message of several lines counts once."""
    reader = StreamReader(CLAUDE)
    for name in ("m-1", "m-1", "m-2"):
        reader.feed(assistant(id=name, usage={"input_tokens": 100, "output_tokens": 1}))
    assert Usage(input_tokens=200, output_tokens=2) == reader.seen.usage

    reader.feed(line(type="result", is_error=False, usage={"input_tokens": 200, "output_tokens": 70}))
    assert Usage(input_tokens=200, output_tokens=70) == reader.seen.usage


def test_the_last_result_counts_whatever_surrounds_it() -> None:
    """Tools write into the stream, lines are cut, and text is not a result."""
    found = seen(
        b'"}}garbage\n',
        line(type="result", is_error=True, result="first"),
        line(type="user", is_error=True),
        line(type="result", is_error=False),
        b'{"type":"result","is_error":tr\n\xff\xfe{}\n',
        b"[" * 100_001 + b"\n",
        line(type=["result"]),
    )

    assert found.result is not None
    assert False is found.result.is_error
    assert (8, 4) == (found.lines, found.malformed)


def test_a_result_without_a_message_has_the_agents_last_text() -> None:
    """Some agents end with only their tokens."""
    found = seen(said("All\ndone."), line(type="result", is_error=False)).result

    assert StreamVerdict(is_error=False, said="All done.") == found


def test_errors_are_kept_and_a_limit_is_recognised() -> None:
    """With the time at which it ends, where the stream has it as a number."""
    info = {"status": "rejected", "resetsAt": 1893456000}
    text = "You've hit your session limit · resets 5:46am (UTC)"
    found = seen(
        line(type="system", subtype="api_retry", error="overloaded"),
        line(type="rate_limit_event", rate_limit_info=info),
        line(type="result", is_error=True, result=text),
    )

    assert (text, 1893456000) == (found.limit, found.resets_at)
    assert ("overloaded", text) == found.errors


def test_an_agent_that_goes_on_has_met_no_limit() -> None:
    """It waited by itself; the error is remembered, the limit is not."""
    info = {"status": "rejected", "resetsAt": 1893456000}
    met = [
        line(type="system", subtype="api_retry", error="rate_limit"),
        line(type="rate_limit_event", rate_limit_info=info),
    ]
    assert "rate_limit" == seen(*met).limit

    for sign in (said("Go on."), called("Bash"), line(type="result", is_error=False)):
        found = seen(*met, sign)
        assert (None, None, ("rate_limit",)) == (found.limit, found.resets_at, found.errors)


def test_the_agents_words_about_limits_are_not_a_limit() -> None:
    """It may be writing a program that has one."""
    assert None is seen(said("You've hit your usage limit, resets 5pm (UTC)")).limit


def test_plain_text_is_counted_and_its_last_line_is_the_activity() -> None:
    """An object in it is a line like others; blank lines do not count."""
    found = seen(b"one\n\n \n\x1b[1mtwo\n", line(type="result"), executor=PLAIN)

    assert (3, 0, None) == (found.lines, found.malformed, found.result)
    assert "\N{REPLACEMENT CHARACTER}[1mtwo" == seen(b"one\n\x1b[1mtwo\n\n", executor=PLAIN).activity


def test_everything_is_bounded() -> None:
    """However long the stream is, and each of its texts."""
    reader = StreamReader(CLAUDE)
    for number in range(100):
        reader.feed(called("Write" + "\x1b" * 5000, file_path="p" * 5000))
        reader.feed(called("Edit", file_path=f"{number}.py"))
        reader.feed(line(type="system", subtype="api_retry", error=f"{number}" * 5000))
    found = reader.seen

    assert (MAX_FILES, MAX_ERRORS, 200) == (len(found.files), len(found.errors), found.tools)
    assert tuple(f"{number}.py" for number in range(80, 100)) == found.files
    assert {500} == {len(error) for error in found.errors}
    reader.feed(said("x" * 100_000))
    assert 200 == len(reader.seen.activity or "")


def test_memory_does_not_grow_with_the_stream() -> None:
    """Sixteen times as much of it takes no more."""
    piece = said("x" * 1000) * 20 + assistant({"type": "tool_result", "content": "line\n" * 20_000}) * 10
    reader = StreamReader(CLAUDE)
    tracemalloc.start()
    try:
        reader.feed(piece)
        tracemalloc.reset_peak()
        reader.feed(piece)
        once = tracemalloc.get_traced_memory()[1]
        for _ in range(16):
            reader.feed(piece)
        assert tracemalloc.get_traced_memory()[1] <= once + len(piece)
    finally:
        tracemalloc.stop()


def test_a_line_without_end_is_dropped_and_counted() -> None:
    """The next line is read again."""
    reader = StreamReader(CLAUDE)
    for _ in range(40):
        reader.feed(b'{"type": "' + b"x" * (MOST_LINE_BYTES // 10))
    assert (0, 0) == (reader.seen.lines, reader.seen.malformed)

    reader.feed(b'"}\n' + said("again"))
    assert (2, 1, "says again") == (reader.seen.lines, reader.seen.malformed, reader.seen.activity)
    assert 1 == seen(b"x" * (MOST_LINE_BYTES + 1), executor=PLAIN).malformed


def test_a_gap_costs_the_lines_that_it_tears_and_no_more() -> None:
    """The end of a torn line is not malformed; a whole line after the gap is read."""
    reader = StreamReader(CLAUDE)
    reader.feed(said("one") + b'{"type": "assi')
    reader.feed(b'ing"}]}}\n' + said("two"), left_out=1000)
    assert ("says two", 2, 0) == (reader.seen.activity, reader.seen.lines, reader.seen.malformed)
    assert 1000 + len(b'{"type": "assi') + len(b'ing"}]}}') == reader.seen.left_out

    reader.feed(said("three"), left_out=5)
    assert ("says three", 3) == (reader.seen.activity, reader.seen.lines)


@pytest.mark.parametrize("output", [b"", b"\n", b"hello\n", b'{"type":"result"'])
def test_an_output_without_a_result_line_has_no_result(output: bytes) -> None:
    """Unknown is neither success nor failure."""
    assert None is seen(output).result


words = st.sampled_from(["type", "subtype", "message", "content", "text", "name", "input", "usage", "id"])
json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=10,
)
stream_lines = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            said("請 é"),
            called("Edit", file_path="a.py"),
            line(type="result", is_error=True, result="limit reached|1893456000"),
            line(type="result", is_error=False, result="x"),
            assistant(id="m", usage={"input_tokens": 3, "output_tokens": -1}),
            b"\xff\xfe\n",
            b"\n",
        ]
    ),
    st.builds(
        lambda kind, value, more: line(**{**more, "type": kind, "message": {"content": value}}),
        st.sampled_from(["assistant", "user", "system", "result"]),
        json_values,
        st.dictionaries(words, json_values, max_size=3),
    ),
)


@settings(suppress_health_check=list(HealthCheck))
@given(
    st.lists(stream_lines, max_size=8),
    st.lists(st.integers(0, 60), max_size=30),
    st.sampled_from(["claude", "codex", "gemini", "opencode", "aider"]),
)
def test_pieces_make_no_difference_and_no_line_is_fatal(
    lines: list[bytes], sizes: list[int], name: str
) -> None:
    """Whatever is where something else is expected, in whatever pieces it comes."""
    output, pieces = b"".join(lines), []
    rest = output
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]

    whole = seen(output, executor=BOOK.get(name))
    assert whole == seen(*pieces, rest, executor=BOOK.get(name))
    texts = (whole.session, whole.model, whole.activity, whole.limit, *whole.files, *whole.errors)
    assert all(text.isprintable() for text in texts if text is not None)
    assert min(whole.usage.input_tokens, whole.usage.output_tokens, whole.usage.cost_usd or 0) >= 0


def test_words_of_an_answer_in_between_change_nothing() -> None:
    """A shim of an older release keeps them: they are passed over, and tokens are counted once."""
    message = {"id": "m-1", "usage": {"input_tokens": 7, "output_tokens": 5}}
    begun = line(type="stream_event", event={"type": "message_start", "message": message}, session_id="s-1")
    word = line(type="stream_event", event={"type": "content_block_delta", "delta": {"text": "Hel"}})
    whole = assistant({"type": "text", "text": "Hello"}, **message)
    result = line(
        type="result", is_error=False, result="Hello", usage={"input_tokens": 7, "output_tokens": 5}
    )

    assert seen(whole, result) == replace(seen(begun, *[word] * 5000, whole, result), lines=2)


def test_only_lines_with_single_words_of_an_answer_are_not_kept() -> None:
    """As claude prints them, without a blank."""
    kept = b'{"type":"assistant","message":{}}', b'{"type":"system","subtype":"init"}'
    partial = tuple(beginning.encode() for beginning in RULES.partial)

    assert b'{"type":"stream_event","event":{"type":"ping"}}'.startswith(partial)
    assert not any(one.startswith(partial) for one in kept)


# --- bytes into lines ---------------------------------------------------------------------------------
def test_lines_come_when_they_end() -> None:
    """The last one with the end of the output."""
    lines = LineSplitter()

    assert [b"ab", b""] == [*lines.feed(b"a"), *lines.feed(b"b\n\nc")]
    assert 1 == lines.held
    assert b"c" == lines.end()
    assert b"" == lines.end()


def test_a_line_that_is_too_long_is_dropped_as_it_comes() -> None:
    """And the next line is read again."""
    lines = LineSplitter(most=10)

    assert [] == [line for _ in range(1000) for line in lines.feed(b"x" * 7)]
    assert [None, b"y" * 10, None] == list(lines.feed(b"x\n" + b"y" * 10 + b"\n" + b"z" * 11 + b"\n"))
    assert b"" == lines.end()


@given(st.lists(st.sampled_from([b"a", b"\n", b"bcd", b"\xff\n\n", b"e" * 9])))
def test_pieces_of_lines_make_no_difference(pieces: list[bytes]) -> None:
    """Wherever they end."""
    whole, parts = LineSplitter(most=5), LineSplitter(most=5)

    assert [*whole.feed(b"".join(pieces)), whole.end()] == [
        *(line for piece in pieces for line in parts.feed(piece)),
        parts.end(),
    ]


# --- adding up usage ----------------------------------------------------------------------------------
def more(tokens: int, key: str | None = None) -> Stated:
    """Return a line with more tokens."""
    return Stated(mode="add", usage=Usage(input_tokens=tokens), key=key)


def test_a_total_replaces_the_sum() -> None:
    """Later lines are added to it."""
    tally = Tally()
    tally.take(more(5))
    tally.take(more(7))
    assert 12 == tally.usage.input_tokens

    tally.take(Stated(mode="total", usage=Usage(input_tokens=11, cost_usd=0.5, priced="provider")))
    tally.take(more(1))
    assert Usage(input_tokens=12, cost_usd=0.5, priced="provider") == tally.usage


def test_lines_of_one_message_are_counted_once() -> None:
    """The last one; also when messages of several agents are mixed."""
    tally = Tally()
    for stated in (more(1, "a"), more(10, "b"), more(3, "a"), more(20, "b")):
        tally.take(stated)

    assert 23 == tally.usage.input_tokens


def test_messages_without_end_take_no_memory() -> None:
    """The oldest are settled, and still counted."""
    tally = Tally()
    for number in range(10 * OPEN_KEYS):
        tally.take(more(1, f"m-{number}"))

    assert 10 * OPEN_KEYS == tally.usage.input_tokens
    assert sys.getsizeof(tally._open) < 10_000


def test_the_usage_of_earlier_runs_of_a_session_is_not_counted_again() -> None:
    """Where the agent's own numbers are of the whole session; never below zero."""
    before = Usage(input_tokens=100, output_tokens=50, cost_usd=1.0)
    tally = Tally(before)

    session = Usage(input_tokens=130, output_tokens=40, cost_usd=1.5, priced="provider")
    tally.take(Stated(mode="total", usage=session, counts="session"))
    assert Usage(input_tokens=30, cost_usd=0.5, priced="provider") == tally.usage

    tally.take(Stated(mode="total", usage=session, counts="run"))
    assert session == tally.usage


# --- last words ---------------------------------------------------------------------------------------
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
    """They become last_error and part of the next prompt, where JSON would not help."""
    assert expected == last_words(RULES, verdict, assistant({"type": "text", "text": "x"}))


@pytest.mark.parametrize("verdict", [None, StreamVerdict()])
def test_without_a_result_the_last_words_are_plain_lines(verdict: StreamVerdict | None) -> None:
    """A program that gives up early prints the reason on standard error."""
    output = b'ut off"}\n' + line(type="system") + b"no such \x1boption\n\n  try --help\n" + b'{"type":"assi'

    assert "no such \N{REPLACEMENT CHARACTER}option\ntry --help" == last_words(RULES, verdict, output)
    assert "" == last_words(RULES, verdict, line(type="system"))


def test_without_a_result_the_last_words_are_the_last_acts() -> None:
    """An agent was ended in the middle: its work at that moment explains most."""
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
    ) == last_words(RULES, None, output)


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
    assert expected == last_words(RULES, None, assistant(*parts))


def test_plain_words_are_harmless_and_keep_their_lines() -> None:
    """Control characters are replaced; a progress bar is a line for each of its states."""
    assert "1%\n2%\n\N{REPLACEMENT CHARACTER}[31mno way\n" == plain_words("1%\r2%\r\n\x1b[31mno\tway\n")
    assert "" == plain_words("")
