"""The way from a wrong file to the editor."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.errors import InvalidFile, Problem, Refused, remedies, with_remedy


def remedy(*problems: Problem, folder: str = "/") -> str | None:
    """Return what is to be typed next."""
    return with_remedy(InvalidFile(problems), folder).hint


def test_a_file_is_opened_where_it_is_wrong(tmp_path: Path) -> None:
    """At the first problem; a name with blanks stays one word."""
    file = tmp_path / "my rules.yaml"
    file.touch()
    problems = (Problem(file=str(file), line=3, message="no"), Problem(file=str(file), line=9, message="no"))

    assert f"${{EDITOR:-vi}} +3 '{file}'" == remedy(*problems)
    whole = Problem(file="my rules.yaml", message="no")
    assert f"${{EDITOR:-vi}} '{file}'" == remedy(whole, folder=str(tmp_path))


def test_of_several_files_it_is_one_that_is_there(tmp_path: Path) -> None:
    """The shipped table is not the person's to mend."""
    (tmp_path / "own.yaml").touch()
    problems = (Problem(file="config/step-rules.yaml", message="no"), Problem(file="own.yaml", message="no"))

    assert f"${{EDITOR:-vi}} {tmp_path}/own.yaml" == remedy(*problems, folder=str(tmp_path))


def test_what_is_no_file_is_shown(tmp_path: Path) -> None:
    """A variable, a flag, a file that is missing."""
    assert "printenv HANDOFFD_LOG__LEVEL" == remedy(Problem(file="HANDOFFD_LOG__LEVEL", message="no"))
    assert "env | grep ^HANDOFFD_" == remedy(Problem(file="environment", message="no"))
    assert "handoffd run --help" == remedy(Problem(file="--log-level", message="no"))
    assert f"ls -l {tmp_path}" == remedy(Problem(file=f"{tmp_path}/none.yaml", message="no"))


def test_the_problems_stay_as_they_are() -> None:
    """Only the hint is new."""
    problem = Problem(file="HANDOFFD_X", message="no")

    assert (problem,) == with_remedy(InvalidFile((problem,), hint="a sentence")).problems


def test_what_is_raised_within_gets_its_remedy(tmp_path: Path) -> None:
    """A hint that was no command goes; everything else passes as it is."""
    (tmp_path / "own.yaml").touch()

    with pytest.raises(InvalidFile) as caught, remedies(str(tmp_path)):
        raise InvalidFile((Problem(file="own.yaml", line=2, message="no"),), hint="correct the file")

    assert f"${{EDITOR:-vi}} +2 {tmp_path}/own.yaml" == caught.value.hint
    with pytest.raises(Refused), remedies(str(tmp_path)):
        raise Refused("no")
