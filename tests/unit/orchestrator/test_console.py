"""Arguments by position, without invisible characters; JSON as JavaScript writes it; answers to print."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.orchestrator.console import (
    Said,
    UsageError,
    Words,
    as_json,
    broken,
    js_json,
    js_number,
    refused,
    seen,
)


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("\ufeffim\u200bpl\u2060 ", "impl"),
        (" 目前狀態如何\u200b", "目前狀態如何"),
        ("one\ntwo\n", "one\ntwo"),
    ],
)
def test_invisible_characters_are_removed(word: str, kept: str) -> None:
    """The reference also removes what is not ASCII; a Chinese message would then be empty."""
    assert kept == seen(word)


def test_words_have_positions_and_flags_have_none() -> None:
    """The root becomes absolute."""
    words = Words.of(["x/../shop/", "do", "it", "--force"])

    assert os.path.join(os.getcwd(), "shop") == words.root()
    assert ("do", "", "do it --force", True) == (
        words.at(1), words.at(9), words.rest(1), words.has("--force"),
    )  # fmt: skip


def test_an_error_names_the_missing_word() -> None:
    """As the usage does, with an example; a line each, for stderr."""
    with pytest.raises(UsageError) as root:
        Words.of(["\u200b"]).root()
    with pytest.raises(UsageError) as step:
        Words.of(["."]).needed(1, "target-step", "Example: x")

    assert ("Error: <project-root> is required",) == root.value.lines
    assert ("Error: <target-step> is required", "Example: x") == step.value.lines


# --- JSON; Node 20 printed the expected texts ----------------------------------------------------------
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
    """Whole ones have no point, small and large ones an exponent; infinity and NaN are null."""
    assert text == js_number(number)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"a": [], "b": {}, "c": [1, {"d": "價格\u2028"}], "e": None, "f": True},
            '{\n  "a": [],\n  "b": {},\n  "c": [\n    1,\n    {\n      "d": "價格\u2028"\n    }\n  ],\n'
            '  "e": null,\n  "f": true\n}',
        ),
        ("a\ud83d", '"a\\ud83d"'),
    ],
)
def test_objects_are_laid_out_by_two_spaces(value: Any, text: str) -> None:
    """With text beyond ASCII as it is, except half of a pair, which UTF-8 cannot write."""
    assert text == js_json(value)


def test_keys_that_are_indices_come_first() -> None:
    """In ascending order; `01` or a number that is too large is not an index."""
    value = {"b": 1, "10": 2, "2": 3, "01": 4, "4294967295": 5}

    assert ["2", "10", "b", "01", "4294967295"] == list(json.loads(js_json(value)))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_the_text_has_the_same_value(value: Any) -> None:
    """In any layout."""
    assert value == json.loads(js_json(value))


# --- answers -----------------------------------------------------------------------------------------
def test_an_error_has_the_keys_of_the_reference_in_their_order() -> None:
    """Our additions go to stderr."""
    error = {
        "message": "no", "recoverable": True, "type": "error", "code": "X",
        "step": "impl", "next_command": "y z",
    }  # fmt: skip

    said = refused("approve", error, 1)

    assert ["type", "code", "message", "recoverable"] == list(json.loads(said.out[0]))
    assert (("[approve] ERROR (X): no", "  next: y z"), 1) == (said.err, said.code)
    assert 2 == refused("dispatch", error).code  # it may work later


def test_a_verb_that_cannot_be_carried_out_is_an_internal_error() -> None:
    """The reference calls every exception so; JSON goes to stdout, the rest is for people."""
    said = broken("the disk is full", "df -h")

    error = {"type": "error", "code": "INTERNAL_ERROR", "message": "the disk is full"}
    assert error == json.loads(said.out[0])
    assert (127, "  next: df -h") == (said.code, said.err[-1])
    assert Said(("7",), ("x",), 3) == as_json(7, "x", code=3)
