"""Messages through the library: rules decide, nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from handoffd import auto, classify, read_state


def test_a_story_is_started_asked_about_and_commented(shop: Path) -> None:
    """At level 1 the prompt comes with the reply."""
    started = auto(shop, "start US-001")
    assert ("dispatched", "bdd") == (started.action, (started.result or {})["step"])
    assert (started.result or {})["prompt"]

    asked = auto(shop, "目前進度如何？")
    assert ("query", "US-001") == (asked.action, read_state(shop).story)
    assert "US-001" in asked.report


def test_a_question_about_a_project_without_a_state_is_answered(shop: Path) -> None:
    """And makes nothing."""
    assert "query" == auto(shop, "what is the status?").action
    assert not (shop / ".ai" / "STATE.json").exists()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("approve", "approve"),
        ("LGTM", "approve"),
        ("進度？", "query"),
        ("rename the receipt", "start_custom"),
    ],
)
def test_what_a_message_means_can_be_asked_alone(text: str, kind: str) -> None:
    """By rules, without a project."""
    assert kind == classify(text).kind
