"""Texts that are changed here and there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.hooks.claude_settings import added, removed, tree_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
STYLES: list[dict[str, Any]] = [
    {},
    {"indent": 2},
    {"indent": "\t"},
    {"separators": (",", ":")},
    {"ensure_ascii": False},
]


@given(VALUES, st.sampled_from(STYLES))
def test_a_tree_says_what_every_parser_says(value: object, style: dict[str, Any]) -> None:
    """And its places are those of the values."""
    text = json.dumps(value, **style)
    tree = tree_of(f" \n{text}\n")

    assert json.loads(text) == tree.value
    assert f" \n{text}\n"[tree.start : tree.end] == text


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.sampled_from(STYLES), VALUES)
def test_what_was_added_can_be_removed(value: dict[str, object], style: dict[str, Any], more: object) -> None:
    """To the byte, but for blanks in what was empty; and nothing else changes."""
    text = json.dumps(value, **style)
    key = "".join(value) + "new"
    longer = added(text, tree_of(text), key, more)

    assert list({**value, key: more}.items()) == list(json.loads(longer).items())
    assert text == removed(longer, tree_of(longer), len(value))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{}\n", '{\n  "a": [\n    1\n  ]\n}\n'),
        ('{\n    "x": 1\n}', '{\n    "x": 1,\n    "a": [\n        1\n    ]\n}'),
        ('{\n\t"x": 1\n}\n', '{\n\t"x": 1,\n\t"a": [\n\t\t1\n\t]\n}\n'),
        ('{"x": 1}', '{"x": 1, "a": [1]}'),
        ('{\r\n  "x": 1\r\n}\r\n', '{\r\n  "x": 1,\r\n  "a": [\r\n    1\r\n  ]\r\n}\r\n'),
        ('{\n  "x": 1\n\n\n}', '{\n  "x": 1,\n  "a": [\n    1\n  ]\n\n\n}'),
    ],
)
def test_what_is_added_looks_like_the_rest(text: str, wanted: str) -> None:
    """Indentation, ends of lines, or all in one line."""
    assert wanted == added(text, tree_of(text), "a", [1])


@pytest.mark.parametrize(("number", "wanted"), [(0, "[2, 3]"), (1, "[1, 3]"), (2, "[1, 2]")])
def test_one_of_several_is_removed_with_its_comma(number: int, wanted: str) -> None:
    """Wherever it stands."""
    assert wanted == removed("[1, 2, 3]", tree_of("[1, 2, 3]"), number)


@pytest.mark.parametrize("text", ["", "{", '{"a": 1,}', "{} {}", "// no\n{}", "[1"])
def test_what_is_no_json_is_refused(text: str) -> None:
    """With the parser's own error, which knows the line."""
    with pytest.raises(json.JSONDecodeError):
        tree_of(text)


def test_of_two_members_of_one_name_the_last_counts() -> None:
    """As for Claude Code."""
    found = tree_of('{"a": 1, "a": 2}').find("a")

    assert found is not None
    assert 2 == found.value
