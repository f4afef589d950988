"""What a step reads and cannot: told, with the step that would make it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.inspection.making import write, write_state

from handoffd.errors import InvalidFile, Refused
from handoffd.inspection.project_status import (
    PrerequisiteCheck,
    Prerequisites,
    check_prerequisites,
    prerequisites,
)
from handoffd.protocol.rules import Rule


def rule(*reads: str) -> Rule:
    """Return a rule that reads `reads`."""
    return Rule(next_on_pass="done", on_fail={"default": "x"}, claude_reads=reads)


def test_missing_files_are_named_by_their_expanded_paths(tmp_path: Path) -> None:
    """`US-{story}` is the story's id; what is there is not missing."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/sdd.md").touch()

    found = prerequisites(str(tmp_path), rule("docs/sdd.md", "docs/bdd/US-{story}.md"), "7", 1)

    assert Prerequisites(
        reads=("docs/sdd.md", "docs/bdd/US-7.md"), missing=("docs/bdd/US-7.md",), rollback_target="bdd"
    ) == found  # fmt: skip


def test_patterns_and_a_first_attempts_handoff_are_not_looked_for(tmp_path: Path) -> None:
    """A pattern may rightly match nothing, and nobody has handed over yet."""
    reads = rule("docs/**", "src/[ab].py", ".ai/HANDOFF.md")

    assert () == prerequisites(str(tmp_path), reads, "US-1", 1).missing
    assert (".ai/HANDOFF.md",) == prerequisites(str(tmp_path), reads, "US-1", 2).missing


@pytest.mark.parametrize(
    ("missing", "step"),
    [
        ("docs/bdd/US-{story}.md", "bdd"),
        ("docs/deltas/US-{story}.md", "sdd-delta"),
        ("docs/api/openapi.yaml", "contract"),
        ("docs/sdd.md", "bootstrap"),
        ("PROJECT_MEMORY.md", "bootstrap"),
        ("docs/nfr.md", None),
    ],
)
def test_the_step_that_makes_a_file_is_suggested(tmp_path: Path, missing: str, step: str | None) -> None:
    """Whoever wants to roll back knows how far; nothing is suggested for a file that no step makes."""
    assert step == prerequisites(str(tmp_path), rule(missing), "US-1", 1).rollback_target


def test_a_path_out_of_the_project_is_never_looked_at(tmp_path: Path) -> None:
    """It is named to nobody as missing, and nothing is learnt about it."""
    assert () == prerequisites(str(tmp_path), rule("../secret", "/etc/shadow"), "US-1", 1).missing


@pytest.mark.parametrize(
    ("missing", "step"),
    [
        (("docs/sdd.md", "docs/api/x.yaml", "docs/deltas/US-1.md", "docs/bdd/US-1.md"), "bdd"),
        (("docs/sdd.md", "docs/api/x.yaml", "docs/deltas/US-1.md"), "sdd-delta"),
        (("PROJECT_MEMORY.md", "docs/api/x.yaml"), "contract"),
        (("specs/bdd/x.md",), "bdd"),
        (("docs/myapi/x.yaml",), None),
    ],
)
def test_of_several_missing_files_the_storys_own_come_first(
    tmp_path: Path, missing: tuple[str, ...], step: str | None
) -> None:
    """Scenarios, then the delta, then the contract; only then what a whole project lacks."""
    assert step == prerequisites(str(tmp_path), rule(*missing), "US-1", 1).rollback_target


def test_a_path_that_cannot_be_looked_at_is_missing(tmp_path: Path) -> None:
    """An executor could not read it either."""
    name = "x" * 300

    assert (name,) == prerequisites(str(tmp_path), rule(name), "US-1", 1).missing


def test_the_step_in_hand_is_checked_by_the_projects_own_table(tmp_path: Path) -> None:
    """What is missing is a warning each, with the step that would make it."""
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
def test_the_command_is_one_that_is_not_refused(
    tmp_path: Path, state: dict[str, str], reads: str, target: str | None, command: str | None
) -> None:
    """None where a rollback to that step would be."""
    write_state(tmp_path, **state)
    rules = f"steps:\n  {state['step']}: {{claude_reads: ['{reads}']}}\n"
    write(tmp_path, ".ai/step-rules.yaml", rules)

    found = check_prerequisites(str(tmp_path))

    expected = None if command is None else f"handoffd rollback {tmp_path} {command}"
    assert (target, expected) == (found.suggested_rollback, found.next_command)


def test_a_story_that_is_done_reads_nothing(tmp_path: Path) -> None:
    """There is no step in hand."""
    write_state(tmp_path, step="done", status="pass")

    assert PrerequisiteCheck(ok=True) == check_prerequisites(str(tmp_path))


def test_what_cannot_be_checked_is_said(tmp_path: Path) -> None:
    """No state, a step that the table does not have, a state that means nothing."""
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
