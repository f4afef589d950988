"""`orchestrator.talking`: a message, and what the reference calls what comes of it."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from tests.unit.orchestrator.conftest import Say, Shop

from handoffd.orchestrator.engine_access import Door


def answered(say: Say, *words: str) -> dict[str, Any]:
    """Return what `auto` says."""
    told: dict[str, Any] = json.loads(say("auto", *words).out[0])
    return told


def test_a_question_is_answered_in_any_language(say: Say, shop: Shop) -> None:
    """With the beginnings of memory and hand-off, where they are."""
    shop.written()
    shop.handed_over("impl")

    for message in ("what is the status?", "目前狀態如何"):
        told = answered(say, message)
        assert ["action", "data", "handoff"] == list(told)
        assert ("query", "impl") == (told["action"], told["data"]["step"])


def test_to_continue_is_to_dispatch(say: Say, shop: Shop) -> None:
    """The prompt is in the answer, and what must not be assumed."""
    shop.written()

    told = answered(say, "continue")

    keys = ["action", "step", "attempt", "next_step", "prompt", "fw_lv", "caller_instruction"]
    assert (keys, "verify", "running") == (list(told), told["next_step"], shop.state["status"])
    assert ["action", "step", "elapsed_min", "last_error", "caller_instruction"] == list(
        answered(say, "next")
    )


def test_a_story_is_started_and_dispatched(say: Say) -> None:
    """In one go."""
    told = answered(say, "start", "story", "US-007")

    assert ("dispatched", "bdd", 1) == (told["action"], told["step"], told["attempt"])


def test_anything_else_is_a_task(say: Say, shop: Shop) -> None:
    """With a team, if one is asked for."""
    assert "custom" == answered(say, "use agent teams to tidy up the basket")["step"]
    assert shop.state["agent_teams"] is True


def test_a_gate_opens_by_a_decision_only(say: Say, shop: Shop) -> None:
    """Other words are kept as a note."""
    shop.written(step="review", status="needs_human", max_attempts=1)
    assert "needs_human" == answered(say, "continue")["action"]
    assert "noted" == answered(say, "the prices look odd to me")["action"]

    assert "approved" == answered(say, "核准")["action"]
    assert "pass" == shop.state["status"]


@pytest.mark.parametrize("trusted", [True, False])
def test_a_gate_at_which_a_person_was_asked_is_one_whatever_the_table_says(
    say: Say, shop: Shop, trusted: bool
) -> None:
    """Words that are no decision start no task there."""
    shop.written(step="review", status="pending", max_attempts=1)
    assert "needs_human" == answered(say, "continue")["action"]
    table = "steps: {review: {requires_human: false, step_instruction: {en: Review it.}}}\n"
    (shop.root / ".ai/step-rules.yaml").write_text(table)
    if trusted:
        assert "trusted" in Door(str(shop.root), os.environ).give("trust")

    assert "noted" == answered(say, "the prices look odd to me")["action"]
    assert "needs_human" == shop.state["status"]
    assert "approved" == answered(say, "核准")["action"]


def test_the_gate_of_another_story_than_was_named_stays_shut(say: Say, shop: Shop) -> None:
    """Whoever means one has not looked at the other."""
    shop.written(step="review", status="needs_human", max_attempts=1)

    assert "WRONG_STORY" == answered(say, "approve US-999")["code"]
    assert "needs_human" == shop.state["status"]
    assert "approved" == answered(say, f"approve {shop.state['story']}")["action"]


def test_a_rejection_has_a_reason(say: Say, shop: Shop) -> None:
    """Found in what was said."""
    shop.written(step="review", status="needs_human", max_attempts=1)

    assert {"action": "rejected", "reason": "scope_warning"}.items() <= answered(say, "reject scope").items()


def test_a_done_story_is_reopened(say: Say, shop: Shop) -> None:
    """At the step that was named."""
    shop.written(step="done", status="pass")

    told = answered(say, "reopen verify")

    assert ["action", "story", "step", "message"] == list(told)
    assert ("reopened", "verify") == (told["action"], shop.state["step"])


@pytest.mark.parametrize(
    ("message", "action"),
    [("list projects", "listed"), ("framework?", "detected"), ("review", "review"), ("triage", "error")],
)
def test_looks_need_no_state(say: Say, message: str, action: str) -> None:
    """They work in any folder."""
    assert action == answered(say, message)["action"]


def test_what_failed_is_an_error_with_an_exit_code(say: Say, shop: Shop) -> None:
    """As for every other verb."""
    said = say("auto", "approve")

    assert ("STATE_NOT_FOUND", 1) == (json.loads(said.out[0])["code"], said.code)
    assert ["action", "code", "message"] == list(json.loads(said.out[0]))


def test_attempts_that_are_used_up_block(say: Say, shop: Shop) -> None:
    """That is the reference's word for it."""
    shop.written(status="failing", attempt=5)

    assert ["action", "step", "reason", "caller_instruction"] == list(answered(say, "continue"))


def test_no_message_is_no_verb(say: Say) -> None:
    """With an example."""
    said = say("auto", " ")

    assert ("Error: <message> is required", 1) == (said.err[0], said.code)


def test_a_project_that_is_opened_is_answered_for(say: Say, shop: Shop) -> None:
    """And one that is not there starts nothing in this one."""
    shop.written()

    assert "query" == answered(say, "open", "project", "shop")["action"]
    for words in (("開啟專案 nosuch",), ("continue project nosuch",), ("nosuch 專案加入購物車",)):
        assert ("error", "NOT_FOUND") == ((told := answered(say, *words))["action"], told["code"])
    for words in (("CC",), ("agents",), ("讓 CC 做",)):
        assert ("error", "UNCLEAR") == ((told := answered(say, *words))["action"], told["code"])
    assert "impl" == shop.state["step"]
