"""`handoffd rules`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import Commands
from tests.support.controlled import Controlled


@pytest.fixture
def root(alone: Path) -> Path:
    """A project with a table of its own."""
    folder = alone / "shop"
    (folder / ".ai").mkdir(parents=True)
    return folder


def _write(root: Path, name: str, text: str) -> None:
    (root / ".ai" / name).write_text(text, encoding="utf-8")


def test_a_table_that_can_be_used(root: Path, handoffd: Commands) -> None:
    """With its pipelines; a preset counts."""
    _write(root, "handoffd.yaml", "preset: with-commit\n")

    said = handoffd("rules", "check", str(root))

    assert 0 == said.code
    assert "verify → commit → update-memory" in said.out
    assert "commit" in handoffd("rules", "check", str(root), "--json").json["pipelines"]["story"]


def test_problems_come_with_file_line_and_key(root: Path, handoffd: Commands) -> None:
    """And the values that would do."""
    _write(root, "step-rules.yaml", "steps:\n  impl:\n    next_on_pass: nowhere\n")

    said = handoffd("rules", "check", str(root))

    assert 1 == said.code
    assert ".ai/step-rules.yaml:3: steps.impl.next_on_pass" in said.err
    assert "verify" in said.err
    editor = f"${{EDITOR:-vi}} +3 {root}/.ai/step-rules.yaml"
    assert f"  next: {editor}" in said.err
    assert editor == handoffd("rules", "show", str(root), "--json").json["hint"]


def test_every_value_is_shown_with_its_source(
    root: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project's own line, the shipped one, or the built-in default."""
    _write(root, "step-rules.yaml", "steps:\n  impl:\n    max_attempts: 9\n")
    monkeypatch.chdir(root)

    told = {one["key"]: one for one in handoffd("rules", "show", "--json").json["rules"]}

    changed = told["steps.impl.max_attempts"]
    assert (9, ".ai/step-rules.yaml", 3) == (changed["value"], changed["file"], changed["line"])
    assert "config/step-rules.yaml" == told["steps.bdd.max_attempts"]["file"]
    assert told["steps.bdd.retry_on_timeout"]["file"] is None
    line = next(
        line for line in handoffd("rules", "show").lines if line.startswith("steps.impl.max_attempts")
    )
    assert ["9", ".ai/step-rules.yaml:3"] == line.split()[1:]


def test_a_project_can_be_named(control: Controlled, handoffd: Commands, tmp_path: Path) -> None:
    """By the name of a supervised one; a folder that is none is not found."""
    control.supervision.projects[str(tmp_path)] = control.supervision.projects.pop("/srv/empty")

    assert 4 == handoffd("rules", "check", "nope").code
    assert 4 == handoffd("rules", "check", "/srv/nope").code
