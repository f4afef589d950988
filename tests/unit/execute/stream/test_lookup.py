"""Paths into what strangers wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.execute.stream.line import MOST, argument_at, find, first, fits, number_at, text_at, texts_at

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
    """Parts of one text are joined; what is no text is passed over."""
    assert "x\ny" == text_at(DATA, ("missing", "n", "a.b.*.c", "list.0"))
    assert ("p", "x", "y") == texts_at(DATA, ("list.*", "a.b.*.c"))
    assert "" == text_at(DATA, ())


def test_an_argument_that_is_no_text_is_json() -> None:
    """Unless there is nothing in it."""
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
def test_numbers_are_counted_also_as_people_write_them(value: object, expected: float | None) -> None:
    """Anything else is none."""
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
