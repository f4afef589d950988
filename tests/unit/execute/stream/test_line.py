"""An agent's words and acts, line by line, by the rules for claude's stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.engine.run import Usage
from handoffd.execute.registry import load_book, shipped_layer
from handoffd.execute.stream.format import ResultRule, StreamFormat
from handoffd.execute.stream.line import (
    MOST,
    LineReading,
    Part,
    Stated,
    StreamVerdict,
    argument_at,
    decoded,
    find,
    first,
    fits,
    number_at,
    one_line,
    read_line,
    text_at,
    texts_at,
    verdict_of,
)

CLAUDE = load_book(shipped_layer()).get("claude").stream or StreamFormat()


def rules(**line: Any) -> StreamFormat:
    """Return the rules of a stream with one kind of line."""
    return StreamFormat.model_validate({"lines": [line]})


def reading(data: object, stream: StreamFormat = CLAUDE) -> LineReading:
    """Return the reading of an object's line."""
    found = read_line(json.dumps(data), stream)
    assert found is not None
    return found


def said_by(who: str, content: object) -> dict[str, object]:
    """Return the object of a message."""
    return {"type": who, "message": {"content": content}}


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
    ) == parts_of(said_by("assistant", content))


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
def test_the_answer_of_a_tool_is_a_text(content: object, expected: Part) -> None:
    """Whether it came as one or in parts."""
    block = {"type": "tool_result", "tool_use_id": "t1", "content": content}

    assert (expected,) == parts_of(said_by("user", [block]))


def test_a_tool_that_failed_is_marked() -> None:
    """Only by its own flag."""
    blocks = [{"type": "tool_result", "content": "no", "is_error": flag} for flag in (True, "true", False, 1)]

    kinds = [part.kind for part in parts_of(said_by("user", blocks))]
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
def test_a_call_shows_its_main_argument(given: object, expected: str) -> None:
    """Or all arguments, if none has a known name."""
    block = {"type": "tool_use", "name": "Any", "input": given}

    assert (Part(kind="tool", text=expected, tool="Any"),) == parts_of(said_by("assistant", [block]))


def test_the_files_of_tools_that_write_are_known() -> None:
    """Not of tools that read."""
    calls = [{"name": name, "input": {"file_path": f"{name}.py"}} for name in ("Read", "Edit")]
    blocks = [{"type": "tool_use", **call} for call in calls]

    assert ("Edit.py",) == reading(said_by("assistant", blocks)).files


def test_secret_thoughts_have_no_words() -> None:
    """Their encrypted content is for the agent's maker."""
    secret = [
        {"type": "thinking", "thinking": "", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
    ]

    assert (Part(kind="thought", text=""),) * 2 == parts_of(said_by("assistant", secret))


def test_a_message_may_be_a_text_by_itself() -> None:
    """Of the agent, or to it."""
    assert (Part(kind="told", text="Go on."),) == parts_of(said_by("user", "Go on."))
    assert (Part(kind="said", text="Yes."),) == parts_of(said_by("assistant", "Yes."))


def test_the_beginning_names_model_folder_and_session() -> None:
    """As far as the line has them."""
    begun = {"type": "system", "subtype": "init", "model": "opus", "cwd": 7, "session_id": "s-1"}

    assert (Part(kind="session", text="opus, s-1"),) == parts_of(begun)


ODD: list[object] = [7, None, {}, {"type": {}}, {"type": "text", "text": 7}, {"type": "text", "text": " "}]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"type": ["assistant"]},
        {"type": "system", "subtype": "other"},
        {"type": "assistant"},
        {"type": "assistant", "message": "text"},
        said_by("assistant", {"type": "text"}),
        said_by("assistant", ODD),
        said_by("assistant", [{"type": "tool_use", "name": ["Bash"]}]),
    ],
)
def test_unknown_content_has_no_parts(data: dict[str, object]) -> None:
    """Streams change, and other programs write into them."""
    assert () == parts_of(data)


@pytest.mark.parametrize(
    "line",
    ["", "{", "}", "[]", "{]}", '"{}"', "{} {}", '{"a": tru}', "{" * 100_000 + "}", '{"a":' * 100_000 + "}",
     '{"a": ' + "9" * 10_000 + "}", b"{\xff}"],
)  # fmt: skip
def test_only_a_whole_object_is_one(line: str | bytes) -> None:
    """Any other line is not a fault."""
    assert None is decoded(line)
    assert None is read_line(line, CLAUDE)


def test_an_object_is_read_from_text_and_bytes() -> None:
    """With blanks around it."""
    assert {"é": 1} == decoded(' {"é": 1}\r') == decoded(json.dumps({"é": 1}).encode() + b"\n")


def test_the_first_rule_that_fits_counts() -> None:
    """And a line that fits none is not known."""
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
    """The paths name its groups; an object is never taken for a plain line."""
    stream = rules(match=r"^used (?P<sent>\S+), \$(?P<cost>\S+)", usage={"input": "sent", "cost": "cost"})

    found = read_line(b"used 2.3k, $0.25 \xff", stream)
    assert found is not None
    expected = Usage(input_tokens=2300, cost_usd=0.25, priced="provider")
    assert Stated(mode="total", usage=expected) == found.usage
    assert None is read_line("used up", stream)
    assert not reading({"used": 1}, stream).known


def test_only_the_beginning_of_a_plain_line_is_searched() -> None:
    """An expression may take quadratic time."""
    stream = rules(match="asked: (?P<error>.*)refused", error="error")

    assert None is read_line(b"asked: " * 100_000, stream)
    assert read_line("asked: x refused" + "y" * 100_000, stream) is not None


def test_tokens_of_a_cache_are_counted_once() -> None:
    """Some providers count them as input, too."""
    keys = {"input": "in", "cache_read": "read", "cache_write": "wrote", "input_includes_cache": True}
    stream = rules(when={}, usage={**keys, "mode": "add", "per": "id"})

    found = reading({"in": 100, "read": 60, "wrote": 10, "id": "m-1"}, stream).usage
    usage = Usage(input_tokens=30, cache_read_tokens=60, cache_write_tokens=10)
    assert Stated(mode="add", usage=usage, key="m-1") == found
    less = reading({"in": 1, "read": 60}, stream).usage
    assert less is not None
    assert (0, 60) == (less.usage.input_tokens, less.usage.cache_read_tokens)


@pytest.mark.parametrize("value", [True, -1, [1], {"a": 1}, "x", "", None, 10**400, float("nan")])
def test_other_values_are_not_usage(value: object) -> None:
    """Negative tokens, a boolean, a number with 400 digits."""
    stream = rules(when={}, usage={"input": "in", "cost": "cost"}, resets="at")

    found = reading({"in": value, "cost": value, "at": value}, stream)
    assert (None, None) == (found.usage, found.resets_at)


def test_an_error_and_the_end_of_a_limit_are_read() -> None:
    """Words, and seconds since 1970."""
    stream = rules(when={"type": "limit"}, error=["why", "error.message"], resets="at")

    found = reading({"type": "limit", "error": {"message": "enough"}, "at": 1893456000}, stream)
    assert ("enough", 1893456000) == (found.error, found.resets_at)


# --- a result line -------------------------------------------------------------------------------------
RESULT = ResultRule(
    is_error="is_error",
    text=("result",),
    error=("result", "errors.*"),
    denied=("permission_denials.*.tool_name",),
)


def test_the_error_flag_counts_and_not_the_subtype() -> None:
    """A failed request calls itself a success; the last words of a success are not an error."""
    failed = {"subtype": "success", "is_error": True, "result": "API Error: 401\n  invalid key"}
    assert StreamVerdict(is_error=True, error="API Error: 401 invalid key") == verdict_of(failed, RESULT)

    line = {"is_error": False, "result": "All\ndone."}
    assert StreamVerdict(is_error=False, said="All done.") == verdict_of(line, RESULT)


def test_a_line_may_be_the_answer_itself() -> None:
    """Where failures have lines of another kind."""
    assert StreamVerdict(is_error=False) == verdict_of({}, ResultRule(is_error=False))
    failed = ResultRule(is_error=True, error=("error.message",))
    assert StreamVerdict(is_error=True, error="x") == verdict_of({"error": {"message": "x"}}, failed)


@pytest.mark.parametrize("flag", ["yes", 1, None, [True]])
def test_another_value_than_a_flag_leaves_it_unknown(flag: object) -> None:
    """Unknown is neither success nor failure."""
    assert StreamVerdict() == verdict_of({"is_error": flag, "result": "x"}, RESULT)


def test_an_error_without_a_last_message_is_in_the_list_of_errors() -> None:
    """A session that was broken off has no last message."""
    line = {"is_error": True, "result": None, "errors": ["aborted", 7, "by a signal"]}

    assert "aborted by a signal" == verdict_of(line, RESULT).error
    assert "an error without a text" == verdict_of({"is_error": True}, RESULT).error


def test_denied_tools_are_named_once() -> None:
    """No person was there to permit them; the agent calls the run a success all the same."""
    denials = [{"tool_name": "WebFetch"}, {"tool_name": "Write"}, {"tool_name": "WebFetch"}, {}, "x"]

    line = {"is_error": False, "permission_denials": denials}
    assert ("WebFetch", "Write") == verdict_of(line, RESULT).denied
    many = {"permission_denials": [{"tool_name": f"{number}" * 100} for number in range(100)]}
    assert (10, 64) == (len(verdict_of(many, RESULT).denied), len(verdict_of(many, RESULT).denied[0]))


def test_a_text_becomes_one_bounded_printable_line() -> None:
    """It becomes part of a state file and of a notice."""
    line = one_line("x\x1b " * 1_000_000)

    assert line is not None
    assert 500 == len(line)
    assert line.isprintable()
    assert None is one_line(" \n ")


# --- paths into data from strangers ----------------------------------------------------------------------
DATA = {"a": {"b": [{"c": "x"}, {"c": "y"}, {}]}, "n": 3, "t": True, "list": ["p", 7]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("n", [3]),
        ("a.b.0.c", ["x"]),
        ("a.b.*.c", ["x", "y"]),
        ("a.*.1", [{"c": "y"}]),
        (".", [DATA]),
        ("a.b.9", []),
        ("a.b.-1", []),
        ("n.x", []),
        ("*.b", [DATA["a"]["b"]]),  # type: ignore[index]
        ("a..b", []),
    ],
)
def test_a_path_leads_through_mappings_and_lists(path: str, expected: list[object]) -> None:
    """Or nowhere."""
    assert expected == list(find(DATA, path))
    assert (expected or [None])[0] == first(DATA, path)


def test_conditions_ask_for_value_and_type() -> None:
    """One is not true."""
    assert fits(DATA, {"n": (1, 3), "t": (True,)})
    assert fits(DATA, {})
    assert not fits(DATA, {"t": (1,)})
    assert not fits(DATA, {"n": (3,), "missing": ("x",)})


def test_texts_are_the_first_or_all() -> None:
    """Parts of one text are joined; other values are passed over."""
    assert "x\ny" == text_at(DATA, ("missing", "n", "a.b.*.c", "list.0"))
    assert ("p", "x", "y") == texts_at(DATA, ("list.*", "a.b.*.c"))
    assert "" == text_at(DATA, ())


def test_an_argument_of_another_type_is_json() -> None:
    """Unless it is empty."""
    assert '[{"c": "x"}, {"c": "y"}, {}]' == argument_at(DATA, ("n", "a.b.2", "a.b"))
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert "" == argument_at({"deep": deep}, ("deep",))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3), (2.5, 2.5), ("2.3k", 2300), ("1,234", 1234), ("1.5M", 1_500_000), ("12", 12), (0, 0),
     ("k", None), ("1e5", None), (True, None), (-1, None), (MOST, None), (float("inf"), None), (None, None),
     ("\u0663", None), ("9" * 5000, None)],
)  # fmt: skip
def test_numbers_are_read_also_as_people_write_them(value: object, expected: float | None) -> None:
    """Anything else is None."""
    assert expected == number_at({"x": value}, ("x",))


def test_numbers_are_summed() -> None:
    """Over all paths, up to a bound."""
    assert 5 == number_at({"a": 2, "b": 3}, ("a", "b", "c"))
    assert MOST == number_at({"all": [MOST - 1] * 5}, ("all.*",))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab*.01", max_size=2), inner),
    max_leaves=10,
)


@given(json_values, st.text("ab*.01", min_size=1, max_size=6))
def test_no_value_is_fatal(data: object, path: str) -> None:
    """Whatever the path."""
    list(find(data, path))
    text_at(data, (path,))
    argument_at(data, (path,))
    number_at(data, (path,))
    fits(data, {path: (1, "a", False)})
