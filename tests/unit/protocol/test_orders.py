"""What tells to work. Whole messages are in tests/data/intents/orders.yaml and idle.yaml."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoffd.protocol.chattext import cleaned, folded, trimmed
from handoffd.protocol.intents import DISPATCHING, classify, settled
from handoffd.protocol.orders import disposes_of_story, tells_to_work

VERBS = ("fix", "add", "rename", "refactor", "show", "cache", "give", "round")
PREFACES = (
    "",
    "please ",
    "can you ",
    "now ",
    "I want you to ",
    "we need to ",
    "also, ",
    "- ",
    "1. ",
    "hey, ",
)
VERBS_ZH = ("修正", "新增", "移除", "隱藏", "翻譯", "改善")
PREFACES_ZH = ("", "請", "幫我", "接下來", "順便", "我想要", "麻煩你")
IDLE = ("take a break", "dark mode", "lunch time", "到此為止", "下班了", "we are out of budget", "easy there")


def read(text: str) -> str:
    """Return a text as it comes to be read."""
    return trimmed(folded(cleaned(text)))


@settings(deadline=None)
@given(st.sampled_from(PREFACES), st.sampled_from(VERBS))
def test_an_order_begins_with_work(preface: str, verb: str) -> None:
    """Behind whatever is polite or personal."""
    assert tells_to_work(read(f"{preface}{verb} the totals of the cart"))


@settings(deadline=None)
@given(st.sampled_from(PREFACES_ZH), st.sampled_from(VERBS_ZH))
def test_an_order_in_chinese(preface: str, verb: str) -> None:
    """With its object behind the verb, or before it."""
    assert tells_to_work(read(f"{preface}{verb}頁尾"))
    assert tells_to_work(read(f"首頁的頁尾{verb}一下"))


@pytest.mark.parametrize("idle", IDLE)
def test_an_order_behind_a_sign_counts(idle: str) -> None:
    """What comes before it changes nothing."""
    assert (False, True) == (tells_to_work(read(idle)), tells_to_work(read(f"{idle}. Fix the login")))


@pytest.mark.parametrize("idle", IDLE)
def test_what_is_no_order_is_asked_about_and_kept_at_a_gate(idle: str) -> None:
    """A person may have meant it for the next prompt."""
    intent = classify(idle)

    assert "unclear" == intent.kind
    assert intent.near == "pause" or (False, idle) == (intent.sure, settled(intent, at_gate=True).note)


def test_a_task_is_started_by_naming_cc_whatever_it_is() -> None:
    """That is what the person who was asked types."""
    assert ("start_custom", "dark mode") == ((told := classify("CC, dark mode")).kind, told.instruction)


@pytest.mark.parametrize(
    ("text", "disposed"),
    [
        ("drop US-007", True),
        ("make sure that US-007 isn't started", True),
        ("把 US-007 拿掉", True),
        ("US-007 刪掉", True),
        ("remove the tests of US-007", False),
        ("refactor US-007", False),
        ("修正 US-007 的測試", False),
    ],
)
def test_a_story_as_a_whole_is_no_work(text: str, disposed: bool) -> None:
    """Its code is."""
    assert disposed == disposes_of_story(read(text))


@settings(deadline=None)
@given(st.sampled_from(("", "CC, ")), st.sampled_from(VERBS), st.text(max_size=300))
def test_any_text_is_read(address: str, verb: str, text: str) -> None:
    """Nothing raises, and what tells to nothing starts nothing but by CC."""
    if not tells_to_work(read(text)):
        assert "start_custom" != classify(text).kind or classify(text).addressed
    assert classify(f"{address}{verb} {text}").kind is not None


def test_a_long_text_is_read_in_time() -> None:
    """Each clause is looked at for its beginning only."""
    assert not tells_to_work("x, " * 30_000)
    assert DISPATCHING.isdisjoint({classify("x" * 60_000).kind, classify("好" * 60_000).kind})
