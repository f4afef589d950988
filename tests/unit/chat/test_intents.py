"""What messages mean: a corpus in two languages, and what holds for any text at all."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoffd.chat.intents import DISPATCHING, KINDS, Intent, classify, settled
from handoffd.chat.questions import begins_with_work
from handoffd.chat.text import cleaned, folded, trimmed
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
DECISIONS = (
    "approve",
    "LGTM",
    "I approve",
    "核准",
    "通過",
    "批准 US-005",
    "skip",
    "跳過",
    "retry",
    "重試",
    "reopen impl",
    "重開 實作",
)
ORDERS = (
    "debug", "evaluate", "profile", "refactor", "review", "add", "check", "rename", "migrate", "write",
    "fix", "audit", "investigate", "remove", "update", "implement",
)  # fmt: skip
SET_OFF = (": ", "：", ", ", "，", " — ", " - ", "; ", "\n", ". ", " but ", "但")
SOFTENERS = (
    "",
    "",
    "please ",
    "well, ",
    "actually ",
    "but ",
    "we should ",
    "請",
    "不過",
    "其實",
    "**",
    "looks good, ",
    "很好，",
)
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
    """Each phrase means what its line says."""
    expected = {key: value for key, value in entry.items() if key != "say"}
    found = asdict(classify(entry["say"]))

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


@settings(deadline=None)
@given(ANY_TEXT)
def test_any_text_means_something(text: str) -> None:
    """Nothing raises, and what becomes part of a path can be one."""
    intent = classify(text)

    assert intent.kind in KINDS
    assert intent.story is None or is_story_id(intent.story)
    assert (intent.kind == "start_custom") == (intent.instruction is not None)


def _mentions_cc(text: str) -> bool:
    return "cc" in text.lower() or "claude" in text.lower() or "ｃｃ" in text.lower()


@settings(deadline=None)
@given(ANY_TEXT, st.sampled_from(["? ", "？"]), ANY_TEXT)
def test_a_question_mark_never_dispatches(before: str, mark: str, after: str) -> None:
    """Wherever in a message it is; only CC can be told to find something out."""
    intent = classify(f"{before}{mark} {after}")

    assert _mentions_cc(before + after) or intent.addressed or intent.kind not in DISPATCHING


@settings(deadline=None)
@given(ANY_TEXT, st.sampled_from([f" {word} " for word in QUESTION_WORDS]), ANY_TEXT)
def test_a_question_word_dispatches_only_behind_a_verb_of_work(before: str, mark: str, after: str) -> None:
    """`debug why …` is an order: whoever wants to know says it in another way."""
    text = f"{before}{mark}{after}"
    intent = classify(text)
    told = _mentions_cc(text) or begins_with_work(trimmed(folded(cleaned(text))))

    assert told or intent.addressed or intent.kind not in DISPATCHING


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(ORDERS),
    st.sampled_from(["what", "why", "how", "whether", "which"]),
    st.sampled_from(["", "Please ", "can you ", "ok, "]),
    st.booleans(),
)
def test_an_order_stays_one_whatever_question_word_it_holds(
    verb: str, word: str, polite: str, capitals: bool
) -> None:
    """But for a question mark: then it asks."""
    text = f"{polite}{verb} {word} the totals differ"
    text = text.upper() if capitals else text

    assert ("start_custom", "query") == (classify(text).kind, classify(f"{text}?").kind)


@settings(deadline=None)
@given(ANY_TEXT, st.sampled_from(["?", "？", *(f" {word} " for word in QUESTION_WORDS)]), ANY_TEXT)
def test_a_question_never_approves(before: str, mark: str, after: str) -> None:
    """Not even one that begins like an approval."""
    assert classify(f"{before}{mark}{after}").kind not in {"approve", "reject"}


@settings(deadline=None)
@given(ANY_TEXT)
def test_what_does_not_say_so_never_approves(text: str) -> None:
    """Consent has words of its own, and the message begins with them."""
    if classify(text).kind == "approve":
        begins = text.lower().replace("\u200b", "").lstrip(" ,:!，：")
        assert any(word in begins for word in ("approve", "lgtm", "核准", "批准", "通過", "通过", "ｌｇｔｍ"))


@settings(deadline=None)
@given(
    st.sampled_from(["approve", "LGTM", "核准", "通過"]),
    st.sampled_from(["flow", "button", "users", "流程", "按鈕"]),
)
def test_words_after_a_decision_are_no_note(decision: str, noun: str) -> None:
    """A note is set off from what it comes with."""
    assert "unclear" == classify(f"{decision} {noun} is slow").kind


@settings(deadline=None, max_examples=400)
@given(
    st.sampled_from(DECISIONS), st.sampled_from(SET_OFF), st.lists(st.sampled_from(SOFTENERS), max_size=3),
    st.sampled_from(PROVISOS), st.sampled_from(TAILS),
)  # fmt: skip
def test_what_is_put_off_or_forbidden_decides_nothing(
    decision: str, sign: str, softeners: list[str], proviso: str, tail: str
) -> None:
    """However it is set off, whatever stands before and after it; at a gate it is kept."""
    intent = classify(f"{decision}{sign}{''.join(softeners)}{proviso}{tail}")

    assert ("unclear", "note") == (intent.kind, settled(intent, at_gate=True).kind)
    assert intent.near in {"approve", "skip", "retry", "reopen"}


@settings(deadline=None)
@given(st.sampled_from(DECISIONS[:6]), st.sampled_from(SET_OFF[:8]), ANY_TEXT, st.sampled_from(PROVISOS[:10]))
def test_a_proviso_first_of_all_leaves_no_note_to_save_it(
    decision: str, sign: str, text: str, proviso: str
) -> None:
    """Any text may follow."""
    assert classify(f"{decision}{sign}{proviso} {text}").kind != "approve"


@pytest.mark.parametrize("sign", "👎❌🚫🛑⛔✋")
def test_an_emoji_can_say_no(sign: str) -> None:
    """Wherever it stands; what cheers changes nothing."""
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
def test_commands_questions_and_cc_stay_what_they_are_at_a_gate(text: str) -> None:
    """The rule is for other text."""
    assert classify(text) == settled(classify(text), at_gate=True)


@settings(deadline=None)
@given(ANY_TEXT)
def test_a_gate_makes_no_consent_of_anything(text: str) -> None:
    """What was no approval before is none there."""
    intent = classify(text)

    assert (settled(intent, at_gate=True).kind == "approve") == (intent.kind == "approve")
    assert intent == settled(intent, at_gate=False)


def test_a_very_long_message_is_no_command() -> None:
    """Whoever decides says so by itself; and long nonsense does not keep anybody waiting."""
    long = "x" * 70_000

    assert ("unclear", "approve") == ((intent := classify(f"approve: {long}")).kind, intent.near)
    assert "start_custom" == classify(f"fix it: {long}").kind
    assert "query" == classify(f"{'好的' * 20_000}?").kind


def test_nothing_is_kept_of_nothing() -> None:
    """An empty note would only hide one that says something."""
    assert "unclear" == settled(classify(" \u200b\n"), at_gate=True).kind


def test_an_intent_is_a_value() -> None:
    """Two messages that mean the same are equal but for their text."""
    assert Intent(kind="reject", text="退回", reason=Reason.NEEDS_CLARIFICATION) == classify("退回")
