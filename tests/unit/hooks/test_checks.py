"""Whether a hand-off may have to be checked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoffd.api.folders import settings_text
from handoffd.hooks.project import TESTED_STEPS, concluded, may_be_checked
from handoffd.inspection.suites import Suites
from handoffd.protocol.rule_merge import Layer
from handoffd.protocol.rulebook import build_rulebook
from handoffd.settings.paths import shared


def test_the_tested_steps_are_those_of_the_shipped_table() -> None:
    """Without rules of its own a project has that table; nothing in it has a post_check."""
    table = shared("config", "step-rules.yaml").read_text("utf-8")
    rules = build_rulebook([Layer("config/step-rules.yaml", table)])

    assert TESTED_STEPS == {name for name, rule in rules.steps.items() if rule.tests is not None}
    assert not [name for name, rule in rules.steps.items() if rule.post_check]


@pytest.mark.parametrize(
    ("name", "text", "step", "may"),
    [
        ("handoffd.yaml", "", "impl", False),
        ("handoffd.yaml", "# preset: go\n# test:\n#   command: [make, test]\n", "impl", False),
        ("handoffd.yaml", "test:\n  command: [make, test]\n", "bdd", False),
        ("handoffd.yaml", "test:\n  command: [make, test]\n", "impl", True),
        ("handoffd.yaml", "preset: go\n", "bdd", True),
        ("handoffd.yaml", '"pre\\x73et": go\n', "bdd", True),
        ("step-rules.yaml", "steps:\n  bdd:\n    max_attempts: 4\n", "bdd", False),
        ("step-rules.yaml", "steps:\n  bdd:\n    post_check: make lint\n", "bdd", True),
        ("step-rules.yaml", "steps:\n  bdd: {tests: green}\n", "bdd", True),
        ("step-rules.yaml", "\udcff", "bdd", True),
        ("step-rules.yaml", " " * 300_000, "bdd", True),
    ],
)
def test_words_decide(tmp_path: Path, name: str, text: str, step: str, may: bool) -> None:
    """Comments do not count; what cannot be searched may say anything."""
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai" / name).write_text(text, encoding="utf-8", errors="surrogateescape")

    assert may == may_be_checked(str(tmp_path), step)


def test_a_project_without_files_is_not_checked(tmp_path: Path) -> None:
    """Nor one with the settings that `init` writes where it finds no tests."""
    assert not may_be_checked(str(tmp_path), "impl")
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai/handoffd.yaml").write_text(settings_text(Suites()), encoding="utf-8")
    assert not may_be_checked(str(tmp_path), "impl")


def test_a_link_may_say_anything(tmp_path: Path) -> None:
    """It is not followed."""
    (tmp_path / ".ai").mkdir()
    os.symlink("/dev/null", tmp_path / ".ai/step-rules.yaml")

    assert may_be_checked(str(tmp_path), "bdd")


@pytest.mark.parametrize("kind", ["taken", "stale"])
def test_checks_that_ended_meanwhile_are_not_old(kind: str) -> None:
    """Asked again, the daemon says that it was taken; one before that called it stale. All else stays."""
    state = {"step": "impl", "attempt": 2, "status": "pass"}
    told = concluded({"type": kind, "message": "taken already", "state": state})

    assert {"type": "applied", "message": "impl attempt 2 is pass", "state": state} == told
    assert {"type": "pending"} == concluded({"type": "pending"})
    assert concluded(None) is None
