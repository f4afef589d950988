"""Commands as whole messages. Most phrases are in tests/data/intents; these are the rules for all."""

from __future__ import annotations

from typing import get_args

import pytest

from handoffd.chat.commands import (
    STEPS_IN_CHINESE,
    Command,
    Said,
    near,
    reason_in,
    reason_meant,
    said,
    wants_team,
    work_for_an_agent,
)
from handoffd.chat.intents import classify, settled

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
    """None needs a terminal."""
    assert {name: name for name in get_args(Command)} == {
        name: found.command for name, text in ONE_EACH.items() if (found := said(text))
    }


@pytest.mark.parametrize("command", sorted(set(ONE_EACH) - {"list", "detect", "note", "start_story"}))
def test_courtesies_and_the_object_change_nothing(command: str) -> None:
    """Please, this story, thanks."""
    found = said(f"please {ONE_EACH[command]} this story, thanks")

    assert found is not None
    assert command == found.command


def test_a_note_is_set_off() -> None:
    """By a sign, or by a word that begins one; the result has its place."""
    assert Said("approve", note_at=9) == said("approve: x")
    assert Said("approve", note_at=8) == said("approve but x")
    assert said("approve x") is None


@pytest.mark.parametrize("sign", [", ", ": ", " — ", " - ", "; ", "\n", " but "])
@pytest.mark.parametrize("command", ["approve", "reopen impl"])
def test_conditional_consent_is_not_consent(command: str, sign: str) -> None:
    """The condition may be set off in any way."""
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
def test_a_command_that_is_put_off_is_not_work(text: str, command: str) -> None:
    """The reply asks back; a custom task would start at once."""
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
def test_a_message_may_resemble_a_command(text: str, command: str | None) -> None:
    """Or forbid a decision."""
    assert command == near(text)


def test_reasons_have_words_in_both_languages() -> None:
    """One at the beginning counts before others in the text."""
    assert ("scope_warning", 5) == reason_in("scope: the constitution is fine")
    assert ("constitution_violation", 0) == reason_in("it breaks the constitution")
    assert ("test_timeout", 2) == reason_in("超時")
    assert (None, 0) == reason_in("no")


@pytest.mark.parametrize("word", ["scope", "Scope warning", "scope_warning", " too big ", "範圍太大"])
def test_a_reason_alone_is_given_by_its_name_or_as_in_a_chat(word: str) -> None:
    """With something behind it, it is a sentence."""
    assert "scope_warning" == reason_meant(word)
    assert reason_meant(f"{word.strip()} is fine") is None


def test_a_verb_of_work_for_an_agent_starts_a_story() -> None:
    """Without an agent it does not."""
    assert Said("start_story", story="us-7") == work_for_an_agent("implement us-7")
    assert said("implement us-7") is None


def test_teams() -> None:
    """By the words of the protocol; user agents are not meant."""
    assert [True, True, True, True, False] == [
        wants_team(text) for text in ("agent-teams", "three agents", "平行", "多 agent", "log user agents")
    ]


def test_steps_have_names_in_chinese() -> None:
    """People use them."""
    assert ("impl", "verify") == (STEPS_IN_CHINESE["實作"], STEPS_IN_CHINESE["驗證"])


@pytest.mark.parametrize(
    ("text", "command", "story"),
    [
        ("undo", "undo", None),
        ("undo it, please", "undo", None),
        ("undo the last approval", "undo", None),
        ("take back my approval of US-002", "undo", "US-002"),
        ("撤銷核准", "undo", None),
        ("取消剛才的核准", "undo", None),
        ("land", "land", None),
        ("land us-002 onto main", "land", "US-002"),
        ("merge US-002", "land", "US-002"),
        ("merge the story", "land", None),
        ("合併 US-002", "land", "US-002"),
        ("落地", "land", None),
        ("discard US-002", "discard", "US-002"),
        ("throw away the story", "discard", None),
        ("丟棄 US-002", "discard", "US-002"),
        ("CC, land US-002", "land", "US-002"),
        ("讓 CC 丟棄 US-002", "discard", "US-002"),
    ],
)
def test_what_is_decided_in_a_terminal_is_named_and_not_done(
    text: str, command: str, story: str | None
) -> None:
    """Nor is it a task, or a note at a gate."""
    intent = settled(classify(text), at_gate=True)

    assert ("unclear", command, story) == (intent.kind, intent.command, intent.story)


@pytest.mark.parametrize(
    "text",
    ["undo the change to the login page", "land the user on the login page", "discard drafts after a week",
     "merge the two parsers"],
)  # fmt: skip
def test_the_words_of_a_terminal_are_words_of_work_beside_an_object(text: str) -> None:
    """A story's end is meant only if nothing else is named."""
    assert "start_custom" == classify(text).kind
