"""Where a project stands, by its files alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.inspection.making import hostile_states, write, write_state

from handoffd.errors import Refused
from handoffd.inspection.project_status import query_project_status, state_of


def test_a_project_without_a_state_is_not_initialized(tmp_path: Path) -> None:
    """Its name and what its memory says next are told all the same."""
    write(tmp_path, "package.json", '{"name": "@acme/shop"}')
    write(tmp_path, "PROJECT_MEMORY.md", "## NEXT\n- US-001\n")

    found = query_project_status(str(tmp_path))

    assert ("@acme/shop", "not_initialized", "none", 0) == (
        found.project, found.status, found.step, found.attempt,
    )  # fmt: skip
    assert "## NEXT\n- US-001" == found.memory_summary
    with pytest.raises(Refused) as caught:
        state_of(str(tmp_path))
    assert "NOT_INITIALIZED" == caught.value.code


def test_the_state_is_told_with_what_follows(tmp_path: Path) -> None:
    """The step after this one is that of the project's own table."""
    write_state(tmp_path, attempt=2, max_attempts=5, reason=None, tests={"pass": 42, "fail": 2, "skip": 0})
    assert "verify" == query_project_status(str(tmp_path)).next_step

    write(tmp_path, ".ai/step-rules.yaml", "steps:\n  impl: {next_on_pass: update-memory}\n")
    found = query_project_status(str(tmp_path))

    assert ("shop", "US-005", "impl", "update-memory", "running", 2, 5) == (
        found.project, found.story, found.step, found.next_step, found.status, found.attempt,
        found.max_attempts,
    )  # fmt: skip
    assert found.tests is not None
    assert (42, 2) == (found.tests.passed, found.tests.failed)


@pytest.mark.parametrize(
    ("step", "rules", "expected"),
    [("done", "", None), ("unheard-of", "", None), ("impl", "steps: [", "verify")],
)
def test_what_follows_is_not_always_known(
    tmp_path: Path, step: str, rules: str, expected: str | None
) -> None:
    """After the last step nothing does; a table that cannot be used is replaced by the shipped one."""
    write_state(tmp_path, step=step)
    write(tmp_path, ".ai/step-rules.yaml", rules)

    assert expected == query_project_status(str(tmp_path)).next_step


def test_near_misses_are_read_with_a_warning_and_never_written(tmp_path: Path) -> None:
    """Another tool's word for a status is understood; its file stays as it is."""
    write_state(tmp_path, status="passed")
    before = (tmp_path / ".ai/STATE.json").read_bytes()

    found = query_project_status(str(tmp_path))

    assert "pass" == found.status
    assert ("status 'passed' is read as 'pass'",) == found.warnings
    assert before == (tmp_path / ".ai/STATE.json").read_bytes()


@pytest.mark.parametrize("content", hostile_states())
def test_a_state_that_means_nothing_is_invalid(tmp_path: Path, content: bytes) -> None:
    """It is told of, with why; nothing fails."""
    write(tmp_path, ".ai/STATE.json", content)

    found = query_project_status(str(tmp_path))

    assert ("invalid_state", "none") == (found.status, found.step)
    assert found.last_error
    assert len(found.last_error) <= 500


@pytest.mark.parametrize("name", [".ai/STATE.json", ".ai", "PROJECT_MEMORY.md"])
def test_what_lies_in_a_files_place_does_no_harm(tmp_path: Path, name: str) -> None:
    """A folder, or a link out of the project."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).symlink_to("/etc")

    found = query_project_status(str(tmp_path))

    assert found.status in {"invalid_state", "not_initialized"}
    assert found.memory_summary is None
