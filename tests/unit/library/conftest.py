"""What the tests of the library share: a small project, and no daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

RULES = """\
steps:
  bdd: {next_on_pass: review}
  review: {next_on_pass: update-memory}
"""


@pytest.fixture
def shop(alone: Path, tmp_path: Path) -> Path:
    """A project of three steps that is not initialised."""
    root = tmp_path / "shop"
    (root / ".ai").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "PROJECT_CONTEXT.md").write_text("A shop.\n")
    (root / ".ai" / "step-rules.yaml").write_text(RULES)
    return root
