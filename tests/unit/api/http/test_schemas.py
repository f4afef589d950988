"""What the description of a parameter says, and what the check of it does."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest
from tests.support.jsonschemas import complaints

from handoffd.api.arguments import values
from handoffd.api.http.endpoint import UrlParameter, body_schema, url_parameter
from handoffd.api.verbs import Parameter
from handoffd.errors import Refused

TYPES: tuple[Any, ...] = get_args(get_type_hints(Parameter)["type"])
NEVER_REQUIRED, ALWAYS_REQUIRED = {"flag"}, {"level"}
VALUES: tuple[Any, ...] = (
    None, "", "US-001", "main", "..", "a..b", "a.", ".a", "x" * 64, "x" * 65, "spec_drift",
    "needs_clarification",
    "x" * 65536, "x" * 65537, "7", "0", True, False, 0, 1, 1.0, 1.5, -1, 10**12, 10**12 + 1, [], ["US-001"],
    ["/"], [5], {}, {"a": 1}, -1000, 1000, 1001, "-1000", "1000", "1001", "-7", "M",
)  # fmt: skip


def accepted(parameter: Parameter, value: Any) -> bool:
    """Return whether the check takes a value."""
    try:
        values((parameter,), {parameter.name: value})
    except Refused:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "required"),
    [
        *((kind, False) for kind in TYPES if kind not in ALWAYS_REQUIRED),
        *((kind, True) for kind in TYPES if kind not in NEVER_REQUIRED),
    ],
)
def test_the_schema_allows_what_the_check_takes(kind: Any, required: bool) -> None:
    """And nothing else."""
    parameter = Parameter(name="x", type=kind, required=required, help="x")
    schema = body_schema((parameter,))

    for value in VALUES:
        assert accepted(parameter, value) == (not complaints({"x": value}, schema)), repr(value)[:80]


def test_what_may_be_chosen_is_named() -> None:
    """In the schema as in the check."""
    parameter = Parameter(name="x", type="text", help="x", choices=("en", "zh-TW"))
    schema = body_schema((parameter,))

    for value in ("en", "zh-TW", "de", "", None, 5):
        assert accepted(parameter, value) == (not complaints({"x": value}, schema)), value


def test_nothing_unknown_is_allowed() -> None:
    """In the schema as in the check."""
    schema = body_schema((Parameter(name="x", type="text", required=True, help="x"),))

    assert complaints({"x": "a", "y": "b"}, schema)
    assert complaints({}, schema)


def test_a_parameter_of_the_url_has_its_limits() -> None:
    """Numbers, flags, choices, and what must be there."""

    def schema(**given: Any) -> Any:
        return url_parameter(UrlParameter(name="x", help="x", **given))["schema"]

    assert {"type": "integer", "minimum": 0, "maximum": 2**53, "default": 5} == schema(
        type="number", default=5
    )
    assert {"type": "string", "enum": ["1", "true", "0", "false", ""], "default": "false"} == schema(
        type="flag", default=False
    )
    assert {"type": "string", "enum": ["a", ""]} == schema(choices=("a",))
    assert {"type": "string", "pattern": "^$|^a$"} == schema(pattern="^a$")
    assert {"type": "string", "minLength": 1} == schema(required=True)
