"""What a step reads and cannot: told, with the step that would make it."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd.protocol.rules import Rule
from handoffd.supervise.prerequisites import Prerequisites, prerequisites


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
