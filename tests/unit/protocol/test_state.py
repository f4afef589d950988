"""The models of STATE.json and the names people misspell."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from handoffd.protocol.state import (
    STEP_ALIASES,
    Reason,
    State,
    Status,
    canonical_step,
    near_reason,
    near_status,
    parse_state,
    same_step,
)


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("pass", Status.PASS), ("Passed", Status.PASS), ("passing", Status.PASS), ("done", Status.PASS),
        ("complete", Status.PASS), ("COMPLETED ", Status.PASS), ("failed", Status.FAILING),
        ("fail", Status.FAILING), ("failure", Status.FAILING), ("timed_out", Status.TIMEOUT),
        ("timed-out", Status.TIMEOUT), ("timedout", Status.TIMEOUT), ("human", Status.NEEDS_HUMAN),
        ("blocked", Status.NEEDS_HUMAN), ("needs human", Status.NEEDS_HUMAN), ("green", None), ("", None),
    ],
)  # fmt: skip
def test_near_misses_of_a_status_are_understood(word: str, status: Status | None) -> None:
    """Known other words, any case and any separator mean the status; nothing else is guessed."""
    assert status == near_status(word)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("scope_warning", Reason.SCOPE_WARNING),
        ("NEEDS CLARIFICATION", Reason.NEEDS_CLARIFICATION),
        ("test-timeout", Reason.TEST_TIMEOUT),
        ("because", None),
    ],
)
def test_a_reason_is_understood_in_any_spelling(word: str, reason: Reason | None) -> None:
    """Case and separators do not matter; an unknown reason is none."""
    assert reason == near_reason(word)


@pytest.mark.parametrize(("alias", "step"), STEP_ALIASES.items())
def test_every_alias_names_its_step(alias: str, step: str) -> None:
    """Aliases are resolved with hyphens, underscores and capitals alike."""
    assert step == canonical_step(alias)
    assert step == canonical_step(alias.upper().replace("-", "_"))


def test_a_step_of_ones_own_is_not_an_alias() -> None:
    """A name that is not known stays, but for its spelling."""
    assert "load-test" == canonical_step(" Load test ")
    assert same_step("load_test", "load-test")
    assert not same_step("load-test", "impl")


@pytest.mark.parametrize("minutes", [5, 0, 2.5])
def test_a_number_of_minutes_stays_as_it_was_written(minutes: float) -> None:
    """5 does not become 5.0, in the value or in JSON."""
    state = State(project="p", timeout_min=minutes)

    assert repr(minutes) == repr(state.timeout_min)
    assert f'"timeout_min":{minutes!r},' in state.model_dump_json()


@pytest.mark.parametrize(
    "changes",
    [
        {"attempt": True}, {"attempt": "2"}, {"attempt": 0}, {"attempt": 2.0}, {"attempt": 10**12},
        {"timeout_min": -1}, {"timeout_min": "5"}, {"timeout_min": True}, {"timeout_min": float("inf")},
        {"timeout_min": float("nan")}, {"timeout_min": 1e12}, {"lint_pass": "yes"}, {"agent_teams": 1},
        {"project": ""}, {"step": ""}, {"dispatched_at": 1769897709}, {"dispatched_at": "yesterday"},
        {"completed_at": "0001-01-01T00:00:00+14:00"}, {"tests": {"pass": -1}}, {"tests": {"fail": "1"}},
        {"failing_tests": "one"}, {"status": "green"}, {"reason": "because"},
    ],
)  # fmt: skip
def test_values_of_the_wrong_kind_are_refused(changes: dict[str, Any]) -> None:
    """Nothing is converted silently, and no number is large enough to break a date or a column."""
    with pytest.raises(ValidationError):
        State.model_validate({"project": "p", **changes})


@pytest.mark.parametrize("text", ["2026-01-31T22:15:09Z", "2026-02-01T06:15:09+08:00", "2026-01-31T22:15:09"])
def test_moments_are_in_utc(text: str) -> None:
    """Whatever the offset, and without one, a moment can be compared with any other."""
    state = State.model_validate({"project": "p", "dispatched_at": text})

    assert datetime(2026, 1, 31, 22, 15, 9, tzinfo=UTC) == state.dispatched_at


def test_a_copy_with_changes_keeps_everything_else() -> None:
    """Unknown keys and the order of keys, the original is unchanged, and no misspelt field gets in."""
    state = parse_state('{"x": [1], "status": "pending", "step": "bdd", "project": "p"}').state

    changed = state.with_(status=Status.PASS)

    assert (Status.PENDING, Status.PASS) == (state.status, changed.status)
    assert {"x": [1]} == changed.model_extra == state.model_extra
    assert ("x", "status", "step", "project") == changed._layout == state._layout
    assert state == changed.with_(status=Status.PENDING)
    with pytest.raises(AssertionError, match="no such field"):
        state.with_(staus=Status.PASS)


def test_equality_is_of_values_not_of_presentation() -> None:
    """Two states that differ in the order of their keys alone are equal, and hash alike."""
    one, other = State(project="p", step="bdd"), State(step="bdd", project="p")
    other._layout = ("step", "project")

    assert one == other
    assert hash(one) == hash(other)
    assert one != other.with_(step="impl")
    assert one != State.model_validate({"project": "p", "step": "bdd", "x": 1})
