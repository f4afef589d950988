"""Which messages ask, and about what. Whole messages are in tests/data/intents."""

from __future__ import annotations

import click
import pytest
from tests.support.chat_tables import DISPATCHING

from handoffd.chat.intents import classify, settled
from handoffd.chat.questions import asks, begins_with_work, has_mark, names_command, topic
from handoffd.cli.main import cli

ASKING = {
    "clearly": ("fix this?", "say why", "is it green", "status", "please show the tests", "進度", "哪一步"),
    "perhaps": ("the tests on windows are slow", "登入的測試很慢"),
    None: ("fix the tests", "please add a step", "could you add a test", "加一個測試", "dark mode"),
}


@pytest.mark.parametrize(("how", "text"), [(how, text) for how, texts in ASKING.items() for text in texts])
def test_a_question_is_clear_or_possible(how: str | None, text: str) -> None:
    """Clear by its mark, its words, or because it has nothing else; possible if it mentions a topic."""
    assert how == asks(text)


def test_relative_words_ask_only_without_work() -> None:
    """`which` in an instruction belongs to its object."""
    assert (None, "clearly") == (asks("fix the page which is slow"), asks("the page which is slow"))


def test_a_question_has_a_topic() -> None:
    """An obstacle comes first, then tests, then steps."""
    questions = ["why do the tests fail", "are the tests green", "what is left", "status", "hello?"]

    assert ["blocked", "tests", "left", "status", "status"] == [topic(text) for text in questions]


def test_an_instruction_begins_with_work() -> None:
    """Behind courtesies."""
    assert (True, True, False) == (
        begins_with_work("could you please fix it") or begins_with_work("please fix it"),
        begins_with_work("請修正登入"),
        begins_with_work("the fix is late"),
    )


def test_a_mark_asks() -> None:
    """So does a particle; a mark inside an address does not."""
    assert (True, True, False) == (has_mark("stop?"), has_mark("要停嗎"), has_mark("fix /users?id=3"))


def test_a_command_of_the_command_line_is_known_by_its_name() -> None:
    """If the message has nothing else."""
    assert ["usage", "log", "--version", None] == [
        names_command(text) for text in ("show usage", "logs", "版本", "log every request")
    ]


SCREENS = {
    "gate": (
        "gate", "gates", "the gate", "show the gate", "show gate", "open the gate", "look at the review",
        "show the review", "show the review of rev", "see the review for US-002", "what is at the gate?",
        "which reviews wait for me?", "關卡", "看關卡", "顯示審查", "給我看審查內容", "打開關卡",
        "diff", "show the diff", "show me the diff of US-002", "看差異", "show the changes", "看變更",
    ),
    "report": (
        "report", "the report", "show me the morning report", "report for last night", "report of shop",
        "what happened overnight?", "what happened last night", "報告", "看晨報",
        "昨晚發生什麼事", "昨晚的報告",
    ),
    "tonight": (
        "tonight", "show tonight", "the plan for tonight", "what will run tonight?", "tonight's plan",
        "the coming night", "今晚", "今晚的計畫", "今晚會跑什麼",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("about", "text"), [(name, text) for name, texts in SCREENS.items() for text in texts]
)
def test_looking_at_a_screen_is_a_question(about: str, text: str) -> None:
    """It starts nothing, and a gate does not make a note of it."""
    intent = settled(classify(text), at_gate=True)

    assert ("query", about, True) == (intent.kind, intent.topic, intent.sure)


@pytest.mark.parametrize(
    "text",
    [
        "add a gate to the parking app", "write the report page", "fix it tonight",
        "the gate icon is too big", "show a gate icon on the login page", "review the login form",
    ],
)  # fmt: skip
def test_the_words_for_a_screen_stay_words_of_work(text: str) -> None:
    """Only a message that asks for the screen, and says no more, is a question."""
    assert "start_custom" == classify(text).kind


def test_a_screen_may_be_that_of_a_story_or_project() -> None:
    """An unknown name is not taken for the project at hand."""
    assert ["US-002", None] == [classify(text).story for text in ("show the gate of US-002", "gate")]
    assert ["bank", None, None] == [
        classify(text).project for text in ("gate of bank", "gate of the story", "the gate for us-2")
    ]


@pytest.mark.parametrize("name", cli.list_commands(click.Context(cli)))
def test_no_name_of_a_command_is_a_task(name: str) -> None:
    """Some are commands in a chat, too."""
    assert classify(name).kind not in DISPATCHING - {"continue", "retry", "skip", "reopen"}
