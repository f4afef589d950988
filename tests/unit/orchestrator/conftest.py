"""What the tests of `orchestrator` share: a project, and the program called in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handoffd.orchestrator.console import Said
from handoffd.orchestrator.main import run

Say = Callable[..., Said]


class Shop:
    """A project's folder, and its files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        (root / "PROJECT_CONTEXT.md").write_text("a shop")

    @property
    def state(self) -> dict[str, Any]:
        """The content of STATE.json."""
        found: dict[str, Any] = json.loads((self.root / ".ai/STATE.json").read_text())
        return found

    def written(self, **values: Any) -> None:
        """Write STATE.json as another tool does."""
        whole = {
            "project": "shop", "story": "US-001", "step": "impl", "attempt": 1, "max_attempts": 5,
            "status": "pending", "reason": None, "dispatched_at": None, "completed_at": None,
            "timeout_min": 10, "tests": None, "failing_tests": [], "lint_pass": None, "files_changed": [],
            "blocked_by": [], "human_note": None, "last_error": None, "task_type": "story",
            "agent_teams": False, "reopened_from": None,
        }  # fmt: skip
        (self.root / ".ai").mkdir(exist_ok=True)
        (self.root / ".ai/STATE.json").write_text(json.dumps({**whole, **values}, indent=2))

    def handed_over(self, step: str, *lines: str) -> None:
        """Write HANDOFF.md as an agent does."""
        head = "\n".join(["---", f"step: {step}", *lines, "---", "done", ""])
        (self.root / ".ai/HANDOFF.md").write_text(head)


@pytest.fixture
def shop(alone: Path) -> Shop:
    """A project that has its context and nothing else."""
    return Shop(alone / "shop")


@pytest.fixture
def say(shop: Shop) -> Say:
    """Give a verb about the project, while no daemon runs, with the words behind its root."""

    def saying(verb: str, *words: str) -> Said:
        return run([verb, str(shop.root), *words], os.environ)

    return saying
