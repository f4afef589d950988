"""Commands as whole messages. Most phrases are in tests/data/intents; here is what holds for all of them."""

from __future__ import annotations

from typing import get_args

import pytest

from handoffd.chat.commands import (
    STEPS_IN_CHINESE,
    Command,
    Said,
    near,
    reason_in,
    said,
    wants_team,
    work_for_an_agent,
)

ONE_EACH: dict[str, str] = {
    "list": "list projects",
    "detect": "framework",
    "approve": "approve",
    "reject": "退回",
    "start_story": "us-1",
    "review": "review",
    "triage": "分診",
    "reopen": "reopen",
    "continue": "繼續",
    "retry": "retry",
    "skip": "skip",
    "abort": "中止",
    "pause": "暫停",
    "note": "note: x",
}


def test_every_command_can_be_said() -> None:
    """None of them has to be typed in a terminal."""
    assert {name: name for name in get_args(Command)} == {
        name: found.command for name, text in ONE_EACH.items() if (found := said(text))
    }


@pytest.mark.parametrize("command", sorted(set(ONE_EACH) - {"list", "detect", "note", "start_story"}))
def test_politeness_and_the_thing_itself_change_nothing(command: str) -> None:
    """Please, this story, thanks."""
    found = said(f"please {ONE_EACH[command]} this story, thanks")

    assert found is not None
    assert command == found.command


def test_a_note_is_set_off() -> None:
    """By a sign, or by a word that begins one; its place is told."""
    assert (Said("approve", note_at=9), Said("approve", note_at=8)) == (
        said("approve: x"),
        said("approve but x"),
    )
    assert said("approve x") is None


@pytest.mark.parametrize("sign", [", ", ": ", " — ", " - ", "; ", "\n", " but "])
@pytest.mark.parametrize("command", ["approve", "reopen impl"])
def test_consent_that_depends_on_something_is_none(command: str, sign: str) -> None:
    """However the condition is set off."""
    assert said(f"{command}{sign}if it is green") is None
    assert said(f"{command}{sign}mind the prices") is not None


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("skip: not yet, wait for bob", "skip"),
        ("重試,先等等", "retry"),
        ("continue, no wait", "continue"),
        ("start us-001, but not yet", "start_story"),
        ("reopen impl: later", "reopen"),
        ("reject, no wait", "reject"),
        ("abort: hold on", "abort"),
    ],
)
def test_a_command_that_is_put_off_is_no_work(text: str, command: str) -> None:
    """It is asked about; a custom task would start at once."""
    assert (None, command) == (said(text), near(text))


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("approve x", "approve"),
        ("退回單", "reject"),
        ("不要核准", "approve"),
        ("go ahead and approve", "approve"),
        ("rollback to bdd", "reopen"),
        ("回到 實作", "reopen"),
        ("重試 impl", "retry"),
        ("繼續下一個 story", "continue"),
        ("開新 story:購物車折扣", "start_story"),
        ("redo us-3", "start_story"),
        ("備註", "note"),
        ("fix it", None),
        ("go back to the old header", None),
        ("continue the migration of the parser", None),
    ],
)
def test_what_comes_near_to_a_command_is_known(text: str, command: str | None) -> None:
    """And what forbids a decision."""
    assert command == near(text)


def test_reasons_have_words_in_both_languages() -> None:
    """One at the beginning counts before those in the text."""
    assert ("scope_warning", 5) == reason_in("scope: the constitution is fine")
    assert ("constitution_violation", 0) == reason_in("it breaks the constitution")
    assert ("test_timeout", 2) == reason_in("超時")
    assert (None, 0) == reason_in("no")


def test_an_agent_is_told_to_do_a_story() -> None:
    """Words for work mean a start there, and nowhere else."""
    assert Said("start_story", story="us-7") == work_for_an_agent("implement us-7")
    assert said("implement us-7") is None


def test_teams() -> None:
    """The words of the protocol; user agents are none."""
    assert [True, True, True, True, False] == [
        wants_team(text) for text in ("agent-teams", "three agents", "平行", "多 agent", "log user agents")
    ]


def test_steps_have_names_in_chinese() -> None:
    """As people say them."""
    assert ("impl", "verify") == (STEPS_IN_CHINESE["實作"], STEPS_IN_CHINESE["驗證"])
