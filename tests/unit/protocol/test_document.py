"""STATE.json as text: what survives, what is normalised, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoffd.errors import InvalidFile
from handoffd.protocol.state import MAX_PROBLEMS, State, Status, TestCounts, parse_state, render_state

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
    """A list of wrong items is reported by its first ones."""
    with pytest.raises(InvalidFile) as caught:
        parsed(failing_tests=[1] * 5000)

    assert MAX_PROBLEMS == len(caught.value.problems)


def test_an_unknown_status_names_those_that_are_allowed() -> None:
    """A status is never guessed."""
    with pytest.raises(InvalidFile) as caught:
        parsed(status="green")

    (problem,) = caught.value.problems
    assert tuple(Status) == problem.allowed
    assert '"green"' in problem.message


@pytest.mark.parametrize("key", sorted(MINIMAL))
def test_what_cannot_be_guessed_must_be_there(key: str) -> None:
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


@settings(max_examples=80, deadline=None)
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
