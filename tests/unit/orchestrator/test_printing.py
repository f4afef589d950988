"""`orchestrator.printing`: JSON as JavaScript writes it. Expected texts were printed by Node 20."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.orchestrator.console import js_json, js_number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"), (-0.0, "0"), (5.0, "5"), (0.5, "0.5"), (-1.25, "-1.25"), (1e-6, "0.000001"), (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"), (1e20, "100000000000000000000"), (1e21, "1e+21"), (1.25e22, "1.25e+22"),
        (123456789012345680000.0, "123456789012345680000"), (2**53 + 1, "9007199254740992"),
        (10**400, "null"), (float("nan"), "null"), (float("inf"), "null"), (100, "100"), (12.75, "12.75"),
    ],
)  # fmt: skip
def test_numbers(number: float, text: str) -> None:
    """Whole ones have no point, small and large ones an exponent, what is not finite is null."""
    assert text == js_number(number)


def test_objects_are_laid_out_by_two_spaces() -> None:
    """Empty ones in one place, nested ones indented, text beyond ASCII as it is."""
    value: Any = {"a": [], "b": {}, "c": [1, {"d": "價格\u2028"}], "e": None, "f": True}

    assert (
        '{\n  "a": [],\n  "b": {},\n  "c": [\n    1,\n    {\n      "d": "價格\u2028"\n    }\n  ],\n'
        '  "e": null,\n  "f": true\n}'
    ) == js_json(value)


def test_keys_that_are_indices_come_first() -> None:
    """In ascending order, whatever order they had; `01` and what is too large are no indices."""
    value = {"b": 1, "10": 2, "2": 3, "01": 4, "4294967295": 5}

    assert ["2", "10", "b", "01", "4294967295"] == list(json.loads(js_json(value)))


def test_half_of_a_pair_is_escaped() -> None:
    """It could not be written as UTF-8."""
    assert '"a\\ud83d"' == js_json("a\ud83d")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_is_printed_is_what_was_meant(value: Any) -> None:
    """Whatever layout it has, it is the same value."""
    assert value == json.loads(js_json(value))
