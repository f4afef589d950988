"""The settings and the step table as a project's files say, trusted or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.inspection.making import write

from handoffd.errors import InvalidFile
from handoffd.inspection.own_files import book_of, layers_of, settings_of, shipped_layers, table_of


def test_a_project_without_files_shares_the_shipped_table(tmp_path: Path) -> None:
    """A thousand of them cost no more than one."""
    assert table_of(str(tmp_path)) is book_of(shipped_layers(None))
    assert settings_of(str(tmp_path)).preset is None


def test_the_projects_own_files_lie_over_a_preset(tmp_path: Path) -> None:
    """Settings choose the preset, the table changes what they did not say."""
    write(tmp_path, ".ai/handoffd.yaml", "preset: with-commit\n")
    write(tmp_path, ".ai/step-rules.yaml", "steps:\n  impl: {max_attempts: 9}\n")

    table = table_of(str(tmp_path))

    assert ("commit", 9) == (table.steps["verify"].next_on_pass, table.steps["impl"].max_attempts)
    assert ".ai/step-rules.yaml" == layers_of(str(tmp_path))[-1].file


def test_a_step_with_a_template_of_its_own_needs_no_instruction(tmp_path: Path) -> None:
    """As for the daemon."""
    write(tmp_path, ".ai/step-rules.yaml", (
        "steps:\n  polish: {next_on_pass: update-memory, next_on_fail: polish}\n"
        "  verify: {next_on_pass: polish}\n"
    ))  # fmt: skip
    with pytest.raises(InvalidFile):
        table_of(str(tmp_path))

    write(tmp_path, ".ai/prompts/en/steps/polish.j2", "Polish it.\n")

    assert "polish" in table_of(str(tmp_path)).steps


@pytest.mark.parametrize("name", ["handoffd.yaml", "step-rules.yaml"])
def test_a_file_that_means_nothing_is_named(tmp_path: Path, name: str) -> None:
    """With the line, for whoever mends it."""
    write(tmp_path, f".ai/{name}", "a: [")

    with pytest.raises(InvalidFile) as caught:
        table_of(str(tmp_path))
    assert f".ai/{name}" == caught.value.problems[0].file


def test_an_unknown_preset_is_answered_with_those_there_are() -> None:
    """In terms of the project's settings, which chose it."""
    with pytest.raises(InvalidFile) as caught:
        shipped_layers("rust")
    assert "go" in caught.value.problems[0].allowed
