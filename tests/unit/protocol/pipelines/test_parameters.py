"""Parameters as people type them: the schema says what each text is, and nothing is guessed."""

from __future__ import annotations

from typing import Any

import pytest

from handoffd.protocol.pipelines.parameters import read, unfit


@pytest.mark.parametrize(
    ("schema", "texts", "value"),
    [
        ({"type": "string"}, ["7"], "7"),
        ({"type": "string"}, ["true"], "true"),
        ({"type": "integer"}, ["7"], 7),
        ({"type": "number"}, ["1.5"], 1.5),
        ({"type": "boolean"}, ["false"], False),
        ({"enum": [1, 2]}, ["2"], 2),
        ({"enum": ["1", "2"]}, ["2"], "2"),
        ({"type": "array", "items": {"type": "integer"}}, ["1", "2"], [1, 2]),
        ({"type": "array", "items": {"type": "string"}}, ["1"], ["1"]),
        ({"type": "array", "items": {"type": "string"}}, ['["a", "b"]'], ["a", "b"]),
        ({"type": "object"}, ['{"a": 1}'], {"a": 1}),
        ({}, ["1"], "1"),
    ],
)
def test_a_text_has_the_type_of_its_schema(schema: dict[str, Any], texts: list[str], value: object) -> None:
    """A list is one text for each entry, or JSON."""
    found = read(texts, schema)
    assert (value, type(value)) == (found, type(found))
    assert unfit(found, schema) is None


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        ({"type": "integer"}, ["1.5"]),
        ({"type": "integer"}, ["true"]),
        ({"type": "integer"}, ["1", "2"]),
        ({"type": "boolean"}, ["yes"]),
        ({"type": "boolean"}, ["1"]),
        ({"type": "object"}, ["[1]"]),
        ({"type": "array", "items": {"type": "integer"}}, ["1", "x"]),
        ({"type": "array", "items": {"type": "integer"}}, ["[1"]),
        ({"type": "string"}, ["a", "b"]),
    ],
)
def test_what_is_of_another_type_stays_as_it_is_and_is_refused(
    schema: dict[str, Any], texts: list[str]
) -> None:
    """The check names it."""
    assert unfit(read(texts, schema), schema) is not None
