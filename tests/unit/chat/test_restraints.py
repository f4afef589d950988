"""Messages that hold back, and notes that take a decision back. Most phrases are in tests/data/intents."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.chat_tables import DISPATCHING

from handoffd.chat.intents import classify
from handoffd.chat.restraints import (
    forbids_agent,
    has_refusing_sign,
    leaves_nothing_to_do,
    remarks_on_agent,
    restraint,
    takes_back,
    turns_round,
)
from handoffd.chat.text import cleaned, folded, trimmed

ALL_CHINESE = ("", "全部", "所有工作", " agent", " CC")
EVERYTHING = ("", "everything", "it now", "all agents", "CC")
STOPS = [
    *(f"{stop} {what}" for stop in ("stop", "halt", "pause") for what in EVERYTHING),
    *(
        f"{stop}{what}"
        for stop in ("停", "停止", "暫停")
        for what in ("", "全部", "所有工作", " agent", " CC")
    ),
]
FORBIDDING = (
    "don't", "do not", "Don’t", "never", "please do not", "let's not", "不要", "先不要", "別", "请不要",
)  # fmt: skip
ACTS = ("start US-007", "continue", "run CC", "use CC", "do US-007 with CC", "做 US-007", "用 CC 做", "繼續")
ORDERS = ("fix the login", "add a footer", "修好登入", "把頁尾改成藍色")
SPELT: tuple[Callable[[str], str], ...] = (str, str.upper, str.title, "\u200b".join)


@given(st.sampled_from(STOPS), st.sampled_from(SPELT), st.sampled_from("! .。"))
def test_a_stop_pauses(stop: str, spelt: Callable[[str], str], sign: str) -> None:
    """In any spelling."""
    assert "pause" == classify(spelt(stop) + sign).kind


@given(st.sampled_from(FORBIDDING), st.sampled_from(ACTS), st.sampled_from(SPELT))
def test_a_forbidden_act_starts_nothing(forbidding: str, act: str, spelt: Callable[[str], str]) -> None:
    """The reply asks back."""
    assert "unclear" == classify(spelt(f"{forbidding} {act}")).kind


@given(
    st.sampled_from(FORBIDDING),
    st.sampled_from(("commit", "touch the tests", "碰測試")),
    st.sampled_from(ORDERS),
)
def test_an_order_after_a_negation_is_an_order(forbidding: str, act: str, order: str) -> None:
    """The whole message is the instruction."""
    text = f"{forbidding} {act}, {order}"

    assert ("start_custom", text) == ((intent := classify(text)).kind, intent.instruction)


def held(text: str, *, told: bool = False) -> str | None:
    """Return how a message holds back."""
    return restraint(trimmed(folded(cleaned(text))), told=told)


def test_an_order_to_an_agent_may_contain_a_negation() -> None:
    """Unless it forbids to go on."""
    assert (None, "wait", "stop") == (
        held("don't log passwords", told=True),
        held("don't start", told=True),
        held("stop", told=True),
    )
    assert "wait" == held("don't log passwords")


def test_a_stop_of_more_than_the_project_stops_nothing() -> None:
    """The reply asks back."""
    assert ("wait", "wait") == (held("stop all projects"), held("stop the daemon"))


@pytest.mark.parametrize(
    "text", ["without cc", "fix the login; no cc", "i don't want cc to fix it", "不用 cc"]
)
def test_an_agent_can_be_forbidden(text: str) -> None:
    """At the beginning of a message, or behind a sign."""
    assert forbids_agent(text)


def test_an_order_may_mention_an_agent() -> None:
    """It forbids nothing."""
    assert not forbids_agent("fix the page that works without cc")


def test_remarks_order_nothing() -> None:
    """Unless an order follows them."""
    assert (True, True, False) == (
        remarks_on_agent("thanks cc"),
        remarks_on_agent("i think cc is slow"),
        remarks_on_agent("cc is done, add a footer"),
    )
    assert (True, False) == (
        leaves_nothing_to_do("i fixed the login"),
        leaves_nothing_to_do("i fixed the login, now add a footer"),
    )


@given(st.text(max_size=300), st.sampled_from(["stop ", "不要", "CC ", "停 ", "全部" * 50, "please " * 40]))
def test_any_text_is_read(text: str, before: str) -> None:
    """A message that holds back starts no executor."""
    if held(before + text) is not None:
        assert classify(before + text).kind not in DISPATCHING


REFUSING = (
    "not yet", "well, we should wait", "*not* now", "bob has to look first", "prices are fine, but not yet",
    "looks good, unless bob minds", "但改完再上線", "其實先不要", "測試過的話", "bob 還沒看",
)  # fmt: skip
AGREEING = (
    "mind the prices", "notes are fine", "iffy names, but fine", "use cents, not floats", "no objections",
    "firstly named fields", "holders are named", "注意價格", "不錯", "不過記得四捨五入", "沒問題",
    "金額要能再算一次",
)  # fmt: skip


@pytest.mark.parametrize("note", [*REFUSING, *AGREEING])
def test_a_note_that_forbids_or_puts_off_takes_a_decision_back(note: str) -> None:
    """At the beginning by any such word, later only by plain ones; words that begin like one do not."""
    assert (note in REFUSING) == takes_back(note)


def test_fewer_words_take_a_rejection_back() -> None:
    """People often name a fault with a negation."""
    assert [True, True, False, False] == [
        turns_round(note, loose=False)
        for note in ("not yet", "先等等", "not clear", "if it is negative show zero")
    ]
    assert turns_round("if it is red", loose=True)


def test_emoji_that_refuse() -> None:
    """Also among others."""
    assert [True, False] == [has_refusing_sign(text) for text in ("fine 👍 ❌", "fine 👍")]


def test_a_long_note_is_looked_through_quickly() -> None:
    """The search does not start again at every word."""
    assert not takes_back("well, " * 600 + "mind it")
    assert not takes_back("looks good " * 400)
