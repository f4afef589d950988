"""YAML from strangers: what is read, what is refused, and that neither costs much."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoffd.errors import InvalidFile, Problem
from handoffd.protocol.yamltext import MAX_BYTES, load


def problem_of(text: str | bytes) -> Problem:
    """Return the problem that keeps `text` from being read."""
    with pytest.raises(InvalidFile) as caught:
        load(text, "f.yaml")
    (problem,) = caught.value.problems
    assert "f.yaml" == problem.file
    return problem


FRONT = """\
story: US-013
attempt: 1
reason: null
files_changed:
  - src/app.py
  - "tests/test app.py"
failing_tests: [test_a, tests/b.py::test_c]
summary: 'Added: a form # and its test.'

commit_hash:
"""


def test_reads_what_agents_are_asked_to_write() -> None:
    """Pairs, lists in both forms, quotes and nulls; unresolved, every scalar is the text that was written."""
    read = load(FRONT, "HANDOFF.md", first_line=2, resolve=False)

    assert {
        "story": "US-013", "attempt": "1", "reason": None,
        "files_changed": ["src/app.py", "tests/test app.py"],
        "failing_tests": ["test_a", "tests/b.py::test_c"], "summary": "Added: a form # and its test.",
        "commit_hash": None,
    } == read.data  # fmt: skip
    assert 7 == read.line_of("files_changed.1")


@pytest.mark.parametrize("sign", ["\x85", "\u2028", "\u2029"])
def test_only_a_line_feed_ends_a_line(sign: str) -> None:
    """As in YAML 1.2; in the one before it, an agent's summary with such a sign would be two lines."""
    read = load(f"a: b{sign}c\nd: e", "f.yaml")

    assert ({"a": "b c", "d": "e"}, 2) == (read.data, read.line_of("d"))


def test_lines_of_dotted_keys() -> None:
    """Every key and item knows its line; a key that is missing has that of what encloses it."""
    document = load("# first\nsteps:\n  impl:\n    reads: [a, b]\n  bdd:\n    - x\n    - y\n", "f.yaml")

    assert {"steps": {"impl": {"reads": ["a", "b"]}, "bdd": ["x", "y"]}} == document.data
    assert 2 == document.line_of("steps")
    assert 3 == document.line_of("steps.impl")
    assert 4 == document.line_of("steps.impl.reads.1")
    assert 7 == document.line_of("steps.bdd.1")
    assert 3 == document.line_of("steps.impl.max_attempts.x")
    assert 1 == document.line_of("pipelines")


def test_lines_count_from_where_the_text_begins() -> None:
    """A text out of the middle of a file has that file's lines; a key given twice is named by its path."""
    assert 12 == load("a: 1\nb: 2", "f.yaml", first_line=11).line_of("b")
    with pytest.raises(InvalidFile) as caught:
        load("a: 1\na: 2", "f.yaml", first_line=11)
    assert 12 == caught.value.problems[0].line
    assert "steps.impl.on_fail" == problem_of("steps:\n  impl:\n    on_fail: {}\n    on_fail: {}").key


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("true", True), ("False", False), ("~", None),
        ("null", None),
        ("", None), ("013", 13), ("0o17", 15), ("0x1F", 31), ("-3", -3), ("1_000", "1_000"), ("1.5", 1.5),
        ("1e3", 1000.0), (".5", 0.5), ("1:30", "1:30"), ("2026-01-31", "2026-01-31"), ("'5'", "5"),
        ('"true"', "true"),
        ("9" * 101, "9" * 101), (".inf", ".inf"), (".nan", ".nan"), ("a#b", "a#b"), ("=", "="),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    """Only null, booleans and finite numbers are more than text; what is too long stays text."""
    data = load(f"key: {text}", "f.yaml").data

    assert {"key": value} == data
    assert type(value) is type(data["key"])


def test_without_resolving_scalars_are_as_written() -> None:
    """An id keeps its zeros and a hash its digits; null is still null. A key is always a string."""
    document = load("story: 013\nhash: 1e4567\nok: true\nnone: ~\nquoted: ''\n", "f.yaml", resolve=False)

    assert {"story": "013", "hash": "1e4567", "ok": "true", "none": None, "quoted": ""} == document.data
    assert {"1": "a", "true": "b", "on": "c"} == load("1: a\ntrue: b\non: c", "f.yaml").data


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", b"", b"\xef\xbb\xbf"])
def test_an_empty_text_is_no_data(text: str | bytes) -> None:
    """Nothing there is not an error; what it means is for the caller to say."""
    assert load(text, "f.yaml").data is None


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: &x 1", 1, "anchors"),
        ("a: 1\nb: *x", 2, "anchors"),
        ("b: &x [1]\nc: *x", 1, "anchors"),
        ("&x a: 1", 1, "anchors"),
        ("a: !!python/object:os.system x", 1, "tags"),
        ("a: !x [1]", 1, "tags"),
        ("a: {<<: {b: 1}}", 1, "merge keys"),
        ("a: 1\nb: 2\na: 3", 3, "twice"),
        ("a: {b: 1, b: 2}", 1, "twice"),
        ("[a]: 1", 1, "a key must be plain text"),
        ("? {a: 1}\n: 2", 1, "a key must be plain text"),
        ("a: 1\n---\nb: 2", 2, "more than one YAML document"),
        ("%YAML 1.1\n---\na: on", 1, "only YAML 1.2"),
        ("%YAML 1." + "9" * 5000 + "\n---\n", 1, "version"),
        ('a: "\\UFFFFFFFF"', 1, "invalid Unicode character"),
        ("a: 1\nb: x\x1by", 2, "character"),
        ("a: \ud800", 1, "character"),
        (b"a: 1\nb: \xff", 2, "not UTF-8"),
        ("a: b: c", 1, "mapping values are not allowed"),
        ("a: 1\nb: [1, 2", None, "flow sequence"),
        ("a: 'x", None, "quoted scalar"),
        ("x" * (MAX_BYTES + 1), None, "larger than 64 KiB"),
        ("k" * 201 + ": 1", 1, "longer than 200"),
        ("[" * 21 + "]" * 21, 1, "more than 20 levels"),
        ("\n".join(" " * depth + "a:" for depth in range(22)), 21, "more than 20 levels"),
        ("- a\n" * 5000, None, "more than 5000"),
    ],
)
def test_what_is_refused(text: str | bytes, line: int | None, message: str) -> None:
    """Each refusal is one problem that says where and why."""
    problem = problem_of(text)

    assert message in problem.message
    assert line is None or line == problem.line
    assert "\n" not in problem.message


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a:\n  b: 1\n   c: 2\n", 13, "the indentation is wrong: 3 spaces, and line 12 has 2"),
        ("a:\n   b: 1\n\n  c: 2\n", 14, "the indentation is wrong: 2 spaces, and line 12 has 3"),
        (
            "a:\n - b\n c: 1\n",
            13,
            "an entry of a list begins with '- '; a key after the list is indented less",
        ),
        ("a\nb: 1\n", 11, "a key needs a ':' and a space"),
        ("a: 1\nb\nc: 1\n", 12, "a key needs a ':' and a space"),
        ("a:\n\tb: 1\n", 12, "is indented with a tab: only spaces indent"),
        ("a:\n  b: 1\n\tc: 1\n", 13, "is indented with a tab: only spaces indent"),
        ("a: @you\n", 11, "a text that begins with '@' needs quotes"),
        ("a: {b: `x`}\n", 11, "a text that begins with '`' needs quotes"),
        ("a: Publish: yes?\n", 11, "a text with ': ' in it needs quotes"),
        ("a: 1\nb: 'x\nc: 1\n", 12, "the quote that begins here is never closed"),
        ("a: 'x\nb: 'y'\nc: 1\n", 11, "a quote is not closed on its line: it ends on line 12"),
        ("a: 'x' y\n", 11, "more follows what is in quotes or brackets: put the whole text in quotes"),
        ("a: {run: make {x}}\n", 11, "the '{' is not closed before this, or a text in it needs quotes"),
        ("a: [1\nb: 1\n", 12, "the '[' of line 11 is not closed before this, or a text in it needs quotes"),
    ],
)
def test_usual_mistakes_are_explained_where_that_is_wanted(text: str, line: int, message: str) -> None:
    """With the line at which to look; elsewhere the words are the parser's."""
    with pytest.raises(InvalidFile) as caught:
        load(text, "f.yaml", first_line=11, advise=True)
    (problem,) = caught.value.problems

    assert message == problem.message.partition(": a text with {")[0]
    assert line == problem.line
    assert message not in problem_of(text).message


@pytest.mark.parametrize("sign", ["[", "{", "- ", "&a ", ": "])
def test_nesting_bombs_are_refused(sign: str) -> None:
    """Text that would open thousands of levels ends at the limit."""
    problem_of(sign * (MAX_BYTES // len(sign)))


@settings(max_examples=60)
@given(st.text(st.sampled_from("ab:-[]{}&*!?|>'\"#%@,\n\t 0~<"), max_size=60) | st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text ends in anything but data or an InvalidFile."""
    for advise in (False, True):
        with suppress(InvalidFile):
            load(text, "f.yaml", advise=advise)
