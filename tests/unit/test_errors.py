"""What a person is told when something cannot be done."""

from __future__ import annotations

import pytest

from handoffd.errors import (
    ConfigurationError,
    HandoffdError,
    InvalidFile,
    Locked,
    NoDaemon,
    NotFound,
    Problem,
    Refused,
    StoreError,
)


@pytest.mark.parametrize(
    ("family", "code", "exit_code"),
    [
        (HandoffdError, "ERROR", 1),
        (Refused, "REFUSED", 1),
        (Locked, "LOCKED", 1),
        (StoreError, "STORE_ERROR", 1),
        (NoDaemon, "NO_DAEMON", 3),
        (NotFound, "NOT_FOUND", 4),
        (ConfigurationError, "BAD_CONFIGURATION", 78),
    ],
)
def test_each_family_has_its_codes(family: type[HandoffdError], code: str, exit_code: int) -> None:
    """Scripts depend on both; a code of its own takes the family's place."""
    error = family("it is so", hint="handoffd status")

    assert (code, exit_code, "it is so", "handoffd status") == (
        error.code, error.exit_code, error.message, error.hint
    )  # fmt: skip
    assert "OWN" == family("it is so", code="OWN").code


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem(file="a.yaml", message="is empty"), "a.yaml: is empty"),
        (Problem(file="a.yaml", line=3, message="is empty"), "a.yaml:3: is empty"),
        (
            Problem(
                file="a.yaml",
                line=3,
                key="steps.impl.tests",
                message="unknown value 'blue'",
                allowed=("red",),
            ),
            "a.yaml:3: steps.impl.tests: unknown value 'blue' (allowed: red)",
        ),
    ],
)
def test_a_problem_names_file_line_key_and_what_is_allowed(problem: Problem, text: str) -> None:
    """As far as they are known."""
    assert text == str(problem)


def test_an_invalid_file_lists_every_problem() -> None:
    """One line each: nobody should have to try again for the next one."""
    error = InvalidFile((Problem(file="a", message="one"), Problem(file="a", message="two")))

    assert ("a: one\na: two", "INVALID_FILE", 1) == (str(error), error.code, error.exit_code)
    one: dict[str, object] = {"file": "a", "line": None, "key": None, "message": "one", "allowed": []}
    assert {"problems": [one, {**one, "message": "two"}]} == error.details
