"""Where a value does not fit its schema, in words; which schemas can be used; and that jsonschema agrees."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from handoffd.protocol.json_schema import DIALECT, flaws, misfits, shown

# --- what a misfit says -------------------------------------------------------------------------------
TASKS = {
    "type": "object",
    "required": ["tasks"],
    "additionalProperties": False,
    "properties": {
        "tasks": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["id", "title"],
                "properties": {
                    "id": {"type": "string", "pattern": "^[a-z]+$"},
                    "size": {"enum": ["S", "L", 3]},
                },
            },
        }
    },
}


@pytest.mark.parametrize(
    ("value", "schema", "told"),
    [
        ([], TASKS, ["the whole must be an object, not a list of 0 entries"]),
        ({}, TASKS, ['the whole needs the key "tasks"']),
        (
            {"tasks": [], "b": 1},
            TASKS,
            [
                'the whole has the unknown key "b"; allowed: "tasks"',
                "/tasks must have at least 1 entry, and has 0",
            ],
        ),
        (
            {"tasks": [{"id": 7}]},
            TASKS,
            ['/tasks/0 needs the key "title"', "/tasks/0/id must be a text, not 7"],
        ),
        (
            {"tasks": [{"id": "A", "title": "", "size": "M"}]},
            TASKS,
            [
                '/tasks/0/id must match ^[a-z]+$, and "A" does not',
                '/tasks/0/size must be one of "S", "L", 3, not "M"',
            ],
        ),
        (7, {"const": 8}, ["the whole must be 8, not 7"]),
        (
            7.5,
            {"minimum": 8, "multipleOf": 2},
            ["the whole must be at least 8, not 7.5", "the whole must be a multiple of 2, not 7.5"],
        ),
        ("ab", {"maxLength": 1}, ["the whole must have at most 1 character, and has 2"]),
        (
            [1, 2, 1.0],
            {"uniqueItems": True},
            ["the whole must have no entry twice, and entries 0 and 2 are the same: 1"],
        ),
        (
            {"a/b~": {"c": None}},
            {"additionalProperties": {"properties": {"c": {"type": ["string", "array"]}}}},
            ["/a~1b~0/c must be a text or a list, not null"],
        ),
        (
            {"x": 1},
            {"anyOf": [{"type": "string"}, {"properties": {"x": {"type": "string"}}}]},
            ["the whole fits none of 2 forms; the nearest one at /x must be a text, not 1"],
        ),
        (
            1,
            {"oneOf": [{"minimum": 0}, {"maximum": 2}]},
            ["the whole fits 2 of 2 forms, and must fit one alone"],
        ),
        (1, {"not": {"type": "integer"}}, ["the whole has a form that is not allowed: 1"]),
        ({"a": 1}, {"dependentRequired": {"a": ["b"]}}, ['the whole needs the key "b" beside "a"']),
        (
            {"A": 1},
            {"propertyNames": {"pattern": "^[a-z]$"}},
            ['the whole has the key "A", which must match ^[a-z]$, and "A" does not'],
        ),
        (
            [1],
            {"contains": {"type": "string"}},
            ["the whole must have at least 1 entries of a certain form, and has 0"],
        ),
        (
            {"kind": "a"},
            {"if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["x"]}},
            ['the whole needs the key "x"'],
        ),
        (
            [[[1]]],
            {"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}},
            ["/0/0/0 must be a list, not 1"],
        ),
        ({"a": 1}, {"properties": {"a": False}}, ["/a must not be there"]),
    ],
)
def test_a_misfit_says_where_it_is_and_what_must_be_there(value: Any, schema: Any, told: list[str]) -> None:
    """One line each, in words that lead to a correction."""
    assert () == flaws(schema)
    assert told == [*misfits(value, schema)]


def test_only_the_first_misfits_are_told() -> None:
    """As many as are asked for."""
    assert [f"/{at} must be a text, not {at}" for at in range(5)] == [
        *misfits([*range(9)], {"items": {"type": "string"}})
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        ("x" * 99, f'"{"x" * 59}…"'),
        ({"a": 1}, "an object of 1 key"),
        (None, "null"),
        ("a\nb", '"a\\nb"'),
    ],
)
def test_a_value_is_shown_short_and_on_one_line(value: Any, text: str) -> None:
    """Whatever an agent wrote."""
    assert text == shown(value)


# --- bounds -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "schema", "told"),
    [
        ([0] * 1_100_000, {"items": {"type": "integer"}},
         "there is too much in it to be compared with its schema"),
        (1, {"$ref": "#"}, "it is nested too deeply to be compared with its schema"),
        ("a" * 4_000_000, {"pattern": "^(a|a)*(a|a)*(a|a)*(a|a)*(a|a)*b$"},
         "there is too much in it to be compared with its schema"),
    ],
)  # fmt: skip
def test_no_schema_and_no_value_takes_long(value: Any, schema: Any, told: str) -> None:
    """Nor do patterns that other engines take for ever with."""
    began = time.process_time()

    assert () == flaws(schema)
    assert (told,) == misfits(value, schema)
    assert time.process_time() - began < 20


# --- which schemas can be used ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("schema", "flaw"),
    [
        ([], "a schema is an object"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, f"/$schema: must be {DIALECT}"),
        ({"properties": {"a": {"typ": "string"}}}, "/properties/a/typ: this keyword is not known here"),
        ({"patternProperties": {}}, "/patternProperties: this keyword is not known here"),
        ({"type": "text"},
         "/type: must be one or several of string, integer, number, boolean, null, array, object"),
        ({"properties": []}, "/properties: must be an object of schemas"),
        ({"anyOf": []}, "/anyOf: must be a list of schemas"),
        ({"items": 7}, "/items: a schema is an object, true or false"),
        ({"minItems": -1}, "/minItems: must be a whole number"),
        ({"minimum": "1"}, "/minimum: must be a number, of multipleOf one above 0"),
        ({"multipleOf": 0}, "/multipleOf: must be a number, of multipleOf one above 0"),
        ({"required": "a"}, "/required: must be a list of names"),
        ({"enum": []}, "/enum: must be a list of values"),
        ({"uniqueItems": 1}, "/uniqueItems: must be true or false"),
        ({"dependentRequired": {"a": "b"}}, "/dependentRequired: must be an object of lists of names"),
        ({"$ref": "https://example.org/a"},
         '/$ref: "https://example.org/a" is neither # nor the name of a schema here, as in #/$defs/name'),
        ({"$ref": "#/$defs/a"},
         '/$ref: "#/$defs/a" is neither # nor the name of a schema here, as in #/$defs/name'),
    ],
)  # fmt: skip
def test_a_schema_with_a_flaw_is_refused(schema: Any, flaw: str) -> None:
    """A keyword that is not known would approve everything."""
    assert (flaw,) == flaws(schema)


def test_a_pattern_that_cannot_be_read_is_a_flaw() -> None:
    """With the reason."""
    assert flaws({"pattern": "("})[0].startswith("/pattern: cannot be read as a regular expression: ")


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    """It would not be compared with anything."""
    schema: Any = {}
    for _ in range(60):
        schema = {"not": schema}

    assert flaws(schema)[0].endswith(": is nested too deeply")


# --- beside jsonschema --------------------------------------------------------------------------------
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.sampled_from([0.5, 1.0, 3.0])
    | st.text("ab", max_size=3)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
SMALL = st.integers(0, 3)


def _keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    names = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": KINDS | st.lists(KINDS, min_size=1, max_size=2, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "minimum": st.integers(-2, 5),
            "exclusiveMaximum": st.integers(-2, 5),
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "minLength": SMALL,
            "maxItems": SMALL,
            "minProperties": SMALL,
            "pattern": st.sampled_from(["^a", "b$", "ab"]),
            "uniqueItems": st.booleans(),
            "required": names,
            "properties": named,
            "additionalProperties": inner,
            "propertyNames": inner,
            "items": inner,
            "prefixItems": several,
            "contains": inner,
            "maxContains": SMALL,
            "minContains": SMALL,
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "dependentRequired": st.dictionaries(st.sampled_from("abc"), names),
            "$ref": st.just("#/$defs/d"),
        },
    )


SCHEMAS = st.recursive(st.booleans() | st.builds(lambda kind: {"type": kind}, KINDS), _keywords, max_leaves=6)


@settings(max_examples=400, deadline=None)
@given(VALUES, SCHEMAS, st.booleans() | st.builds(lambda kind: {"type": kind}, KINDS))
def test_jsonschema_judges_alike(value: Any, schema: Any, defined: Any) -> None:
    """Whether a value fits; the words are ours."""
    whole = {"allOf": [schema], "$defs": {"d": defined}}

    assert () == flaws(whole)
    assert Draft202012Validator(whole).is_valid(value) is (misfits(value, whole) == ())
