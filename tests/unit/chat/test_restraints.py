"""What holds back instead of ordering. Whole messages are in tests/data/intents/restraints.yaml."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoffd.chat.intents import DISPATCHING, classify
from handoffd.chat.restraints import forbids_agent, leaves_nothing_to_do, remarks_on_agent, restraint
from handoffd.chat.text import cleaned, folded, trimmed

STOPS = [
    *(
        f"{stop} {what}"
        for stop in ("stop", "halt", "pause")
        for what in ("", "everything", "it now", "all agents", "CC")
    ),
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


@settings(deadline=None)
@given(st.sampled_from(STOPS), st.sampled_from(SPELT), st.sampled_from("! .。"))
def test_a_stop_pauses(stop: str, spelt: Callable[[str], str], sign: str) -> None:
    """However it is spelt."""
    assert "pause" == classify(spelt(stop) + sign).kind


@settings(deadline=None)
@given(st.sampled_from(FORBIDDING), st.sampled_from(ACTS), st.sampled_from(SPELT))
def test_what_is_forbidden_starts_nothing(forbidding: str, act: str, spelt: Callable[[str], str]) -> None:
    """It is asked about."""
    assert "unclear" == classify(spelt(f"{forbidding} {act}")).kind


@settings(deadline=None)
@given(
    st.sampled_from(FORBIDDING),
    st.sampled_from(("commit", "touch the tests", "碰測試")),
    st.sampled_from(ORDERS),
)
def test_an_order_behind_it_is_one(forbidding: str, act: str, order: str) -> None:
    """All of it is the instruction."""
    text = f"{forbidding} {act}, {order}"

    assert ("start_custom", text) == ((intent := classify(text)).kind, intent.instruction)


def held(text: str, *, told: bool = False) -> str | None:
    """Return how a message holds back."""
    return restraint(trimmed(folded(cleaned(text))), told=told)


def test_what_an_agent_is_told_may_forbid_something() -> None:
    """To go on is not among that."""
    assert (None, "wait", "stop") == (
        held("don't log passwords", told=True),
        held("don't start", told=True),
        held("stop", told=True),
    )
    assert "wait" == held("don't log passwords")


def test_a_stop_of_more_than_the_project_is_not_done_by_halves() -> None:
    """One asks."""
    assert ("wait", "wait") == (held("stop all projects"), held("stop the daemon"))


@pytest.mark.parametrize(
    "text", ["without cc", "fix the login; no cc", "i don't want cc to fix it", "不用 cc"]
)
def test_an_agent_can_be_forbidden(text: str) -> None:
    """Where the message begins, or behind a sign."""
    assert forbids_agent(text)


def test_what_an_order_says_of_an_agent_is_part_of_it() -> None:
    """It forbids nobody to begin."""
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


@settings(deadline=None)
@given(st.text(max_size=300), st.sampled_from(["stop ", "不要", "CC ", "停 ", "全部" * 50, "please " * 40]))
def test_any_text_is_read(text: str, before: str) -> None:
    """Nothing raises; a stop by itself is none of the intents that start an executor."""
    if held(before + text) is not None:
        assert classify(before + text).kind not in DISPATCHING
