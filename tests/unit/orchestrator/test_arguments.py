"""`orchestrator.arguments`: words by position, without what cannot be seen."""

from __future__ import annotations

import os

import pytest

from handoffd.orchestrator.console import UsageError, Words, seen


def test_invisible_characters_are_removed() -> None:
    """A step that was copied from a chat is the step that was meant."""
    assert "impl" == seen("\ufeffim\u200bpl\u2060 ")


def test_chinese_stays() -> None:
    """The reference removes all that is not ASCII; a message in Chinese would be empty."""
    assert "目前狀態如何" == seen(" 目前狀態如何\u200b")


def test_lines_stay_apart() -> None:
    """An instruction may have several."""
    assert "one\ntwo" == seen("one\ntwo\n")


def test_the_root_is_absolute() -> None:
    """Wherever it was said from."""
    assert os.path.join(os.getcwd(), "shop") == Words.of(["x/../shop/"]).root()


def test_a_missing_root_is_said() -> None:
    """With the name it has in the usage."""
    with pytest.raises(UsageError) as raised:
        Words.of(["\u200b"]).root()

    assert ("Error: <project-root> is required",) == raised.value.lines


def test_a_missing_word_is_said_with_an_example() -> None:
    """One line each, for stderr."""
    with pytest.raises(UsageError) as raised:
        Words.of(["."]).needed(1, "target-step", "Example: x")

    assert ("Error: <target-step> is required", "Example: x") == raised.value.lines


def test_words_are_found_by_position_and_flags_anywhere() -> None:
    """As the reference takes them."""
    words = Words.of([".", "do", "it", "--force"])

    assert ("do", "", "do it --force", True) == (
        words.at(1),
        words.at(9),
        words.rest(1),
        words.has("--force"),
    )
