"""The meaning of messages: a corpus in two languages, rules for any text, and how texts are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins
from tests.support.chat_tables import DISPATCHING, KINDS

from handoffd.chat.intents import Intent, classify, settled
from handoffd.chat.questions import begins_with_work
from handoffd.chat.text import cleaned, folded, is_chinese, trimmed
from handoffd.protocol import yamltext
from handoffd.protocol.state import Reason
from handoffd.protocol.story import is_story_id

DATA = Path(__file__).parents[2] / "data" / "intents"
CORPUS: list[dict[str, Any]] = [
    entry
    for path in sorted(DATA.glob("*.yaml"))
    for entry in yamltext.load(path.read_text(encoding="utf-8"), file=path.name).data
]
QUESTION_WORDS = (
    "what", "Why", "how", "HOW", "whether", "什麼", "什么", "為什麼", "为什么", "怎麼", "怎么", "如何",
    "哪", "嗎", "吗", "是否", "有沒有", "誰", "多少",
)  # fmt: skip
WORDS = (
    "approve", "核准", "LGTM", "reject", "退回", "start", "US-001", "story", "continue", "繼續", "status",
    "測試", "the", "login", "page", ",", ":", "：", "retry", "fix", "修正", "，", "!", "\u200b", "agents",
    "note", "reopen", "impl", "not",
)  # fmt: skip
APPROVALS = ("approve", "LGTM", "I approve", "核准", "通過", "批准 US-005")
DECISIONS = (*APPROVALS, "skip", "跳過", "retry", "重試", "reopen impl", "重開 實作")
ORDERS = (
    "debug", "evaluate", "profile", "refactor", "review", "add", "check", "rename", "migrate", "write",
    "fix", "audit", "investigate", "remove", "update", "implement",
)  # fmt: skip
SET_OFF = (": ", "：", ", ", "，", " — ", " - ", "; ", "\n", ". ", " but ", "但")
POLITE = ("", "", "please ", "well, ", "actually ", "but ", "we should ", "looks good, ")
SOFTENERS = (*POLITE, "請", "不過", "其實", "**", "很好，")
PROVISOS = (
    "not yet", "No", "don't merge yet", "do not continue", "wait", "wait for Bob", "hold on", "not now",
    "later",
    "after lunch", "until Monday", "unless it fails", "if it is green", "first fix it", "except the prices",
    "never", "it isn't ready", "ＮＯＴ ＹＥＴ", "no\u200bt yet", "不要", "別合併", "别合并", "勿動",
    "先等等", "等 Bob",
    "還沒", "还没", "暫緩", "除非測試過", "如果測試過", "如果測試都過", "明天再說", "先不要", "晚點",
)  # fmt: skip
TAILS = ("", "", ".", "!", "，謝謝", ", thanks", " 🙏", "\nmind the prices", "：注意價格")
ANY_TEXT = st.text(max_size=200) | st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)


@pytest.mark.parametrize("entry", CORPUS, ids=lambda entry: entry["say"])
def test_the_corpus(entry: dict[str, Any]) -> None:
    """Each phrase has the meaning of its line."""
    expected = {key: value for key, value in entry.items() if key != "say"}
    found = to_builtins(classify(entry["say"]))

    assert expected == {key: found[key] for key in expected}


def test_the_corpus_is_large_and_half_chinese() -> None:
    """Every kind of intent is in it, in both languages."""
    chinese = [entry for entry in CORPUS if any("\u4e00" <= sign <= "\u9fff" for sign in entry["say"])]
    kinds_in_chinese = {entry["kind"] for entry in chinese}
    kinds_in_english = {entry["kind"] for entry in CORPUS if entry not in chinese}

    assert len(CORPUS) >= 150
    assert 0.4 <= len(chinese) / len(CORPUS) <= 0.6
    assert (set(KINDS), set(KINDS)) == (kinds_in_chinese, kinds_in_english)
    assert len({entry["say"] for entry in CORPUS}) == len(CORPUS)


@given(ANY_TEXT)
def test_any_text_means_something(text: str) -> None:
    """A story's id can be a part of a path."""
    intent = classify(text)

    assert intent.kind in KINDS
    assert intent.story is None or is_story_id(intent.story)
    assert (intent.kind == "start_custom") == (intent.instruction is not None)


def _mentions_cc(text: str) -> bool:
    return "cc" in text.lower() or "claude" in text.lower() or "ｃｃ" in text.lower()


@given(ANY_TEXT, st.sampled_from(["? ", "？"]), ANY_TEXT)
def test_a_question_mark_never_dispatches(before: str, mark: str, after: str) -> None:
    """At any place in a message; only CC can be asked to find something out."""
    intent = classify(f"{before}{mark} {after}")

    assert _mentions_cc(before + after) or intent.addressed or intent.kind not in DISPATCHING


@given(ANY_TEXT, st.sampled_from([f" {word} " for word in QUESTION_WORDS]), ANY_TEXT)
def test_a_question_word_dispatches_only_behind_a_verb_of_work(before: str, mark: str, after: str) -> None:
    """`debug why …` is an order: a question has another form."""
    text = f"{before}{mark}{after}"
    intent = classify(text)
    told = _mentions_cc(text) or begins_with_work(trimmed(folded(cleaned(text))))

    assert told or intent.addressed or intent.kind not in DISPATCHING


@settings(max_examples=300)
@given(
    st.sampled_from(ORDERS),
    st.sampled_from(["what", "why", "how", "whether", "which"]),
    st.sampled_from(["", "Please ", "can you ", "ok, "]),
    st.booleans(),
)
def test_an_order_with_a_question_word_is_an_order(verb: str, word: str, polite: str, capitals: bool) -> None:
    """With a question mark it is a question."""
    text = f"{polite}{verb} {word} the totals differ"
    text = text.upper() if capitals else text

    assert ("start_custom", "query") == (classify(text).kind, classify(f"{text}?").kind)


@given(ANY_TEXT, st.sampled_from(["?", "？", *(f" {word} " for word in QUESTION_WORDS)]), ANY_TEXT)
def test_a_question_never_approves(before: str, mark: str, after: str) -> None:
    """Also if it begins like an approval."""
    assert classify(f"{before}{mark}{after}").kind not in {"approve", "reject"}


@given(ANY_TEXT)
def test_text_without_consent_never_approves(text: str) -> None:
    """Consent has its own words, at the beginning of a message."""
    if classify(text).kind == "approve":
        begins = text.lower().replace("\u200b", "").lstrip(" ,:!，：")
        assert any(word in begins for word in ("approve", "lgtm", "核准", "批准", "通過", "通过", "ｌｇｔｍ"))


@given(
    st.sampled_from(["approve", "LGTM", "核准", "通過"]),
    st.sampled_from(["flow", "button", "users", "流程", "按鈕"]),
)
def test_words_after_a_decision_are_not_a_note(decision: str, noun: str) -> None:
    """A note is set off from its decision."""
    assert "unclear" == classify(f"{decision} {noun} is slow").kind


@settings(max_examples=400)
@given(
    st.sampled_from(DECISIONS), st.sampled_from(SET_OFF), st.lists(st.sampled_from(SOFTENERS), max_size=3),
    st.sampled_from(PROVISOS), st.sampled_from(TAILS),
)  # fmt: skip
def test_a_decision_that_is_put_off_or_forbidden_decides_nothing(
    decision: str, sign: str, softeners: list[str], proviso: str, tail: str
) -> None:
    """With any text before and after it; at a gate it is kept as a note."""
    intent = classify(f"{decision}{sign}{''.join(softeners)}{proviso}{tail}")

    assert ("unclear", "note") == (intent.kind, settled(intent, at_gate=True).kind)
    assert intent.near in {"approve", "skip", "retry", "reopen"}


@given(st.sampled_from(APPROVALS), st.sampled_from(SET_OFF[:8]), ANY_TEXT, st.sampled_from(PROVISOS[:10]))
def test_a_note_that_begins_with_a_proviso_approves_nothing(
    decision: str, sign: str, text: str, proviso: str
) -> None:
    """Any text may follow."""
    assert classify(f"{decision}{sign}{proviso} {text}").kind != "approve"


@pytest.mark.parametrize("sign", "👎❌🚫🛑⛔✋")
def test_an_emoji_can_say_no(sign: str) -> None:
    """At any place; a cheering one changes nothing."""
    assert {"unclear"} == {
        classify(text).kind for text in (f"approve {sign}", f"{sign} 核准", f"LGTM: {sign} x")
    }
    assert ("approve", "reject") == (classify("approve 👍").kind, classify(f"reject {sign}").kind)


@pytest.mark.parametrize(
    "text", ["use whole cents", "ok", "👍", "the tests are flaky", "approve if it works", "金額用整數"]
)
def test_free_text_at_a_gate_is_a_note(text: str) -> None:
    """All of it is kept, and it decides nothing."""
    assert ("note", text) == ((intent := settled(classify(text), at_gate=True)).kind, intent.note)


@pytest.mark.parametrize(
    "text", ["approve", "退回 範圍太大", "status?", "list projects", "retry", "讓 CC 修正登入"]
)
def test_commands_questions_and_orders_to_cc_are_the_same_at_a_gate(text: str) -> None:
    """Only other text becomes a note."""
    assert classify(text) == settled(classify(text), at_gate=True)


@given(ANY_TEXT)
def test_only_an_approval_approves_at_a_gate(text: str) -> None:
    """A gate gives no other text that meaning."""
    intent = classify(text)

    assert (settled(intent, at_gate=True).kind == "approve") == (intent.kind == "approve")
    assert intent == settled(intent, at_gate=False)


def test_a_very_long_message_is_not_a_command() -> None:
    """Decisions are short; long nonsense costs no time."""
    long = "x" * 70_000

    assert ("unclear", "approve") == ((intent := classify(f"approve: {long}")).kind, intent.near)
    assert "start_custom" == classify(f"fix it: {long}").kind
    assert "query" == classify(f"{'好的' * 20_000}?").kind


def test_an_empty_message_is_not_a_note() -> None:
    """It would hide another note."""
    assert "unclear" == settled(classify(" \u200b\n"), at_gate=True).kind


def test_an_intent_is_a_value() -> None:
    """Two messages with one meaning differ only in their text."""
    assert Intent(kind="reject", text="退回", reason=Reason.NEEDS_CLARIFICATION) == classify("退回")


def test_invisible_characters_are_removed() -> None:
    """Zero-width and control characters, and blanks around; half of a character leaves a mark."""
    assert "approve it\nnow\ufffd" == cleaned(" \ufeffapp\u200brove\x1b it\nnow\ud800 \u2060")


def test_texts_that_look_the_same_are_the_same() -> None:
    """Full-width signs, capitals, either form of a character, ideographic blanks and quotes."""
    assert 'us-009: "繼續" 狀態?' == folded("ＵＳ－００９： 「继续」　状态？")


def test_signs_and_emoji_around_say_nothing() -> None:
    """A question mark does."""
    assert "approve" == trimmed(" 「approve」!! 👍".replace("「", '"').replace("」", '"'))
    assert "approve?" == trimmed("approve?")


def test_one_ideograph_is_chinese() -> None:
    """A message with English words in it, too."""
    assert (True, False) == (is_chinese("start story 了"), is_chinese("start, s'il vous plaît"))


@given(st.text())
def test_folding_keeps_places(text: str) -> None:
    """A place found in the folded text is a place in the text."""
    assert len(text) == len(folded(text))
    assert trimmed(folded(text)) in folded(text)
