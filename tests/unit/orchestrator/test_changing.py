"""`orchestrator.changing`: what people decide, as the reference confirms it."""

from __future__ import annotations

import json

import pytest
from tests.unit.orchestrator.conftest import Say, Shop

from handoffd.orchestrator.console import Said


def error(said: Said) -> tuple[str, int]:
    """Return the code of an error, and the exit code."""
    return json.loads(said.out[0])["code"], said.code


def test_init_confirms_what_it_made(say: Say, shop: Shop) -> None:
    """STATE.json under the name that was given, and the pointer for agents, once."""
    made, again = say("init", "my shop"), say("init", "other")

    assert (
        'Initialized .ai/STATE.json for "my shop"',
        "Created CLAUDE.md (CC will auto-detect ACF on session start)",
    ) == made.out
    assert ("STATE.json already exists (step: bootstrap, status: pending)",) == again.out
    assert "my shop" == shop.state["project"]


def test_a_claude_md_of_ones_own_is_not_called_new(say: Say, shop: Shop) -> None:
    """It only gets a block."""
    (shop.root / "CLAUDE.md").write_text("# Mine\n")

    assert 1 == len(say("init", "shop").out)
    assert (shop.root / "CLAUDE.md").read_text().startswith("# Mine\n")


def test_a_story_is_started(say: Say, shop: Shop) -> None:
    """In a project that nobody knew, and at level 1."""
    assert ("Started story US-001 (step: bdd, attempt: 1)",) == say("start-story", "US-001").out
    assert ("US-001", "bdd", "pending") == (shop.state["story"], shop.state["step"], shop.state["status"])


def test_a_story_in_flight_is_not_overwritten(say: Say, shop: Shop) -> None:
    """Unless it is meant."""
    shop.written()

    assert ("STORY_IN_PROGRESS", 1) == error(say("start-story", "US-002"))
    assert ("ALREADY_RUNNING", 1) == error(say("start-story", "US-001"))
    assert ("Started story US-002 (step: bdd, attempt: 1)",) == say("start-story", "US-002", "--force").out


def test_a_story_that_another_tool_finished_is_done(say: Say, shop: Shop) -> None:
    """Though no journal says so."""
    shop.written(step="done", status="pending")

    assert ("ALREADY_COMPLETED", 1) == error(say("start-story", "US-001"))


@pytest.mark.parametrize(
    ("words", "label", "teams"),
    [
        (("tidy up",), "CUSTOM-", False), (("tidy up", "CLEAN-1"), "CLEAN-1", False),
        (("tidy up", "CLEAN-1", "--agent-teams"), "CLEAN-1", True),
        (("tidy up", "--agent-teams"), "CUSTOM-", True), (("整理一下",), "CUSTOM-", False),
    ],
)  # fmt: skip
def test_a_task_is_started(say: Say, shop: Shop, words: tuple[str, ...], label: str, teams: bool) -> None:
    """With its instruction, its label and its wish for a team."""
    said = say("start-custom", *words)

    state = shop.state
    told = f"  label: {state['story']}, step: custom, task_type: custom"
    assert (f'Started custom task: "{words[0]}"', told) == said.out
    assert (words[0], teams) == (state["human_note"], state["agent_teams"])
    assert state["story"].startswith(label)


def test_a_review_is_approved_with_a_note(say: Say, shop: Shop) -> None:
    """The note is what it was, in any language."""
    shop.written(step="review", status="needs_human", max_attempts=1)

    assert ('Review approved (note: "價格要含稅")',) == say("approve", "價格要含稅").out
    assert ("pass", "價格要含稅") == (shop.state["status"], shop.state["human_note"])


def test_a_review_is_rejected_for_a_reason(say: Say, shop: Shop) -> None:
    """One of those there are."""
    shop.written(step="review", status="needs_human", max_attempts=1)

    assert ("BAD_ARGUMENT", 1) == error(say("reject", "dislike"))
    assert ("Review rejected (reason: scope_warning)",) == say("reject", "scope_warning", "too much").out
    assert ("failing", "scope_warning", "too much") == (
        shop.state["status"], shop.state["reason"], shop.state["human_note"],
    )  # fmt: skip


def test_only_a_gate_can_be_answered(say: Say, shop: Shop) -> None:
    """Without a project there is none."""
    assert ("STATE_NOT_FOUND", 1) == error(say("approve"))
    shop.written()
    assert ("WRONG_STEP", 1) == error(say("approve"))


def test_a_story_goes_back(say: Say, shop: Shop) -> None:
    """And only back; to the very beginning only by force."""
    shop.written(status="failing")

    assert ("ROLLBACK_FORWARD", 1) == error(say("rollback", "verify"))
    assert ("INVALID_TARGET", 1) == error(say("rollback", "polish"))
    assert ("BOOTSTRAP_NEEDS_FORCE", 1) == error(say("rollback", "bootstrap"))
    assert ('Rolled back to step "bdd" (status: pending, attempt: 1)',) == say("rollback", "bdd").out


def test_a_story_is_reopened(say: Say, shop: Shop) -> None:
    """When it is done; history.md tells of it."""
    shop.written()
    assert ("NOT_DONE", 1) == error(say("reopen", "impl"))

    shop.written(step="done", status="pass")
    told = 'Reopened story "US-001" at step "verify" (status: pending, attempt: 1)'
    assert (told,) == say("reopen", "verify", "the total is wrong").out
    assert ("verify", "the total is wrong") == (shop.state["reopened_from"], shop.state["human_note"])
