"""Patterns: what they find, what is refused, and that no pattern takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.protocol.patterns import LONGEST, pattern_of

PARTS = [
    "a",
    "b",
    ".",
    "[ab]",
    "[^a]",
    "(?:a|b)",
    "(a|)",
    "(ab)",
    "^",
    "$",
    r"\d",
    r"\.",
    "(a*b)",
    "[a-c]",
    "()",
]
COUNTS = ["", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?"]


@st.composite
def written(draw: st.DrawFn) -> str:
    """Patterns of a few parts; anchors are not repeated."""
    parts = draw(st.lists(st.tuples(st.sampled_from(PARTS), st.sampled_from(COUNTS)), max_size=5))
    joined = [part + count if part not in {"^", "$"} else part for part, count in parts]
    return draw(st.sampled_from(["", "|"])).join(joined)


@given(written(), st.text("abc.1\né", max_size=8))
def test_a_pattern_occurs_where_python_finds_it(pattern: str, text: str) -> None:
    """Python's `$` is before a last line feed, too; `\\Z` is the end."""
    expected = re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None

    assert expected == pattern_of(pattern).occurs_in(text)


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "(?=a)", "(?i)a", "*", "a**", "a{2}{3}", "|*", "(*)", "[", "[b-a]", "[[:alpha:]]",
        "[a--b]", r"\1", r"\b", r"\Z", "a{3,2}", "a{", "a{,2}", "a" * (LONGEST + 1),
        "(" * 30 + ")" * 30, "(a{999}){999}", "\\",
    ],
)  # fmt: skip
def test_what_is_not_in_the_syntax_is_refused(pattern: str) -> None:
    """Nothing means something else than it says."""
    with pytest.raises(ValueError, match="pattern"):
        pattern_of(pattern)


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+$", "a*a*a*a*a*b", "(a?){40}a{40}", "((a*)*)*b"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """These take Python's own engine hours."""
    assert pattern_of(pattern).occurs_in("a" * 2_000 + "!") is (pattern == "(a?){40}a{40}")


def test_the_steps_that_are_kept_are_bounded() -> None:
    """By a text with many different characters, too."""
    pattern = pattern_of("(a|b)*[^c]{30}d$")

    assert pattern.occurs_in("".join(map(chr, range(0x4E00, 0x8E00)))) is False
    assert len(pattern._steps) * pattern.size <= 200_000
    assert pattern.occurs_in("x" * 30 + "d") is True
