"""The quick reader of front matter: what it reads, and that the loader never says anything else."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handoffd.errors import InvalidFile
from handoffd.protocol.yamltext import MAX_CHARACTERS, YamlText, load, read_flat

FRONT = """\
story: US-013
step: impl
attempt: 1
dispatch: 20260131T221509-0a1b2c3d
status: pass
reason: null
files_changed:
  - src/app.py
  - "tests/test app.py"
failing_tests: [test_a, tests/b.py]
tests_pass: 12
summary: 'Added: a form # and its test.'

commit_hash:
"""


def loaded(text: str) -> YamlText | None:
    """Return what the loader makes of a text; None where it refuses it."""
    try:
        return load(text, "HANDOFF.md", resolve=False)
    except InvalidFile:
        return None


def test_reads_what_agents_are_asked_to_write() -> None:
    """Pairs, lists in both forms, quotes, nulls and empty lines; with the loader's lines."""
    read = read_flat(FRONT, first_line=1)

    assert loaded(FRONT) == read
    assert read is not None
    assert {
        "story": "US-013", "step": "impl", "attempt": "1", "dispatch": "20260131T221509-0a1b2c3d",
        "status": "pass", "reason": None, "files_changed": ["src/app.py", "tests/test app.py"],
        "failing_tests": ["test_a", "tests/b.py"], "tests_pass": "12",
        "summary": "Added: a form # and its test.", "commit_hash": None,
    } == read.data  # fmt: skip
    assert 9 == read.line_of("files_changed.1")


def test_lines_count_from_where_the_text_begins() -> None:
    """A front matter is the middle of a file."""
    read = read_flat("a: b\nc:\n- d", first_line=12)

    assert read is not None
    assert (12, 13, 14) == (read.line_of("a"), read.line_of("c"), read.line_of("c.0"))


@pytest.mark.parametrize(
    "text",
    [
        "", "\n\n", "# a note", "a: b # a note", "a: b: c", "a: |\n  text", "a: b\n  c", "a: *b", "a: &b c",
        "a: !!str b", "<<: b", "a: {b: c}", "a: [b: c]", "a: [b, [c]]", "a: [b,]", "a:\n  - b: c",
        "a:\n  - b\n - c", "a:\n  - b\n    c", "a:\n  b: c", "- a", "a: b\na: c", "---\na: b", "a: b\n...",
        "a: \"b\\n\"", "a: 'b''c'", "a: \tb", "a : b", " a: b", "a:b", "a: ü", "a: - b", "a: ? b", "a: @b",
        "a: b\r", "a: b\n \nc: d", "a: b\n- c", "a: b\x85c: d", "1: a", "a: x" + "y" * MAX_CHARACTERS,
    ],
)  # fmt: skip
def test_leaves_everything_else_to_the_loader(text: str) -> None:
    """What might be something else than it seems is not read here."""
    assert read_flat(text) is None


_WORD = st.text("ab01 _./-:#[]{},'\"?!&*|>%@`~=<\\\t\u00e4", max_size=8)
_LINE = st.one_of(
    st.builds("{}:{}{}".format, st.sampled_from("abcd"), st.sampled_from(["", " ", "  "]), _WORD),
    st.builds("{}-{}{}".format, st.sampled_from(["", " ", "  "]), st.sampled_from([" ", ""]), _WORD),
    st.builds("{}: [{}]".format, st.sampled_from("efgh"), _WORD),
    st.builds("{}:".format, st.sampled_from(["ab", "null", "y", "a-b", "on"])),
    st.sampled_from(["", " ", "---", "...", "a: null", "b: ~", "c: Null ", "d: ''", 'e: "#"', "- null"]),
    _WORD,
)


@settings(max_examples=600)
@given(st.lists(_LINE, max_size=6).map("\n".join))
@example("a: [null, b ]\nb:\n- ~\n-  c ")
def test_the_loader_says_the_same(text: str) -> None:
    """Of whatever is read here, data and lines are those of the loader, which accepts it, too."""
    read = read_flat(text)

    assert read is None or loaded(text) == read


def test_limits_of_the_loader_are_out_of_reach() -> None:
    """The largest text that is read here stays below the loader's number of events."""
    text = "a: [" + "b," * (MAX_CHARACTERS // 2 - 4) + "b]"

    assert len(text) <= MAX_CHARACTERS
    assert read_flat(text) is not None
    assert loaded(text) == read_flat(text)
