"""News for a chat, read off the journal's events."""

from __future__ import annotations

from typing import Any

from handoffd.chat.replies import news, was_measured
from handoffd.chat.wording import wording

COUNTS = {"pass": 44, "fail": 0, "skip": 0}


def event(seq: int, kind: str, before: str, after: str, **more: Any) -> dict[str, Any]:
    """Return an event of a story; `before` and `after` as `step status`."""
    places = [dict(zip(("step", "status"), text.split(), strict=True)) for text in (before, after)]
    return {
        "seq": seq,
        "kind": kind,
        "project": "/srv/shop",
        "before": places[0],
        "after": places[1],
        "why": "why",
        "event": more.get("event", {}),
        "result": more.get("result", {}),
        "orders": more.get("orders", []),
        "rules": more.get("rules", []),
    }


def told(*events: dict[str, Any], language: Any = "zh-TW") -> list[str]:
    """Return the sentences."""
    return [text for _, text in news(wording(language), events)]


START = event(1, "started", "bootstrap pending", "bdd pending", event={"story": "US-005"})
MEASURED = event(
    5, "checks_finished", "impl running", "impl pass", event={"tests": {"counts": COUNTS, "verified": True}}
)


def test_a_step_is_done_and_the_next_begins() -> None:
    """Two decisions, one sentence, with what was measured in between."""
    turn = event(6, "advanced", "impl pass", "verify running", result={"story": "US-005", "attempt": 1})

    assert ["US-005 開始，從情境做起", "US-005 實作完成 ✓ 測試全過（44/44），進入驗證"] == told(
        START, MEASURED, turn
    )


def test_numbers_go_with_the_sentences() -> None:
    """Whoever reads on asks from there."""
    assert [1] == [seq for seq, _ in news(wording("en"), [START, MEASURED])]


def test_counts_of_one_step_are_not_told_of_another() -> None:
    """They end with the next attempt; an exit code alone is no count."""
    begun = event(7, "executor_started", "verify running", "verify running")
    odd = event(
        8,
        "checks_finished",
        "verify running",
        "verify pass",
        event={"tests": {"counts": COUNTS, "verified": False}},
    )
    turn = event(9, "advanced", "verify pass", "update-memory running")

    assert "US-005 驗證完成 ✓ 進入記憶更新" == told(START, MEASURED, begun, odd, turn)[-1]


def test_ends_gates_and_ways_back() -> None:
    """What a person wants to hear of."""
    gate = event(2, "advanced", "contract pass", "review needs_human")
    back = event(3, "advanced", "review failing", "bdd running")
    failed = event(4, "executor_exited", "impl running", "impl failing")
    stuck = event(5, "advanced", "impl failing", "impl needs_human")
    late = event(6, "deadline_passed", "impl running", "impl timeout")
    done = event(7, "advanced", "update-memory pass", "done pass")

    assert [
        "US-005 開始，從情境做起",
        "US-005 契約完成 ✓ 審查等你決定",
        "US-005 從審查退回情境",
        "US-005 實作失敗 ✗（第 1 次）：why",
        "US-005 實作需要你處理：why",
        "US-005 實作逾時",
        "US-005 全部完成 ✓",
    ] == told(START, gate, back, failed, stuck, late, done)


def test_limits_budgets_and_warnings() -> None:
    """A story that stands where it stood, and the reason."""
    order = [{"kind": "notify", "notice": "warning", "text": "until 22:00"}]
    limit = event(
        2, "executor_exited", "impl running", "impl pending", event={"exit": {"end": "limit"}}, orders=order
    )
    cap = event(
        3,
        "cap_reached",
        "impl running",
        "impl running",
        orders=order,
        rules=[{"rule": "settings.caps.story_usd"}],
    )
    other = event(4, "executor_quiet", "impl running", "impl running", orders=order)

    assert [
        "US-005 implementation waits for a usage limit: until 22:00",
        "US-005 implementation has stopped at its budget: until 22:00",
        "US-005 implementation: until 22:00",
    ] == told(START, limit, cap, other, language="en")[1:]


def test_most_events_are_no_news() -> None:
    """Nobody wants to hear of every look."""
    assert [] == told(
        event(1, "noted", "impl running", "impl running"),
        {**START, "before": None, "after": None, "kind": "x"},
    )


def test_only_what_judged_the_attempt_was_measured() -> None:
    """Not what an earlier one was judged by, nor an exit code, nor counts that the agent gave."""
    claimed = event(6, "hand_off_arrived", "verify running", "verify pass", event={"handoff": {}})
    unverified = event(
        6,
        "checks_finished",
        "impl running",
        "impl pass",
        event={"tests": {"counts": COUNTS, "verified": False}},
    )
    turn = event(7, "advanced", "impl pass", "verify running")

    assert was_measured([START, MEASURED, turn], COUNTS)
    assert [False] * 5 == [
        was_measured(events, counts)
        for events, counts in (
            ([START, MEASURED, claimed, turn], COUNTS),
            ([START, unverified, turn], COUNTS),
            ([START, MEASURED, turn], {**COUNTS, "pass": 3}),
            ([START, MEASURED, turn], None),
            ([START], COUNTS),
        )
    ]
