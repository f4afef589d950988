"""`handoffd detect`, `query`, `list-projects`, `check-prereqs`, `review`, `triage`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.commands import Commands
from tests.support.controlled import Controlled
from tests.unit.inspection.making import write, write_state


def test_an_empty_folder_can_be_asked_and_stays_empty(alone: Path, handoffd: Commands) -> None:
    """Level 0: no daemon, no journal, no STATE.json; and nothing is made anywhere."""
    root = alone / "empty"
    root.mkdir()
    before = sorted(alone.rglob("*"))

    assert 0 == handoffd("detect", str(root), "--json").json["level"]
    assert [
        "empty: not_initialized", "  level: 0, not supervised", f"  next: handoffd init {root}",
    ] == handoffd("query", str(root)).lines  # fmt: skip
    assert [f"There is no project in {root}."] == handoffd("list-projects", str(root)).lines
    assert handoffd("review", str(root)).out.startswith("# Health check of empty\n")
    assert 1 == handoffd("triage", str(root)).code
    assert 1 == handoffd("check-prereqs", str(root)).code
    assert before == sorted(alone.rglob("*"))


def test_without_a_word_it_is_the_current_folder(
    alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for every command."""
    write_state(alone / "shop")
    monkeypatch.chdir(alone / "shop")

    assert "US-005" == handoffd("query", "--json").json["story"]
    monkeypatch.chdir(alone)
    assert ["shop"] == [one["dir"] for one in handoffd("list-projects", "--json").json["projects"]]


def test_with_a_journal_and_no_daemon_the_journal_is_asked(alone: Path, handoffd: Commands) -> None:
    """A project that was started knows what it waits for, also by its name."""
    write(alone / "shop", "PROJECT_CONTEXT.md")
    handoffd("start", str(alone / "shop"), "US-1")

    found = handoffd("query", "shop", "--json").json

    assert (True, 2, "US-1", "bdd", "sdd-delta") == (
        found["supervised"], found["level"], found["story"], found["step"], found["next_step"],
    )  # fmt: skip
    write_state(alone / "other")
    assert not handoffd("query", str(alone / "other"), "--json").json["supervised"]


def test_the_daemon_is_asked_where_one_runs(control: Controlled, handoffd: Commands) -> None:
    """It knows names; what nobody knows is not found."""
    assert "a person's decision" == handoffd("query", "shop", "--json").json["waits_for"]
    assert 4 == handoffd("query", "nobody").code


def test_prompts_can_be_piped(alone: Path, handoffd: Commands) -> None:
    """Nothing but the prompt is on standard output, in the language that was asked for."""
    write(alone / "shop", "PROJECT_MEMORY.md", "## ISSUES\n- [ ] one\n")

    said = handoffd("triage", str(alone / "shop"), "--language", "zh-TW")

    assert (0, "") == (said.code, said.err)
    assert said.out.startswith("# shop 問題分診\n")
    assert said.out.endswith("`\n")
    assert 2 == handoffd("review", "--language", "fr").code


def test_missing_files_fail_nothing(alone: Path, handoffd: Commands) -> None:
    """They are a warning."""
    write_state(alone / "shop", step="sdd-delta")

    assert 0 == handoffd("check-prereqs", str(alone / "shop")).code
