"""Errors that a person can act on, and the next command that they name."""

from __future__ import annotations

from pathlib import Path

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
    remedies,
    with_remedy,
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
    """Scripts depend on both; an error's own code replaces the family's."""
    error = family("it is so", hint="handoffd status")

    assert (code, exit_code, "it is so", "handoffd status") == (
        error.code, error.exit_code, error.message, error.hint
    )  # fmt: skip
    assert "OWN" == family("it is so", code="OWN").code


def test_a_problem_names_file_line_key_and_allowed_values() -> None:
    """As far as they are known."""
    whole = Problem(file="a.yaml", message="is empty")
    line = Problem(file="a.yaml", line=3, message="is empty")
    key = Problem(file="a.yaml", line=3, key="steps.impl.tests", message="is blue", allowed=("red", "no"))

    assert "a.yaml: is empty" == str(whole)
    assert "a.yaml:3: is empty" == str(line)
    assert "a.yaml:3: steps.impl.tests: is blue (allowed: red, no)" == str(key)


def test_an_invalid_file_lists_every_problem() -> None:
    """One line each."""
    error = InvalidFile((Problem(file="a", message="one"), Problem(file="a", message="two")))

    assert ("a: one\na: two", "INVALID_FILE", 1) == (str(error), error.code, error.exit_code)
    one: dict[str, object] = {
        "file": "a",
        "line": None,
        "key": None,
        "message": "one",
        "allowed": [],
        "meant": None,
    }
    assert {"problems": [one, {**one, "message": "two"}]} == error.details


def remedy(*problems: Problem, folder: str = "/") -> str | None:
    """Return the next command."""
    return with_remedy(InvalidFile(problems), folder).hint


def test_a_file_is_opened_where_it_is_wrong(tmp_path: Path) -> None:
    """At the first problem; a name with blanks stays one word."""
    file = tmp_path / "my rules.yaml"
    file.touch()
    problems = (Problem(file=str(file), line=3, message="no"), Problem(file=str(file), line=9, message="no"))

    assert f"${{EDITOR:-vi}} +3 '{file}'" == remedy(*problems)
    whole = Problem(file="my rules.yaml", message="no")
    assert f"${{EDITOR:-vi}} '{file}'" == remedy(whole, folder=str(tmp_path))


def test_of_several_files_it_opens_one_that_exists(tmp_path: Path) -> None:
    """People do not edit the shipped table."""
    (tmp_path / "own.yaml").touch()
    problems = (Problem(file="config/step-rules.yaml", message="no"), Problem(file="own.yaml", message="no"))

    assert f"${{EDITOR:-vi}} {tmp_path}/own.yaml" == remedy(*problems, folder=str(tmp_path))


def test_other_sources_are_shown(tmp_path: Path) -> None:
    """A variable, a flag, a missing file."""
    assert "printenv HANDOFFD_LOG__LEVEL" == remedy(Problem(file="HANDOFFD_LOG__LEVEL", message="no"))
    assert "env | grep ^HANDOFFD_" == remedy(Problem(file="environment", message="no"))
    assert "handoffd run --help" == remedy(Problem(file="--log-level", message="no"))
    assert f"ls -l {tmp_path}" == remedy(Problem(file=f"{tmp_path}/none.yaml", message="no"))


def test_an_error_raised_inside_gets_its_remedy(tmp_path: Path) -> None:
    """It replaces a hint that is not a command; the problems and other errors stay as they are."""
    (tmp_path / "own.yaml").touch()
    problem = Problem(file="own.yaml", line=2, message="no")

    with pytest.raises(InvalidFile) as caught, remedies(str(tmp_path)):
        raise InvalidFile((problem,), hint="correct the file")

    assert f"${{EDITOR:-vi}} +2 {tmp_path}/own.yaml" == caught.value.hint
    assert (problem,) == caught.value.problems
    with pytest.raises(Refused), remedies(str(tmp_path)):
        raise Refused("no")
