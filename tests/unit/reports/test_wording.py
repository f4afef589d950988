"""The sentences of both languages say the same things with the same values."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import get_args

import pytest

from handoffd.inspection.table import shipped_layers
from handoffd.protocol.intents import KINDS
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import DONE, Language
from handoffd.protocol.state import Reason
from handoffd.reports.wording import LANGUAGES, MAX_VALUE, placeholders, plain, wording

REPOSITORY = Path(__file__).parents[3]


def test_every_language_has_the_same_sentences() -> None:
    """With the same values in them."""
    needed = [
        {key: placeholders(text) for key, text in wording(language).templates.items()}
        for language in LANGUAGES
    ]

    assert set(get_args(Language)) == set(LANGUAGES)
    assert needed[0] == needed[1]


def test_chinese_is_chinese() -> None:
    """No sentence was forgotten when the others were translated."""
    chinese = wording("zh-TW").templates
    foreign = {key for key, text in chinese.items() if not any("\u4e00" <= sign <= "\u9fff" for sign in text)}

    assert {"list.line", "more.tests", "news.warning", "papers.line"} == foreign


def _codes() -> list[str]:
    """Return the codes of errors that the protocol has: the table of its verbs' answers."""
    lines = (REPOSITORY / "docs" / "protocol.md").read_text(encoding="utf-8").splitlines()
    start = lines.index("| Code | Why |") + 2
    rows = takewhile(lambda line: line.startswith("|"), lines[start:])
    return [code for row in rows for code in re.findall(r"`([A-Z_]+)`", row.split("|")[1])]


@pytest.mark.parametrize("code", _codes())
def test_every_refusal_has_words_in_both_languages(code: str) -> None:
    """A person in a chat does not read English because something went wrong."""
    assert [True] * len(LANGUAGES) == [wording(language).has(f"error.{code}") for language in LANGUAGES]


def test_the_codes_are_found() -> None:
    """A test of none would prove nothing."""
    assert {"NOT_INITIALIZED", "NO_ISSUES", "RESTARTING", "INTERNAL"} <= set(_codes())


def test_no_foreign_words_are_left_in_chinese() -> None:
    """But names: of files, of the program, of what is typed."""
    words = {
        word
        for key, text in wording("zh-TW").templates.items()
        for word in re.findall(r"[A-Za-z][\w.]*", re.sub(r"\{\w+\}|`[^`]*`", "", text))
    }

    assert {"CC", "US", "TCP", "agent", "handoffd", "level", "PROJECT_MEMORY.md", "STATE.json"} == words


@pytest.mark.parametrize("language", LANGUAGES)
def test_steps_reasons_and_intents_have_names(language: Language) -> None:
    """All that there are."""
    words = wording(language)
    steps = {*build_rulebook(shipped_layers(None)).steps, DONE}

    assert [] == [step for step in sorted(steps) if not words.has(f"step.{step}")]
    assert [] == [reason for reason in Reason if not words.has(f"reason.{reason}")]
    assert [] == [kind for kind in KINDS if not words.has(f"intent.{kind}")]


def test_a_step_of_a_projects_own_keeps_its_name() -> None:
    """It cannot have been translated."""
    assert ("security", "實作") == (wording("zh-TW").step("security"), wording("zh-TW").step("impl"))


def test_a_value_is_one_short_line() -> None:
    """Whatever an agent wrote into it; braces and attributes in it mean nothing."""
    said = wording("en").say("error.failed", why="a\n\x1b[2Jb {story.__class__} " + "x" * 999)

    assert said.startswith("That did not work: a \ufffd[2Jb {story.__class__} xxx")
    assert len(said) <= MAX_VALUE + 30
    assert "…" == plain("y" * 999)[-1]


@pytest.mark.parametrize("template", ["{a.b}", "{a[0]}", "{a!r}", "{a:>9}", "{}", "{0}"])
def test_only_names_stand_between_braces(template: str) -> None:
    """A template cannot reach into what it is given."""
    with pytest.raises(ValueError, match="only names"):
        placeholders(template)


def test_lists() -> None:
    """In the punctuation of the language."""
    assert ("a, b", "a、b", "a → b") == (
        wording("en").listed(["a", "b"]), wording("zh-TW").listed(["a", "b"]), wording("en").path(["a", "b"]),
    )  # fmt: skip
