"""The status of a project by its files: state, name, and the files that a step reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.inspection.making import hostile_states, write, write_state

from handoffd.errors import InvalidFile, Refused
from handoffd.inspection.project_status import (
    PrerequisiteCheck,
    Prerequisites,
    check_prerequisites,
    prerequisites,
    project_name,
    query_project_status,
    state_of,
)
from handoffd.protocol.rules import Rule


def test_a_project_without_a_state_is_not_initialized(tmp_path: Path) -> None:
    """Its name and the summary of its memory are there all the same."""
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


def test_a_status_has_the_state_and_the_next_step(tmp_path: Path) -> None:
    """The next step is the one of the project's own table."""
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
def test_the_next_step_may_be_unknown(tmp_path: Path, step: str, rules: str, expected: str | None) -> None:
    """The last step has none; the shipped table replaces an invalid one."""
    write_state(tmp_path, step=step)
    write(tmp_path, ".ai/step-rules.yaml", rules)

    assert expected == query_project_status(str(tmp_path)).next_step


def test_near_misses_are_read_with_a_warning_and_never_written(tmp_path: Path) -> None:
    """Another tool's name for a status is understood; its file stays as it is."""
    write_state(tmp_path, status="passed")
    before = (tmp_path / ".ai/STATE.json").read_bytes()

    found = query_project_status(str(tmp_path))

    assert "pass" == found.status
    assert ("status 'passed' is read as 'pass'",) == found.warnings
    assert before == (tmp_path / ".ai/STATE.json").read_bytes()


@pytest.mark.parametrize("content", hostile_states())
def test_an_invalid_state_is_reported_with_the_reason(tmp_path: Path, content: bytes) -> None:
    """Nothing fails."""
    write(tmp_path, ".ai/STATE.json", content)

    found = query_project_status(str(tmp_path))

    assert ("invalid_state", "none") == (found.status, found.step)
    assert found.last_error
    assert len(found.last_error) <= 500


@pytest.mark.parametrize("name", [".ai/STATE.json", ".ai", "PROJECT_MEMORY.md"])
def test_a_link_out_of_the_project_does_no_harm(tmp_path: Path, name: str) -> None:
    """In place of a file or of a folder."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).symlink_to("/etc")

    found = query_project_status(str(tmp_path))

    assert found.status in {"invalid_state", "not_initialized"}
    assert found.memory_summary is None


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("package.json", '{"name": "@acme/shop"}', "@acme/shop"),
        ("pyproject.toml", '[project]\nname = "shop"', "shop"),
        ("pyproject.toml", '[tool.poetry]\nname = "shop"', "shop"),
        ("go.mod", "module example.org/acme/shop\n\ngo 1.23\n", "shop"),
        ("Cargo.toml", '[package]\nname = "shop"', "shop"),
        ("package.json", "{not json", "folder"),
        ("package.json", '["name"]', "folder"),
        ("package.json", '{"name": 5}', "folder"),
        ("package.json", '{"name": "\\u001b[2J"}', "folder"),
        ("package.json", "[" * 100_000, "folder"),
        ("pyproject.toml", "[project\n", "folder"),
    ],
)
def test_a_project_has_the_name_of_its_manifest(tmp_path: Path, file: str, text: str, name: str) -> None:
    """With an invalid manifest it has the folder's name."""
    root = tmp_path / "folder"
    root.mkdir()
    (root / file).write_text(text, encoding="utf-8")

    assert name == project_name(str(root))


def test_a_manifest_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """No file outside of the project is read."""
    (tmp_path / "secret").write_text('{"name": "secret"}', encoding="utf-8")
    root = tmp_path / "folder"
    root.mkdir()
    (root / "package.json").symlink_to(tmp_path / "secret")

    assert "folder" == project_name(str(root))


def rule(*reads: str) -> Rule:
    """Return a rule that reads `reads`."""
    return Rule(next_on_pass="done", on_fail={"default": "x"}, claude_reads=reads)


def test_missing_files_are_named_by_their_expanded_paths(tmp_path: Path) -> None:
    """`US-{story}` is the story's id."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/sdd.md").touch()

    found = prerequisites(str(tmp_path), rule("docs/sdd.md", "docs/bdd/US-{story}.md"), "7", 1)

    assert Prerequisites(
        reads=("docs/sdd.md", "docs/bdd/US-7.md"), missing=("docs/bdd/US-7.md",), rollback_target="bdd"
    ) == found  # fmt: skip


def test_patterns_and_a_first_attempts_handoff_are_never_missing(tmp_path: Path) -> None:
    """A pattern may match no file, and before the first attempt there is no hand-off."""
    reads = rule("docs/**", "src/[ab].py", ".ai/HANDOFF.md")

    assert () == prerequisites(str(tmp_path), reads, "US-1", 1).missing
    assert (".ai/HANDOFF.md",) == prerequisites(str(tmp_path), reads, "US-1", 2).missing


def test_a_path_out_of_the_project_is_never_checked(tmp_path: Path) -> None:
    """It does not count as missing, so an answer reveals nothing about it."""
    assert () == prerequisites(str(tmp_path), rule("../secret", "/etc/shadow"), "US-1", 1).missing


@pytest.mark.parametrize(
    ("missing", "step"),
    [
        (("docs/bdd/US-{story}.md",), "bdd"),
        (("docs/deltas/US-{story}.md",), "sdd-delta"),
        (("docs/api/openapi.yaml",), "contract"),
        (("docs/sdd.md",), "bootstrap"),
        (("PROJECT_MEMORY.md",), "bootstrap"),
        (("docs/nfr.md",), None),
        (("docs/sdd.md", "docs/api/x.yaml", "docs/deltas/US-1.md", "docs/bdd/US-1.md"), "bdd"),
        (("docs/sdd.md", "docs/api/x.yaml", "docs/deltas/US-1.md"), "sdd-delta"),
        (("PROJECT_MEMORY.md", "docs/api/x.yaml"), "contract"),
        (("specs/bdd/x.md",), "bdd"),
        (("docs/myapi/x.yaml",), None),
    ],
)
def test_the_step_that_makes_a_missing_file_is_suggested(
    tmp_path: Path, missing: tuple[str, ...], step: str | None
) -> None:
    """Of several the one for scenarios, delta, contract, project, in this order; none for other files."""
    assert step == prerequisites(str(tmp_path), rule(*missing), "US-1", 1).rollback_target


def test_a_path_that_cannot_be_read_is_missing(tmp_path: Path) -> None:
    """An executor cannot read it either."""
    name = "x" * 300

    assert (name,) == prerequisites(str(tmp_path), rule(name), "US-1", 1).missing


def test_the_current_step_is_checked_by_the_projects_own_table(tmp_path: Path) -> None:
    """Each missing file is a warning; there is the step that makes it."""
    write_state(tmp_path, step="sdd-delta")
    for name in ("PROJECT_CONTEXT.md", "PROJECT_MEMORY.md", "docs/sdd.md"):
        write(tmp_path, name)

    lacking = PrerequisiteCheck(
        ok=False,
        missing=("docs/bdd/US-005.md",),
        warnings=("Missing prerequisite: docs/bdd/US-005.md",),
        suggested_rollback="bdd",
        next_command=f"handoffd rollback {tmp_path} bdd",
    )
    assert lacking == check_prerequisites(str(tmp_path))

    write(tmp_path, ".ai/step-rules.yaml", "steps:\n  sdd-delta: {claude_reads: [docs/sdd.md]}\n")
    assert PrerequisiteCheck(ok=True) == check_prerequisites(str(tmp_path))


@pytest.mark.parametrize(
    ("state", "reads", "target", "command"),
    [
        ({"step": "impl"}, "docs/sdd.md", "bootstrap", "bootstrap --force"),
        ({"step": "custom", "task_type": "custom"}, "docs/sdd.md", "bootstrap", None),
        ({"step": "bdd"}, "docs/deltas/US-{story}.md", "sdd-delta", None),
        ({"step": "bdd"}, "docs/nfr.md", None, None),
    ],
)
def test_the_next_command_is_one_that_the_daemon_accepts(
    tmp_path: Path, state: dict[str, str], reads: str, target: str | None, command: str | None
) -> None:
    """There is none if the rollback would be refused."""
    write_state(tmp_path, **state)
    rules = f"steps:\n  {state['step']}: {{claude_reads: ['{reads}']}}\n"
    write(tmp_path, ".ai/step-rules.yaml", rules)

    found = check_prerequisites(str(tmp_path))

    expected = None if command is None else f"handoffd rollback {tmp_path} {command}"
    assert (target, expected) == (found.suggested_rollback, found.next_command)


def test_a_story_that_is_done_reads_nothing(tmp_path: Path) -> None:
    """It has no current step."""
    write_state(tmp_path, step="done", status="pass")

    assert PrerequisiteCheck(ok=True) == check_prerequisites(str(tmp_path))


def test_a_project_that_cannot_be_checked_is_refused(tmp_path: Path) -> None:
    """Without a state, at a step that the table does not have, with an invalid state."""
    with pytest.raises(Refused) as caught:
        check_prerequisites(str(tmp_path))
    assert ("NOT_INITIALIZED", f"handoffd init {tmp_path}") == (caught.value.code, caught.value.hint)

    write_state(tmp_path, step="polish")
    with pytest.raises(Refused) as caught:
        check_prerequisites(str(tmp_path))
    assert "UNKNOWN_STEP" == caught.value.code

    write(tmp_path, ".ai/STATE.json", "{")
    with pytest.raises(InvalidFile):
        check_prerequisites(str(tmp_path))
