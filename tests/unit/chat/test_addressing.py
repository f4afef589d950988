"""Messages that name their project: at the beginning, at the end, or only by chance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoffd.chat.addressing import directed, says_something
from handoffd.chat.intents import classify
from handoffd.protocol import yamltext

PHRASES = Path(__file__).parents[2] / "data" / "chat" / "phrases.yaml"
SAID = [
    say for row in yamltext.load(PHRASES.read_text("utf-8"), file=PHRASES.name).data for say in row["say"]
]
CALLED = ("A", "B", "legacy-api", "todo-app")


def wide(text: str) -> str:
    """Return a text in full-width signs, as input methods write them."""
    return "".join(chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in text)


SPELT: dict[str, Callable[[str], str]] = {
    "as it is": str, "capitals": str.upper, "small": str.lower, "full-width": wide,
    "blanks": lambda text: text.replace(" ", "  "), "wide blanks": lambda text: text.replace(" ", "\u3000"),
    "unseen": "\u200b".join,
}  # fmt: skip
BEFORE = ("", " ", "please ", "Please, ", "請", "麻煩 ", "「", "\n")
BEHIND = ("", " ", ".", "。", "！", ", thanks", "，謝謝", " please", "」", " \n")


def meaning(text: str) -> tuple[object, ...]:
    """Return the meaning of a message, without its text."""
    found = directed(text, CALLED)
    intent, name = found.intent, found.project
    return (
        intent.kind, name and name.lower(), intent.story and intent.story.lower(), intent.step, intent.near,
        intent.addressed, intent.agent_teams, intent.topic, intent.reason, found.compared,
    )  # fmt: skip


NAMES = ("shop", "shop-api", "my.site", "review", "網店", "/srv/a b")


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("shop: status", "shop", "query"),
        ("Shop：狀態", "shop", "query"),
        ("shop 的進度", "shop", "query"),
        ("shop的進度", "shop", "query"),
        ("status of shop", "shop", "query"),
        ("what's the status of shop-api?", "shop-api", "query"),
        ("shop-api status", "shop-api", "query"),
        ("shop 繼續", "shop", "continue"),
        ("繼續 shop", "shop", "continue"),
        ("approve @shop", "shop", "approve"),
        ("approve for shop", "shop", "approve"),
        ("shop, approve: mind the rounding", "shop", "approve"),
        ("start US-001 in shop", "shop", "start_story"),
        ("網店：核准", "網店", "approve"),
        ("網店的測試過了嗎", "網店", "query"),
        ("my.site: retry", "my.site", "retry"),
        ("shop", "shop", "query"),
        ("switch to shop", "shop", "query"),
        ("切換到 shop", "shop", "query"),
        ("[shop] fix the header", "shop", "start_custom"),
        ("shop: fix the header", "shop", "start_custom"),
        ("/srv/a b: status", "/srv/a b", "query"),
        ("shop: don't approve", "shop", "unclear"),
    ],
)  # fmt: skip
def test_a_project_is_named(text: str, name: str, kind: str) -> None:
    """With or without a sign, if the rest is understood."""
    found = directed(text, NAMES)

    assert (name, True, kind) == (found.project, found.firm, found.intent.kind)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fix the header of shop", "shop"),
        ("use CC to fix the login in shop", "shop"),
        ("shop page needs a footer", None),
        ("add a link to the shop", None),
        ("rename workshop", None),
        ("fix shop-ui", None),
    ],
)
def test_work_keeps_all_its_words(text: str, name: str | None) -> None:
    """The name may be a word of it; it counts only if nothing else names a project."""
    found = directed(text, NAMES)

    assert (name, False, "start_custom") == (found.project, found.firm, found.intent.kind)
    assert classify(text) == found.intent


def test_a_command_may_contain_the_name_of_a_project() -> None:
    """It is for the current project."""
    assert (None, "approve") == ((found := directed("approve review", NAMES)).project, found.intent.kind)
    assert (None, "note") == ((found := directed("note: look at shop", NAMES)).project, found.intent.kind)


def test_a_question_about_a_project_starts_nothing() -> None:
    """Its mark stays when its address is cut off."""
    assert "query" == directed("start US-001 in shop?", NAMES).intent.kind


def test_the_instruction_of_a_task_is_without_its_address() -> None:
    """The agent need not know the project's name."""
    assert "fix the header" == directed("[shop] fix the header", NAMES).intent.instruction


@given(st.text(max_size=100), st.lists(st.text(max_size=10), max_size=4))
def test_any_text_and_any_names(text: str, names: list[str]) -> None:
    """Names of projects come from their files."""
    found = directed(text, names)

    assert found.project is None or found.project in names


@given(st.text(max_size=100))
def test_without_names_a_message_keeps_its_meaning(text: str) -> None:
    """No part is taken for an address."""
    assert classify(text) == directed(text, ()).intent


@pytest.mark.parametrize("say", sorted(set(SAID)))
def test_any_spelling_means_the_same(say: str) -> None:
    """Capitals, full-width signs, blanks and courtesies change nothing."""
    meant = meaning(say)

    for name, spelt in SPELT.items():
        assert meant == meaning(spelt(say)), name
    for before in BEFORE:
        assert meant == meaning(f"{before}{say}"), before
    for behind in BEHIND:
        assert meant == meaning(f"{say}{behind}"), behind


@settings(max_examples=400)
@given(
    st.sampled_from(SAID), st.sampled_from(sorted(SPELT)), st.sampled_from(BEFORE), st.sampled_from(BEHIND)
)
def test_spelling_and_courtesies_together_change_nothing(
    say: str, name: str, before: str, behind: str
) -> None:
    """People combine them."""
    assert meaning(say) == meaning(f"{before}{SPELT[name](say)}{behind}")


@pytest.mark.parametrize(
    ("text", "name", "instruction"),
    [
        ("用 Claude Code 幫 shop 做 code review", "shop", "做 code review"),
        ("修正 shop 專案的錯誤", "shop", "修正 shop 專案的錯誤"),
        ("fix the header of the shop project", "shop", "fix the header of the shop project"),
        ("shop 專案加入購物車", "shop", "加入購物車"),
        ("nosuch 專案加入購物車", "nosuch", "加入購物車"),
    ],
)
def test_work_for_a_named_project_is_for_that_one(text: str, name: str, instruction: str) -> None:
    """Also if no project has the name."""
    found = directed(text, NAMES)

    assert (name, True, instruction) == (found.project, found.firm, found.intent.instruction)


def test_projects_are_compared_in_the_order_of_the_message() -> None:
    """An agent compares other things."""
    assert ("shop-api", "shop") == directed("compare shop-api and shop", NAMES).compared
    assert () == directed("compare the progress of north and south", NAMES).compared
    assert directed("compare moment and date-fns", NAMES).compared is None


@pytest.mark.parametrize(
    "piece",
    [" ", ".", "please ", "請", "a, ", "繼續 scaffold ", "agents ", "what is about ", "建立 ", "compare "],
)
def test_a_message_of_any_length_is_read(piece: str) -> None:
    """A search in quadratic time would block other users for minutes."""
    long = piece * (60_000 // len(piece))

    assert directed(f"a{long}b", NAMES).intent.kind != "approve"
    assert directed(f"approve: {long}", NAMES).intent.text.startswith("approve")


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("undo shop", "unclear", "undo"),
        ("land shop US-002", "unclear", "land"),
        ("discard US-002 of shop", "unclear", "discard"),
        ("shop：撤銷核准", "unclear", "undo"),
        ("usage shop", "unclear", "usage"),
        ("show gate shop", "query", "gate"),
        ("show the review of shop", "query", "gate"),
        ("shop 的關卡", "query", "gate"),
        ("report of shop", "query", "report"),
        ("tonight in shop", "query", "tonight"),
    ],
)
def test_a_command_or_screen_may_name_its_project(text: str, kind: str, said: str) -> None:
    """As in a terminal, or as people say it."""
    meant = directed(text, ["shop", "bank"])

    assert (kind, said, "shop", True) == (
        meant.intent.kind, meant.intent.command or meant.intent.topic, meant.project, meant.firm,
    )  # fmt: skip


def test_a_word_with_a_meaning_is_no_guess_at_a_folder() -> None:
    """Any other word may be one."""
    assert [True, True, True, True, False, False] == [
        says_something(word) for word in ("tonight", "tests", "undo", "今晚", "legacy-api", "shop")
    ]
