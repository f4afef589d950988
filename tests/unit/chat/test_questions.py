"""Which messages ask, and about what. Whole messages are in tests/data/intents."""

from __future__ import annotations

import click
import pytest
from tests.support.chat_tables import DISPATCHING

from handoffd.chat.intents import classify
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


@pytest.mark.parametrize("name", cli.list_commands(click.Context(cli)))
def test_no_name_of_a_command_is_a_task(name: str) -> None:
    """Some are commands in a chat, too."""
    assert classify(name).kind not in DISPATCHING - {"continue", "retry", "skip", "reopen"}
