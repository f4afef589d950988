"""The sentences of both languages have the same values; and what a person types next."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest
from tests.support.chat_tables import KINDS

from handoffd.capacity.accounts import Wait
from handoffd.capacity.admission import Admission, Facts
from handoffd.capacity.machine import OUT_OF_DESCRIPTORS
from handoffd.chat.wording import LANGUAGES, MAX_VALUE, placeholders, plain, to_type, wording
from handoffd.engine.run import SCOPES, Finding
from handoffd.engine.track import LimitKind, TrackKey
from handoffd.inspection.own_files import shipped_layers
from handoffd.protocol.rulebook import build_rulebook
from handoffd.protocol.rules import DONE, Language
from handoffd.protocol.state import Reason
from handoffd.settings.model import SchedulingSettings

REPOSITORY = Path(__file__).parents[3]


def test_every_language_has_the_same_sentences() -> None:
    """They have the same values."""
    needed = [
        {key: placeholders(text) for key, text in wording(language).templates.items()}
        for language in LANGUAGES
    ]

    assert set(get_args(Language)) == set(LANGUAGES)
    assert needed[0] == needed[1]


def test_chinese_is_chinese() -> None:
    """Every sentence is translated."""
    chinese = wording("zh-TW").templates
    foreign = {key for key, text in chinese.items() if not any("\u4e00" <= sign <= "\u9fff" for sign in text)}

    assert {"list.line", "more.tests", "news.warning", "papers.line"} == foreign


def _codes() -> list[str]:
    """Return the codes of refusals that the protocol lists."""
    page = (REPOSITORY / "docs/reference/protocol/verbs.md").read_text(encoding="utf-8")
    section = page.partition("## Codes of refusals")[2].partition("\n## ")[0]
    items = re.findall(r"^- (.*)$", section, re.MULTILINE)
    return [code for item in items for code in re.findall(r"(?:^|, |; )`([A-Z_]+)`", item)]


@pytest.mark.parametrize("code", _codes())
def test_every_refusal_has_a_sentence_in_both_languages(code: str) -> None:
    """A failure is reported in the user's language."""
    assert [True] * len(LANGUAGES) == [wording(language).has(f"error.{code}") for language in LANGUAGES]


def test_the_codes_are_found() -> None:
    """Without codes the test above would prove nothing."""
    assert {"NOT_INITIALIZED", "NO_ISSUES", "RESTARTING", "INTERNAL"} <= set(_codes())


def test_no_foreign_words_are_left_in_chinese() -> None:
    """Except names: of files, of the program, of typed words."""
    words = {
        word
        for key, text in wording("zh-TW").templates.items()
        for word in re.findall(r"[A-Za-z][\w.]*", re.sub(r"\{\w+\}|`[^`]*`", "", text))
    }

    names = {"CC", "MiB", "US", "TCP", "agent", "handoffd", "level", "PROJECT_MEMORY.md", "STATE.json"}
    assert names == words


@pytest.mark.parametrize("language", LANGUAGES)
def test_steps_reasons_and_intents_have_names(language: Language) -> None:
    """All of them."""
    words = wording(language)
    steps = {*build_rulebook(shipped_layers(None)).steps, DONE}

    assert [] == [step for step in sorted(steps) if not words.has(f"step.{step}")]
    assert [] == [reason for reason in Reason if not words.has(f"reason.{reason}")]
    assert [] == [kind for kind in KINDS if not words.has(f"intent.{kind}")]


def test_a_step_of_a_projects_own_keeps_its_name() -> None:
    """It is not translated."""
    assert ("security", "實作") == (wording("zh-TW").step("security"), wording("zh-TW").step("impl"))


@pytest.mark.parametrize(
    ("said", "chinese"),
    [
        ("paused by root; tried again at 10:00 UTC", "由 root 暫停；10:00 UTC 再試一次"),
        ("blocked by US-001, which is not done", "要等 US-001 完成"),
        ("blocked by US-001, US-002", "要等這些故事完成：US-001, US-002"),
        ("you or another tool to dispatch it: the project is at level 1", "要等人派工（專案在第 1 級）"),
        ("impl failed: needs_clarification, no attempt left", "impl 失敗（needs_clarification），次數已用完"),
        ("3rd in line", "排在第 3 位"),
        (
            "1,021st or later for a claude slot (2 of 2 in use: a, b)",
            "排在第 1,021+ 位等 claude 的名額（2 個已用 2 個：a, b）",
        ),
        (
            "2nd for a slot (1 of 1 in use: US-001 of shop)",
            "排在第 2 位等名額（1 個已用 1 個：US-001 of shop）",
        ),
        ("an unknown wait; 3rd in line", "an unknown wait；排在第 3 位"),
        ("a slot", "a slot"),
    ],
)
def test_a_wait_is_translated(said: str, chinese: str) -> None:
    """Part for part; English stays."""
    assert (chinese, said) == (wording("zh-TW").translated(said), wording("en").translated(said))


def _waits() -> list[str]:
    """Return sentences about waits from the functions that make them."""
    until = datetime(2026, 1, 31, 15, tzinfo=UTC)
    key = TrackKey("/srv/shop")
    scheduling = SchedulingSettings(min_free_memory_mb=900, max_load_per_core=1.5, stagger_s=5)
    admission = Admission(scheduling)
    limits = [
        Wait(account="claude", kind=kind, until=until, tried_by=tried).words(until - timedelta(hours=2))
        for kind in get_args(LimitKind)
        for tried in (None, key)
    ]
    found = [
        admission.closed(Facts(free_mb=free, load_per_core=load), 0) for free, load in ((100, 0), (9999, 9))
    ]
    admission.started(key, 0)
    found += [admission.closed(Facts(free_mb=free, load_per_core=0), 1) for free in (100, 9999)]
    caps = [Finding(scope=scope, unit="usd", spent=5, cap=4).text for scope in SCOPES]
    return [*limits, *caps, *(one.why for one in found if one is not None), OUT_OF_DESCRIPTORS]


def test_each_sentence_about_a_wait_is_known() -> None:
    """If one changes, its translation must change."""
    chinese = [wording("zh-TW").translated(said) for said in _waits()]

    assert [] == [said for said in chinese if not any("\u4e00" <= sign <= "\u9fff" for sign in said)]
    assert [] == [said for said in chinese if re.search(r"limit|provider|spent|budget|wanted|start", said)]


def test_a_value_is_one_short_line() -> None:
    """An agent may have written it; braces and attributes in it mean nothing."""
    said = wording("en").say("error.failed", why="a\n\x1b[2Jb {story.__class__} " + "x" * 999)

    assert said.startswith("That did not work: a \ufffd[2Jb {story.__class__} xxx")
    assert len(said) <= MAX_VALUE + 30
    assert "…" == plain("y" * 999)[-1]


@pytest.mark.parametrize("template", ["{a.b}", "{a[0]}", "{a!r}", "{a:>9}", "{}", "{0}"])
def test_only_names_are_allowed_between_braces(template: str) -> None:
    """A template cannot reach into its values."""
    with pytest.raises(ValueError, match="only names"):
        placeholders(template)


def test_lists() -> None:
    """In the punctuation of the language."""
    assert ("a, b", "a、b", "a → b") == (
        wording("en").listed(["a", "b"]), wording("zh-TW").listed(["a", "b"]), wording("en").path(["a", "b"]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "begins"),
    [
        ("handoffd approve /srv/shop", "Type `approve`, or `reject REASON"),
        ("handoffd approve /srv/shop --story US-1", "Type `approve`, or `reject REASON"),
        (
            "handoffd gate /srv/shop --story US-1",
            "In a terminal: handoffd gate /srv/shop --story US-1\nType `approve`, or `reject REASON",
        ),
        ("handoffd retry '/srv/my shop'", "Type `retry`"),
        ("handoffd dispatch /srv/shop", "Type `continue`"),
        ("handoffd resume /srv/shop", "Type `continue`"),
        ("handoffd start /srv/shop STORY", "Type `start` and a story's id, as in `start US-001`"),
        ("handoffd note /srv/shop TEXT", "Type `note:"),
        ("handoffd reopen /srv/shop STEP", "Type `reopen STEP"),
        ("handoffd status /srv/shop --watch", "Type `status`"),
        ("handoffd start /srv/shop US-2 --queue", "In a terminal: handoffd start /srv/shop US-2 --queue"),
        ("handoffd limits lift x && handoffd resume /srv/shop", "In a terminal: handoffd limits lift"),
        ("handoffd budget /srv/shop --usd 8", "In a terminal: handoffd budget"),
        ("${EDITOR:-vi} 'it''s", "In a terminal: ${EDITOR:-vi}"),
    ],
)  # fmt: skip
def test_a_command_has_the_words_of_a_chat_if_there_are_any(command: str, begins: str) -> None:
    """Other commands are for a terminal; without a command there is none."""
    assert str(to_type(wording("en"), command)).startswith(begins)
    assert to_type(wording("zh-TW"), None) is None
