"""`auto`: a message, and its outcome under the names of the reference."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from tests.unit.orchestrator.conftest import Say, Shop

from handoffd.orchestrator.verbs import Door


def answered(say: Say, *words: str) -> dict[str, Any]:
    """Return what `auto` prints."""
    told: dict[str, Any] = json.loads(say("auto", *words).out[0])
    return told


@pytest.fixture
def gate(shop: Shop) -> Shop:
    """The project at its review."""
    shop.written(step="review", status="needs_human", max_attempts=1)
    return shop


def test_a_question_is_answered_in_any_language(say: Say, shop: Shop) -> None:
    """With the beginnings of memory and hand-off, if they exist."""
    shop.written()
    shop.handed_over("impl")

    for message in ("what is the status?", "目前狀態如何"):
        told = answered(say, message)
        assert ["action", "data", "handoff"] == list(told)
        assert ("query", "impl") == (told["action"], told["data"]["step"])


def test_to_continue_is_to_dispatch(say: Say, shop: Shop) -> None:
    """The answer has the prompt, and what must not be assumed."""
    shop.written()

    told = answered(say, "continue")

    keys = ["action", "step", "attempt", "next_step", "prompt", "fw_lv", "caller_instruction"]
    assert (keys, "verify", "running") == (list(told), told["next_step"], shop.state["status"])
    running = ["action", "step", "elapsed_min", "last_error", "caller_instruction"]
    assert running == list(answered(say, "next"))


@pytest.mark.parametrize(
    ("message", "step", "teams"),
    [("start story US-007", "bdd", False), ("use agent teams to tidy up the basket", "custom", True)],
)
def test_a_story_or_a_task_is_started_and_dispatched(
    say: Say, shop: Shop, message: str, step: str, teams: bool
) -> None:
    """At once, and with a team if the message asks for one."""
    told = answered(say, *message.split())

    assert ("dispatched", step, 1) == (told["action"], told["step"], told["attempt"])
    assert teams == shop.state["agent_teams"]


def test_a_gate_opens_by_a_decision_only(say: Say, gate: Shop) -> None:
    """Other words become a note; a decision about another story is refused."""
    assert "needs_human" == answered(say, "continue")["action"]
    assert "noted" == answered(say, "the prices look odd to me")["action"]
    assert "WRONG_STORY" == answered(say, "approve US-999")["code"]
    assert "needs_human" == gate.state["status"]

    assert "approved" == answered(say, "核准")["action"]
    assert "pass" == gate.state["status"]


def test_a_decision_may_name_its_story_and_its_reason(say: Say, gate: Shop) -> None:
    """The reason is one of the message's words."""
    assert {"action": "rejected", "reason": "scope_warning"}.items() <= answered(say, "reject scope").items()

    gate.written(step="review", status="needs_human", max_attempts=1)
    assert "approved" == answered(say, f"approve {gate.state['story']}")["action"]


@pytest.mark.parametrize("trusted", [True, False])
def test_a_gate_that_asked_a_person_remains_one(say: Say, shop: Shop, trusted: bool) -> None:
    """Whatever the step table says by now: other words start no task there."""
    shop.written(step="review", status="pending", max_attempts=1)
    assert "needs_human" == answered(say, "continue")["action"]
    table = "steps: {review: {requires_human: false, step_instruction: {en: Review it.}}}\n"
    (shop.root / ".ai/step-rules.yaml").write_text(table)
    if trusted:
        assert "trusted" in Door(str(shop.root), os.environ).give("trust")

    assert "noted" == answered(say, "the prices look odd to me")["action"]
    assert "needs_human" == shop.state["status"]
    assert "approved" == answered(say, "核准")["action"]


def test_a_done_story_is_reopened(say: Say, shop: Shop) -> None:
    """At the named step."""
    shop.written(step="done", status="pass")

    told = answered(say, "reopen verify")

    assert ["action", "story", "step", "message"] == list(told)
    assert ("reopened", "verify") == (told["action"], shop.state["step"])


@pytest.mark.parametrize(
    ("message", "action"),
    [("list projects", "listed"), ("framework?", "detected"), ("review", "review"), ("triage", "error")],
)
def test_reads_need_no_state(say: Say, message: str, action: str) -> None:
    """They work in any folder."""
    assert action == answered(say, message)["action"]


def test_an_error_has_an_exit_code(say: Say) -> None:
    """As for every other verb; a missing message has an example."""
    said, empty = say("auto", "approve"), say("auto", " ")

    assert ("STATE_NOT_FOUND", 1) == (json.loads(said.out[0])["code"], said.code)
    assert ["action", "code", "message"] == list(json.loads(said.out[0]))
    assert ("Error: <message> is required", 1) == (empty.err[0], empty.code)


def test_attempts_that_are_used_up_block(say: Say, shop: Shop) -> None:
    """The reference calls it so."""
    shop.written(status="failing", attempt=5)

    assert ["action", "step", "reason", "caller_instruction"] == list(answered(say, "continue"))


def test_a_message_may_name_its_project(say: Say, shop: Shop) -> None:
    """With an unknown one, or without a task, nothing starts here."""
    shop.written()

    assert "query" == answered(say, "open", "project", "shop")["action"]
    for code, messages in {
        "NOT_FOUND": ("開啟專案 nosuch", "continue project nosuch", "nosuch 專案加入購物車"),
        "UNCLEAR": ("CC", "agents", "讓 CC 做"),
    }.items():
        for message in messages:
            told = answered(say, message)
            assert ("error", code) == (told["action"], told["code"])
    assert "impl" == shop.state["step"]
