"""Commands that read a project's files: `detect`, `query`, `peek`, `list-projects`, `review` and others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from tests.support.commands import Commands, environment
from tests.support.controlled import Controlled
from tests.support.supervision import project_view, track_view
from tests.support.terminals import at_terminal
from tests.unit.inspection.making import write, write_state

from handoffd.cli.inspecting import checked, clones, detected, kept, listed, prompted, queried, report


# --- commands ---------------------------------------------------------------------------------------
def test_an_empty_folder_can_be_queried_and_stays_empty(alone: Path, handoffd: Commands) -> None:
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


def test_the_current_folder_is_the_default(
    alone: Path, handoffd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for every command."""
    write_state(alone / "shop")
    monkeypatch.chdir(alone / "shop")

    assert "US-005" == handoffd("query", "--json").json["story"]
    monkeypatch.chdir(alone)
    assert ["shop"] == [one["dir"] for one in handoffd("list-projects", "--json").json["projects"]]


def test_with_a_journal_and_no_daemon_the_journal_answers(alone: Path, handoffd: Commands) -> None:
    """It knows what a started project waits for, also by the project's name."""
    write(alone / "shop", "PROJECT_CONTEXT.md")
    handoffd("start", str(alone / "shop"), "US-1")

    found = handoffd("query", "shop", "--json").json

    assert (True, 2, "US-1", "bdd", "sdd-delta") == (
        found["supervised"], found["level"], found["story"], found["step"], found["next_step"],
    )  # fmt: skip
    write_state(alone / "other")
    assert not handoffd("query", str(alone / "other"), "--json").json["supervised"]


def test_the_daemon_answers_where_one_runs(control: Controlled, handoffd: Commands) -> None:
    """It knows names; an unknown name is not found."""
    assert "a person's decision" == handoffd("query", "shop", "--json").json["waits_for"]
    assert 4 == handoffd("query", "unknown").code


def test_prompts_can_be_piped(alone: Path, handoffd: Commands) -> None:
    """Only the prompt is on standard output, in the requested language."""
    write(alone / "shop", "PROJECT_MEMORY.md", "## ISSUES\n- [ ] one\n")

    said = handoffd("triage", str(alone / "shop"), "--language", "zh-TW")

    assert (0, "") == (said.code, said.err)
    assert said.out.startswith("# shop 問題分診\n")
    assert said.out.endswith("`\n")
    assert 2 == handoffd("review", "--language", "fr").code


def test_a_review_session_points_to_an_open_gate_on_a_terminal_alone(
    control: Controlled, handoffd: Commands, alone: Path
) -> None:
    """Its prompt can still be piped; a project that waits at no gate, or is not supervised, has no hint."""
    root = alone / "shop"
    write(root, "PROJECT_MEMORY.md")
    control.supervision.projects = {str(root): project_view(str(root), track_view())}

    with at_terminal("review", str(root), env=environment(control.runtime)) as terminal:
        assert 0 == terminal.end()
    assert terminal.shown.endswith(f"An open review waits for your decision: handoffd gate {root}\n")
    assert "handoffd gate" not in handoffd("review", str(root)).out
    control.supervision.projects = {str(root): project_view(str(root), track_view(gate=False))}
    with at_terminal("review", str(root), env=environment(control.runtime)) as terminal:
        assert 0 == terminal.end()
    assert "handoffd gate" not in terminal.shown


def test_missing_files_are_not_an_error(alone: Path, handoffd: Commands) -> None:
    """They are a warning."""
    write_state(alone / "shop", step="sdd-delta")

    assert 0 == handoffd("check-prereqs", str(alone / "shop")).code


def test_peek_shows_the_next_dispatch_with_its_prompt(control: Controlled, handoffd: Commands) -> None:
    """Why, who, what is missing, and the prompt, which cannot drive the terminal; JSON is the API's."""
    assert [
        "bdd, attempt 1: bdd attempt 1 of 3",
        "  warning: docs/sdd.md is missing",
        "  executor: claude",
        "",
        "# Do bdd",
        "\\x1b[31mred",
    ] == handoffd("peek", "shop").lines
    answer = handoffd("peek", "shop", "--json").json
    assert ("claude", "taken; see /srv/shop") == (answer["executor"], answer["result"]["caller_instruction"])


def test_snapshots_are_listed_by_age(control: Controlled, handoffd: Commands, taipei: None) -> None:
    """With their names, and the command that compares the first with the last; JSON is the API's."""
    assert [
        "shop: US-001",
        "SNAPSHOT  AT                   RESULT  CHANGED  BY",
        "bdd-0     2026-01-02 11:04:05  begun",
        "bdd-1     2026-01-02 11:04:05  pass    3 files",
        "  compare: git -C /srv/shop diff refs/handoffd/US-001/bdd-0 refs/handoffd/US-001/bdd-1",
    ] == handoffd("snapshots", "shop").lines
    answer = handoffd("snapshots", "shop", "--json").json
    assert ("US-001", [None, 3]) == (answer["story"], [one["files"] for one in answer["snapshots"]])


def test_clones_are_listed_with_why_each_is_kept(
    control: Controlled, handoffd: Commands, taipei: None
) -> None:
    """And what happens to one that nothing keeps."""
    assert [
        "shop US-001, 3.0 MiB, since 2026-01-02 11:04:05",
        "    handoffd/US-001",
        "    /state/workspaces/0a/US-001/shop",
        "    kept: its story is in flight",
        "shop US-000, 3.0 MiB, since 2026-01-02 11:04:05",
        "    handoffd/US-001",
        "    /state/workspaces/0a/US-000/shop",
        "    not needed: `handoffd gc` removes it",
    ] == handoffd("workspaces", "shop").lines
    answer = handoffd("workspaces", "--json").json
    assert (6 << 20, True) == (answer["bytes"], answer["daemon"])


@pytest.mark.parametrize(
    ("gib", "last"),
    [
        (1, "together 6.0 MiB of 1 GiB (retention.workspaces_gb)"),
        (
            0.001,
            "together 6.0 MiB of 0.001 GiB (retention.workspaces_gb); no story gets a new clone until some"
            " are gone: handoffd land, handoffd discard",
        ),
    ],
)
def test_what_all_clones_may_take_is_shown(
    control: Controlled, handoffd: Commands, gib: float, last: str
) -> None:
    """Of all projects together; not below the clones of one."""
    answer = handoffd("workspaces", "--json").json

    assert last == clones(answer, gib)[-1]
    assert not any("together" in line for line in handoffd("workspaces", "shop").lines)


def test_without_clones_the_setting_is_named() -> None:
    """By a line that says where stories work instead."""
    (line,) = clones({"workspaces": []})
    assert "`workspace: clone`" in line


def test_a_story_without_snapshots_has_none_to_list() -> None:
    """One that is not begun, or a project without a story."""
    answer: dict[str, Any] = {"name": "shop", "project": "/srv/shop", "story": None, "snapshots": []}

    assert ["shop: no story was started, so there is no snapshot"] == kept(answer)
    assert kept({**answer, "story": "US-1"})[0].startswith("shop: there is no snapshot of US-1; ")


# --- lines, in which nothing drives the terminal ----------------------------------------------------
@pytest.mark.parametrize(
    ("command", "lines"),
    [("handoffd start /srv/shop STORY", ["  next: handoffd start /srv/shop STORY"]), ("", [])],
)
def test_peek_says_what_a_track_waits_for(command: str, lines: list[str]) -> None:
    """No prompt, no executor; the command that leads on instead."""
    shown: dict[str, Any] = {
        "step": "bdd", "why": "no story was started", "prompt": None, "warnings": [],
        "result": {"type": "blocked", "next_command": command},
    }  # fmt: skip

    assert ["bdd would dispatch nothing: no story was started", *lines] == report(shown)


FILES = [
    f"has_{name}" for name in ("state", "memory", "context", "constitution", "sdd", "handoff", "history")
]


def test_files_are_listed_as_there_or_missing() -> None:
    """With the level in words."""
    some = dict.fromkeys(FILES, False) | {"level": 1, "has_state": True, "has_handoff": True}

    assert [
        "Framework level 1 of 2: some of its files are there",
        "  there:   .ai/STATE.json, .ai/HANDOFF.md",
        "  missing: PROJECT_MEMORY.md, PROJECT_CONTEXT.md, docs/constitution.md, docs/sdd.md, .ai/history.md",
    ] == detected(some)
    assert 2 == len(detected(dict.fromkeys(FILES, True) | {"level": 2}))


def test_query_shows_everything_that_is_known() -> None:
    """A line each, the next command last; then what the memory has as next."""
    found: dict[str, Any] = {
        "project": "shop", "task_type": "story", "story": "US-005", "step": "impl", "next_step": "verify",
        "status": "failing", "attempt": 2, "max_attempts": 5, "reason": "scope_warning",
        "tests": {"pass": 42, "fail": 2, "skip": 0}, "lint_pass": False, "files_changed": ["a", "b"],
        "blocked_by": ["US-004"], "human_note": "mind\nthe cents", "last_error": "\x1b[2J",
        "memory_summary": "## NEXT\n- US-006", "warnings": ["odd"], "level": 2, "supervised": True,
        "waits_for": "a person", "root": "/srv/shop", "called": "shop",
        "next_command": "handoffd retry /srv/shop",
    }  # fmt: skip
    assert [
        "shop: US-005 at impl, attempt 2 of 5, failing",
        "  next step: verify",
        "  reason: scope_warning",
        "  tests: 42 passed, 2 failed, 0 skipped",
        "  post_check: failed",
        "  files changed: 2",
        "  blocked by: US-004",
        "  note: mind the cents",
        "  last error: \\x1b[2J",
        "  warning: odd",
        "  level: 2",
        "  waits for: a person",
        "  next: handoffd retry shop",
        "",
        "## NEXT\n- US-006",
    ] == list(map(click.unstyle, queried(found)))


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
    back = checked({**lacking, "next_command": "handoffd rollback . bdd"})
    assert "  next: handoffd rollback . bdd" == back[-1]


def test_a_prompt_is_printed_as_it_is() -> None:
    """But for control characters."""
    assert ["# A\n\n- b\\x1b"] == prompted({"prompt": "# A\n\n- b\x1b\n"})
