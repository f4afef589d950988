"""The comparison itself: what counts as a difference, and what a rule explains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.differential.comparing import Compared, Difference, Judgement, Rule, compared, deliberate, judged
from tests.differential.outcomes import Spoken, outcome

STATE: dict[str, Any] = {"step": "impl", "status": "pass", "attempt": 1}
JSON: dict[str, Any] = {
    "exit": 0,
    "stdout": {"json": {"type": "applied", "n": 1}},
    "state": STATE,
    "made": {},
    "texts": {},
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
    return [(one.at, one.theirs, one.ours) for one in compared("c", "v", theirs, ours).differences]


def judgement_of(found: list[Difference], rules: tuple[Rule, ...], **same: object) -> Judgement:
    """Return what rules make of the differences of one case; `same` is what both programs have at a path."""
    return judged([Compared(found[0].case, found[0].verb, tuple(found), same)], rules)


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

    judgement = judgement_of(found, deliberate(file))

    assert (explained, not explained) == (not judgement.unexplained, "x" in judgement.idle)


def test_what_follows_is_explained_with_what_it_follows_from(tmp_path: Path) -> None:
    """An exit code alone is not excused by a rule about another answer."""
    file = tmp_path / "rules.yaml"
    file.write_text(
        "differences:\n- {id: x, what: a, why: b, verbs: [v], differs: ["
        "{at: stdout, theirs: applied, ours: nothing}, {at: exit, theirs: 0, ours: 1}]}\n"
    )
    exits = Difference("c", "v", "exit", 0, 1)

    assert (exits,) == judgement_of([exits], deliberate(file)).unexplained
    told = Difference("c", "v", "stdout", "applied", "nothing")
    assert () == judgement_of([exits, told], deliberate(file)).unexplained


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
    found = compared("c", "v", JSON, other, {**STATE, "attempt": 2})

    assert explained == (not judged([found], deliberate(file)).unexplained)


def test_a_difference_can_be_of_some_cases(tmp_path: Path) -> None:
    """Fewer than the rule covers."""
    file = tmp_path / "rules.yaml"
    file.write_text(RULE.replace("{at:", '{in: ["status @ her*"], at:'))
    here, near = (
        Difference(f"status @ {place}", "status", "state.x", "pass", "failing")
        for place in ("here", "we here")
    )

    assert () == judgement_of([here], deliberate(file)).unexplained
    assert (near,) == judgement_of([near], deliberate(file)).unexplained


def test_a_line_that_explains_nothing_is_told(tmp_path: Path) -> None:
    """Though others of its rule do."""
    file = tmp_path / "rules.yaml"
    file.write_text(RULE + "      - {at: exit, theirs: 0, ours: 1}\n")
    found = [Difference("status @ here", "status", "state.x", "pass", "failing")]

    judgement = judgement_of(found, deliberate(file))

    expected = ("x: state.*, ours timeout", "x: exit, theirs (0,), ours (1,)")
    assert expected == judgement.idle


def test_a_rule_is_too_broad_where_the_programs_agree(tmp_path: Path) -> None:
    """What the reference has there would be explained, if ours had something else by mistake."""
    file = tmp_path / "rules.yaml"
    file.write_text(RULE)
    found = [Difference("status @ here", "status", "state.status", "pass", "failing")]

    assert () == judgement_of(found, deliberate(file), **{"state.status": "running"}).broad
    broad = judgement_of(found, deliberate(file), **{"state.status": "pass"}).broad
    assert ("x: state.*, theirs 'pass', in status @ here",) == broad
    file.write_text(RULE.replace("theirs:", 'but: ["status @ h?re"], theirs:'))
    assert found == list(judgement_of(found, deliberate(file)).unexplained)


def test_a_verb_of_a_sequence_is_known_with_and_without_what_is_beside(tmp_path: Path) -> None:
    """But for its number, which says nothing of a difference."""
    file = tmp_path / "rules.yaml"
    found = [Difference("status @ here (after others) #7.2", "status", "state.status", "pass", "failing")]

    for pattern, explained in (("* here", True), ("* here (*others)", True), ("* #7.2", False)):
        file.write_text(RULE.replace("* here", pattern))
        assert explained == (not judgement_of(found, deliberate(file)).unexplained)


def test_sentences_and_moments_are_not_compared(tmp_path: Path) -> None:
    """That they are there is."""
    said = {"type": "error", "message": f"no {tmp_path}", "state": {"dispatched_at": "2026-01-01T00:00:00Z"}}

    found = outcome(Spoken(1, json.dumps(said, indent=2) + "\n", ""), tmp_path, {}, prompt_only=False)

    told = {"type": "error", "message": "<text>", "state": {"dispatched_at": "<moment>"}}
    assert {"exit": 1, "stdout": {"json": told}, "state": None, "made": {}, "texts": {}} == found


def test_files_are_compared_word_for_word_but_for_moments_and_hashes(tmp_path: Path) -> None:
    """Those that both have made or changed; else that they did is the difference."""
    (tmp_path / "new.md").write_text("by CUSTOM-1700000000000 at 2026-01-02T03:04:05.678Z, " + "a1" * 20)
    (tmp_path / "changed.md").write_text("after")

    found = outcome(Spoken(0, "", ""), tmp_path, {"changed.md": "before", "gone.md": ""}, prompt_only=False)

    assert {"changed.md": "<changed>", "gone.md": "<gone>", "new.md": "<new>"} == found["made"]
    assert {"changed.md": "after", "new.md": "by CUSTOM-<n> at <moment>, <hash>"} == found["texts"]
    other = {**found, "texts": {**found["texts"], "changed.md": "otherwise"}}
    assert [("texts.changed.md", "after", "otherwise")] == paths(found, other)
    assert [("made.new.md", "<new>", "<absent>")] == paths(
        found,
        {
            **found,
            "made": {name: one for name, one in found["made"].items() if name != "new.md"},
            "texts": {"changed.md": "after"},
        },
    )


def test_no_rule_is_of_all_cases() -> None:
    """One that fits everything hides something."""
    assert [] == [rule.id for rule in deliberate() for pattern in rule.differs if "*" in pattern.cases]
