"""What files say, in lines that cannot drive a terminal."""

from __future__ import annotations

from typing import Any

import click

from handoffd.cli.inspecting import checked, detected, listed, prompted, queried

FILES = (
    "has_state",
    "has_memory",
    "has_context",
    "has_constitution",
    "has_sdd",
    "has_handoff",
    "has_history",
)

QUERY: dict[str, Any] = {
    "project": "shop", "task_type": "story", "story": "US-005", "step": "impl", "next_step": "verify",
    "status": "failing", "attempt": 2, "max_attempts": 5, "reason": "scope_warning",
    "tests": {"pass": 42, "fail": 2, "skip": 0}, "lint_pass": False, "files_changed": ["a", "b"],
    "blocked_by": ["US-004"], "human_note": "mind\nthe cents", "last_error": "\x1b[2J", "memory_summary":
    "## NEXT\n- US-006", "warnings": ["odd"], "level": 2, "supervised": True, "waits_for": "a person",
    "next_command": "handoffd retry shop",
}  # fmt: skip


def test_files_are_listed_as_there_or_missing() -> None:
    """With the level in words."""
    some = dict.fromkeys(FILES, False) | {"level": 1, "has_state": True, "has_handoff": True}

    assert [
        "Level 1: some of them are there",
        "  there:   .ai/STATE.json, .ai/HANDOFF.md",
        "  missing: PROJECT_MEMORY.md, PROJECT_CONTEXT.md, docs/constitution.md, docs/sdd.md, .ai/history.md",
    ] == detected(some)
    assert 2 == len(detected(dict.fromkeys(FILES, True) | {"level": 2}))


def test_everything_that_is_known_is_told() -> None:
    """A line each, the next command last; then what the memory says is next."""
    assert [
        "shop: US-005 at impl, attempt 2 of 5, failing",
        "  next step: verify",
        "  reason: scope_warning",
        "  tests: 42 passed, 2 failed, 0 skipped",
        "  post_check: failed",
        "  files changed: 2, as the hand-off says",
        "  blocked by: US-004",
        "  note: mind the cents",
        "  last error: \\x1b[2J",
        "  warning: odd",
        "  level: 2",
        "  waits for: a person",
        "  next: handoffd retry shop",
        "",
        "## NEXT\n- US-006",
    ] == list(map(click.unstyle, queried(QUERY)))


def test_projects_are_a_table() -> None:
    """With dashes where there is nothing."""
    one = {"name": "shop", "dir": "s", "story": "US-1", "step": "bdd", "status": "pending"}
    other = {"name": "o", "dir": "o", "story": None, "step": "none", "status": "invalid_state"}

    assert [
        "PROJECT  FOLDER  STORY  STEP  STATUS",
        "shop     s       US-1   bdd   pending",
        "o        o       –      –     invalid_state",
    ] == list(map(click.unstyle, listed({"folder": "/w", "projects": [one, other]})))


def test_missing_files_come_with_the_way_back() -> None:
    """If there is one."""
    assert ["No file that the current step reads is missing."] == checked({"ok": True})
    lacking = {"ok": False, "warnings": ["Missing prerequisite: x"], "next_command": None}
    assert 2 == len(checked(lacking))
    assert "  next: handoffd rollback . bdd" == checked(
        {**lacking, "next_command": "handoffd rollback . bdd"}
    )[-1]  # fmt: skip


def test_a_prompt_is_printed_as_it_is() -> None:
    """But for what would drive the terminal."""
    assert ["# A\n\n- b\\x1b"] == prompted({"prompt": "# A\n\n- b\x1b\n"})
