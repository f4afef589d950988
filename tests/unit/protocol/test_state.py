"""STATE.json: its models, its text, and JSON of strangers."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from handoffd.errors import InvalidFile
from handoffd.protocol.state import (
    MAX_BYTES,
    STEP_ALIASES,
    Reason,
    State,
    Status,
    TestCounts,
    canonical_step,
    encoded,
    load_object,
    near_reason,
    near_status,
    parse_state,
    render_state,
    same_step,
)


# --- models ------------------------------------------------------------------------------------------
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


# --- text --------------------------------------------------------------------------------------------
STATES = Path(__file__).parents[2] / "data" / "states"

FIELDS = tuple(State.model_fields)

MINIMAL = {"project": "shop", "step": "impl", "status": "pending"}

NOON = "2026-01-31T12:00:00"


def parsed(**changes: Any) -> State:
    """Return the state of a minimal document with `changes`."""
    return parse_state(json.dumps({**MINIMAL, **changes})).state


@pytest.mark.parametrize("path", sorted(STATES.glob("*.json")), ids=lambda path: path.stem)
def test_documents_come_back_byte_for_byte(path: Path) -> None:
    """Reading and writing changes nothing: keys, order, numbers, text in any script."""
    text = path.read_text(encoding="utf-8")

    read = parse_state(text)

    assert text == render_state(read.state)
    assert () == read.warnings


def test_a_new_project_starts_at_bootstrap() -> None:
    """The initial state is the protocol's, in the order of its schema."""
    assert (STATES / "initial.json").read_text(encoding="utf-8") == render_state(State(project="shop"))


def test_changes_leave_unknown_keys_in_their_place() -> None:
    """A change of known fields moves nothing; keys that are new follow in the order of the schema."""
    text = '{"x": {"b": 1, "a": [2]}, "status": "running", "y": null, "project": "p", "step": "bdd"}'
    state = parse_state(text).state

    written = json.loads(render_state(state.with_(status=Status.PASS, attempt=2)))

    assert ["x", "status", "y", "project", "step"] == list(written)[:5]
    assert [name for name in FIELDS if name not in ("status", "project", "step")] == list(written)[5:]
    values = {"x": {"b": 1, "a": [2]}, "y": None, "status": "pass", "attempt": 2}
    assert values == {key: written[key] for key in values}
    assert ["b", "a"] == list(written["x"])


def test_keys_inside_tests_keep_their_place() -> None:
    """Unknown counts stay where they were; new counts take the old ones' places."""
    state = parsed(tests={"fail": 1, "slow": 7, "pass": 2})

    assert ["fail", "slow", "pass", "skip"] == list(json.loads(render_state(state))["tests"])
    replaced = state.with_(tests=TestCounts.model_validate({"pass": 3}))
    assert {"fail": 0, "pass": 3, "skip": 0} == json.loads(render_state(replaced))["tests"]
    assert json.loads(render_state(state.with_(tests=None)))["tests"] is None


@pytest.mark.parametrize(
    ("changes", "key", "value", "warning"),
    [
        ({"status": "passing"}, "status", "pass", "status 'passing' is read as 'pass'"),
        ({"status": "FAILED"}, "status", "failing", "status 'FAILED' is read as 'failing'"),
        ({"status": "blocked"}, "status", "needs_human", "status 'blocked' is read as 'needs_human'"),
        ({"reason": "Scope Warning"}, "reason", "scope_warning", "'Scope Warning' is read as"),
        ({"reason": "moon"}, "reason", None, "reason 'moon' is not known"),
        ({"reason": "moon"}, "last_error", "unknown reason 'moon'", "reason 'moon'"),
        ({"reason": "moon", "last_error": "e"}, "last_error", "e; unknown reason 'moon'", "reason 'moon'"),
        ({"reason": ""}, "reason", None, "reason was blank"),
        ({"story": " "}, "story", None, "story was blank"),
        ({"files_changed": None}, "files_changed", [], "files_changed was null"),
        ({"dispatched_at": NOON}, "dispatched_at", f"{NOON}.000Z", "dispatched_at has no offset"),
        ({"tests": {"failed": 3}}, "tests", {"fail": 3, "pass": 0, "skip": 0}, "is read as tests.fail"),
    ],
)
def test_near_misses_are_normalised_with_a_warning(
    changes: dict[str, Any], key: str, value: object, warning: str
) -> None:
    """They are read all the same."""
    read = parse_state(json.dumps({**MINIMAL, **changes}))

    assert value == json.loads(render_state(read.state))[key]
    assert len(read.warnings) == 1
    assert warning in read.warnings[0]


def test_every_problem_is_reported_with_its_place() -> None:
    """One error is enough to repair the file."""
    text = (
        '{\n "status": "green",\n "story": "../x",\n "attempt": "2",\n "tests": {\n  "pass": -1},\n'
        ' "failing_tests": ["a",\n 1]\n, "project": "p"}'
    )

    with pytest.raises(InvalidFile) as caught:
        parse_state(text, file="here.json")

    found = {problem.key: problem.line for problem in caught.value.problems}
    places = {"step": None, "story": 3, "attempt": 4, "status": 2, "tests.pass": 6, "failing_tests.1": 8}
    assert places == found
    assert {"here.json"} == {problem.file for problem in caught.value.problems}


def test_a_flood_of_problems_is_cut() -> None:
    """A list of wrong items is reported by the first one."""
    with pytest.raises(InvalidFile) as caught:
        parsed(failing_tests=[1] * 5000)

    assert ["failing_tests.0"] == [problem.key for problem in caught.value.problems]


def test_an_unknown_status_names_those_that_are_allowed() -> None:
    """A status is never guessed."""
    with pytest.raises(InvalidFile) as caught:
        parsed(status="green")

    (problem,) = caught.value.problems
    assert tuple(Status) == problem.allowed
    assert '"green"' in problem.message


@pytest.mark.parametrize("key", sorted(MINIMAL))
def test_keys_that_cannot_be_guessed_must_be_there(key: str) -> None:
    """Project, step and status have no default in a file."""
    with pytest.raises(InvalidFile) as caught:
        parse_state(json.dumps({name: value for name, value in MINIMAL.items() if name != key}))

    assert [(key, "is missing")] == [(problem.key, problem.message) for problem in caught.value.problems]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)

ODD = ["_layout", "with_", "model_config", "tests\0a", "__class__", "passed"]

KEY = st.text(max_size=12) | st.sampled_from(ODD)


@settings(max_examples=80)
@given(unknown=st.dictionaries(KEY, JSON, max_size=6), order=st.randoms(use_true_random=False))
def test_unknown_keys_survive_untouched_and_in_place(unknown: dict[str, Any], order: Any) -> None:
    """Whatever other tools keep in the file is there afterwards: same place, same value."""
    items = [*({key: value for key, value in unknown.items() if key not in FIELDS} | MINIMAL).items()]
    order.shuffle(items)
    document = dict(items)

    state = parse_state(json.dumps(document)).state.with_(attempt=3)
    written = json.loads(render_state(state))

    assert list(document) == list(written)[: len(document)]
    assert document == {key: written[key] for key in document}
    assert render_state(state) == render_state(parse_state(render_state(state)).state)


# --- strict JSON -------------------------------------------------------------------------------------
def test_every_value_has_its_line() -> None:
    """Keys in objects and items of lists are found, whatever strings hold."""
    text = '{\n "a": "}{ \\" [,",\n "b": {"c": [1,\n 2, {"d":\n 3}]},\n "a:b": 4}'

    raw = load_object(text, "f.json")

    lines = {
        ("a",): 2, ("b", "c"): 3, ("b", "c", 1): 4, ("b", "c", 2): 4, ("b", "c", 2, "d"): 5, ("a:b",): 6,
    }  # fmt: skip
    assert lines == raw.lines_of({*lines, ("c",)})
    assert raw.data == load_object(b"\xef\xbb\xbf" + text.encode(), "f.json").data  # a byte order mark


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "is empty"),
        (" \n", 2, "is empty"),
        ('{"a": 1,\n}', 2, "not valid JSON"),
        ('{"a": 1', 1, "not valid JSON"),
        ("[1]", 1, "must be a JSON object"),
        ('{"a": 1,\n"a": 2}', 2, "given twice"),
        ('{"a": {"b": 1, "b": 2}}', 1, "given twice"),
        ('{"a": NaN}', None, "cannot be kept"),
        ('{"a": -Infinity}', None, "cannot be kept"),
        ('{"a": 1e999}', None, "cannot be kept"),
        ('{"a": ' + "9" * 5000 + "}", None, "cannot be kept"),
        ('{"a": "\\ud800"}', None, "surrogate"),
        ('{"\\udfff": 1}', None, "surrogate"),
        ('{"a":' * 51 + "1" + "}" * 51, None, "nested"),
        ('{"a":' + "[" * 100_000, None, "nested"),
        (b'{"a":\n "\xff"}', 2, "not UTF-8"),
        (" " * (MAX_BYTES + 1), None, "larger than 1024 KiB"),
    ],
)
def test_json_that_is_refused(text: str | bytes, line: int | None, message: str) -> None:
    """Each refusal is one problem that says where and why."""
    with pytest.raises(InvalidFile) as caught:
        load_object(text, "f.json")

    (problem,) = caught.value.problems
    assert message in problem.message
    assert line == problem.line


@pytest.mark.parametrize("text", ["plain", "half \ud800"])
def test_a_number_that_is_not_finite_is_null(text: str) -> None:
    """Beside any text: JSON has no such numbers."""
    assert {"text": text, "number": None} == json.loads(
        encoded({"text": text, "number": math.inf}), parse_constant=lambda name: name
    )
