"""An output, read as it comes."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handoffd.engine.run import Usage
from handoffd.execute.executor import Executor
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.format import StreamFormat
from handoffd.execute.stream.line import Part, StreamVerdict
from handoffd.execute.stream.reader import MAX_ERRORS, MAX_FILES, MOST_LINE_BYTES, Seen, StreamReader

BOOK = load_book(shipped_layer())
CLAUDE = BOOK.get("claude")
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
    """Return what an output tells that came in these pieces."""
    reader = StreamReader(executor)
    for piece in pieces:
        reader.feed(piece)
    reader.end()
    return reader.seen


def test_a_session_is_followed_from_line_to_line() -> None:
    """What is known is known as soon as its line has ended."""
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


def test_usage_is_live_and_then_what_the_agent_says_in_the_end() -> None:
    """A message of several lines counts once."""
    reader = StreamReader(CLAUDE)
    for name in ("m-1", "m-1", "m-2"):
        reader.feed(assistant(id=name, usage={"input_tokens": 100, "output_tokens": 1}))
    assert Usage(input_tokens=200, output_tokens=2) == reader.seen.usage

    reader.feed(line(type="result", is_error=False, usage={"input_tokens": 200, "output_tokens": 70}))
    assert Usage(input_tokens=200, output_tokens=70) == reader.seen.usage


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

    found = seen(output)
    assert found.result is not None
    assert False is found.result.is_error
    assert (8, 4) == (found.lines, found.malformed)


def test_a_result_without_a_message_has_what_was_said_last() -> None:
    """Some agents end with nothing but their tokens."""
    found = seen(said("All\ndone."), line(type="result", is_error=False)).result

    assert StreamVerdict(is_error=False, said="All done.") == found


def test_errors_are_kept_and_a_limit_is_told_apart() -> None:
    """With the time at which it is over, where the stream has it as a number."""
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


def test_what_the_agent_says_about_limits_is_no_limit() -> None:
    """It may be writing a program that has one."""
    assert None is seen(said("You've hit your usage limit, resets 5pm (UTC)")).limit


def test_plain_text_is_counted_and_its_last_line_is_what_it_does() -> None:
    """An object in it is a line like others; blank lines are none."""
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
    """What follows it is read again."""
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
def test_an_output_that_does_not_say_has_no_result(output: bytes) -> None:
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


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(stream_lines, max_size=8),
    st.lists(st.integers(0, 60), max_size=30),
    st.sampled_from(["claude", "codex", "gemini", "opencode", "aider"]),
)
def test_pieces_make_no_difference_and_no_line_is_fatal(
    lines: list[bytes], sizes: list[int], name: str
) -> None:
    """Whatever stands where something else is expected, in whatever pieces it comes."""
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


def test_what_is_not_kept_of_an_output_is_what_tells_an_answer_by_word() -> None:
    """As claude prints it, without a blank."""
    kept = b'{"type":"assistant","message":{}}', b'{"type":"system","subtype":"init"}'
    partial = tuple(beginning.encode() for beginning in (CLAUDE.stream or StreamFormat()).partial)

    assert b'{"type":"stream_event","event":{"type":"ping"}}'.startswith(partial)
    assert not any(one.startswith(partial) for one in kept)
