"""The comparison itself: what counts as a difference, and what a rule explains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.differential.cases import cases
from tests.differential.comparing import Difference, deliberate, differences, judged
from tests.differential.outcomes import Spoken, outcome

STATE: dict[str, Any] = {"step": "impl", "status": "pass", "attempt": 1}
JSON: dict[str, Any] = {
    "exit": 0,
    "stdout": {"json": {"type": "applied", "n": 1}},
    "state": STATE,
    "made": {},
}
RULE = """
differences:
  - id: x
    what: a
    why: b
    verbs: [status]
    cases: ["* here"]
    differs:
      - {at: "state.*", theirs: pass, ours: {any_of: [failing, timeout]}}
"""


def paths(theirs: object, ours: object) -> list[tuple[str, object, object]]:
    """Return what differs."""
    return [(one.at, one.theirs, one.ours) for one in differences("c", "v", theirs, ours)]


def test_values_are_compared_one_by_one() -> None:
    """With their types: 1 is not true."""
    other = {**JSON, "state": {**STATE, "attempt": True}, "exit": 1}

    assert [("exit", 0, 1), ("state.attempt", 1, True)] == paths(JSON, other)


def test_the_order_of_keys_is_compared() -> None:
    """It is part of what scripts see."""
    other = {**JSON, "stdout": {"json": {"n": 1, "type": "applied"}}}

    assert [("stdout.json{}", "type n", "n type")] == paths(JSON, other)


def test_different_ways_are_told_in_short() -> None:
    """Everything else follows from that."""
    other = {**JSON, "stdout": {"lines": []}, "state": {**STATE, "status": "running"}}

    told = [("stdout", "applied", "nothing"), ("state", "impl pass attempt 1", "impl running attempt 1")]
    assert told == paths(JSON, other)


@pytest.mark.parametrize(
    ("change", "explained"),
    [
        ({}, True), ({"ours": "timeout"}, True), ({"ours": "running"}, False), ({"theirs": "failing"}, False),
        ({"verb": "query"}, False), ({"case": "status @ there"}, False), ({"at": "stdout"}, False),
    ],
)  # fmt: skip
def test_a_rule_explains_what_it_names(tmp_path: Path, change: dict[str, str], explained: bool) -> None:
    """And nothing beside."""
    file = tmp_path / "rules.yaml"
    file.write_text(RULE)
    whole = {
        "case": "status @ here",
        "verb": "status",
        "at": "state.status",
        "theirs": "pass",
        "ours": "failing",
    }
    found = [Difference(**{**whole, **change})]

    judgement = judged(found, deliberate(file))

    assert (explained, () if explained else ("x",)) == (not judgement.unexplained, judgement.idle)


def test_what_follows_is_explained_with_what_it_follows_from(tmp_path: Path) -> None:
    """An exit code alone is not excused by a rule about another answer."""
    file = tmp_path / "rules.yaml"
    file.write_text(
        "differences:\n- {id: x, what: a, why: b, verbs: [v], differs: ["
        "{at: stdout, theirs: applied, ours: nothing}, {at: exit, theirs: 0, ours: 1}]}\n"
    )
    exits = Difference("c", "v", "exit", 0, 1)

    assert (exits,) == judged([exits], deliberate(file)).unexplained
    told = Difference("c", "v", "stdout", "applied", "nothing")
    assert () == judged([exits, told], deliberate(file)).unexplained


@pytest.mark.parametrize(("now", "explained"), [({}, True), ({"last_error": "x"}, False)])
def test_a_rule_can_demand_that_nothing_has_changed(
    tmp_path: Path, now: dict[str, str], explained: bool
) -> None:
    """Not even a value that the short form leaves out."""
    file = tmp_path / "rules.yaml"
    file.write_text(
        "differences:\n- {id: x, what: a, why: b, verbs: [v], differs: ["
        '{at: stdout, theirs: applied, ours: nothing}, {at: state, theirs: "*", ours: <before>}]}\n'
    )
    other = {**JSON, "stdout": {"lines": []}, "state": {**STATE, "attempt": 2, **now}}
    found = differences("c", "v", JSON, other, {**STATE, "attempt": 2})

    assert explained == (not judged(found, deliberate(file)).unexplained)


def test_a_difference_can_be_of_some_cases(tmp_path: Path) -> None:
    """Fewer than those of the rule."""
    file = tmp_path / "rules.yaml"
    file.write_text(RULE.replace("{at:", '{in: ["status @ her*"], at:'))
    here, near = (
        Difference(f"status @ {place}", "status", "state.x", "pass", "failing")
        for place in ("here", "we here")
    )

    assert (near,) == judged([here, near], deliberate(file)).unexplained


def test_a_line_that_explains_nothing_is_told(tmp_path: Path) -> None:
    """Though others of its rule do."""
    file = tmp_path / "rules.yaml"
    file.write_text(RULE + "      - {at: exit, theirs: 0, ours: 1}\n")
    found = [Difference("status @ here", "status", "state.x", "pass", "failing")]

    assert ("x: exit, theirs (0,), ours (1,)",) == judged(found, deliberate(file)).idle


def test_sentences_and_moments_are_not_compared(tmp_path: Path) -> None:
    """That they are there is."""
    said = {"type": "error", "message": f"no {tmp_path}", "state": {"dispatched_at": "2026-01-01T00:00:00Z"}}

    found = outcome(
        Spoken(1, json.dumps(said, indent=2) + "\n", ""), tmp_path, frozenset(), prompt_only=False
    )

    told = {"type": "error", "message": "<text>", "state": {"dispatched_at": "<moment>"}}
    assert {"exit": 1, "stdout": {"json": told}, "state": None, "made": {}} == found


def test_every_rule_names_cases_there_are() -> None:
    """A pattern that fits no case explains nothing, one that fits all hides something."""
    from fnmatch import fnmatchcase

    names = [case.name for case in cases()]
    idle = [
        (rule.id, case)
        for rule in deliberate()
        for pattern in rule.differs
        for case in pattern.cases
        if case == "*" or not any(fnmatchcase(name, case) for name in names)
    ]
    assert [] == idle
