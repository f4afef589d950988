"""The rules for an output, as data."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from handoffd.execute.stream.format import LineRule, PartRule, StreamFormat, UsageRule


def test_one_path_or_value_is_a_list_of_one() -> None:
    """So that a rule reads as a person would write it."""
    rule = LineRule.model_validate({"when": {"type": "x", "ok": [True, 1]}, "error": "a.b"})

    assert ({"type": ("x",), "ok": (True, 1)}, ("a.b",)) == (rule.when, rule.error)
    assert (bool, int) == tuple(type(value) for value in (rule.when or {})["ok"])


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (PartRule, {"said": ""}),
        (PartRule, {"said": 7}),
        (PartRule, {"sayd": "x"}),
        (PartRule, {"where": {"type": None}}),
        (UsageRule, {"mode": "sum"}),
        (LineRule, {"match": "("}),
    ],
)
def test_impossible_rules_are_refused(
    model: type[PartRule | UsageRule | LineRule], given: dict[str, object]
) -> None:
    """An empty path, a number, an unknown key."""
    with pytest.raises(ValidationError):
        model.model_validate(given)


def test_rules_are_found_by_the_type_of_a_line() -> None:
    """In their order; a rule without a type may fit any."""
    rules = StreamFormat.model_validate(
        {
            "lines": [
                {"when": {"type": ["a", "b"]}, "error": "1"},
                {"match": "x"},
                {"when": {"id": 7}, "error": "2"},
                {"when": {"type": "b"}, "error": "3"},
            ]
        }
    )

    found = {kind: [rule.error[0] for rule in some] for kind, some in rules.for_objects.items()}
    assert {"a": ["1", "2"], "b": ["1", "2", "3"], None: ["2"]} == found
