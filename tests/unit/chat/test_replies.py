"""Replies and news, in both languages."""

from __future__ import annotations

from typing import Any

import pytest

from handoffd.chat.replies import Report, news, was_measured
from handoffd.chat.wording import wording

EN, ZH = Report("en"), Report("zh-TW")
TRACK: dict[str, Any] = {"story": "US-005", "step": "review", "next_command": "handoffd approve /srv/shop"}


@pytest.mark.parametrize(
    ("action", "result", "text"),
    [
        ("approved", {"step": "review"}, "審查已核准 ✓"),
        ("rejected", {"step": "review", "reason": "scope_warning"}, "審查已退回：超出範圍"),
        ("started", {"step": "bdd"}, "US-005 開始進行，目前在情境"),
        (
            "started",
            {"step": "bdd", "story": "US-009", "warnings": ["nothing describes US-009"]},
            "US-009 開始進行，目前在情境\n"
            "目前沒有任何內容描述 US-009：沒有文字說明，PROJECT_MEMORY.md 沒有提到它，也沒有情境。",
        ),
        ("resumed", {"step": "impl"}, "US-005 繼續，目前在實作"),
        ("retried", {"step": "impl"}, "US-005 實作重新嘗試"),
        ("skipped", {"step": "impl"}, "實作已跳過，沒有證據"),
        ("reopened", {"step": "verify"}, "US-005 已從驗證重開"),
        (
            "aborted",
            {"step": "impl", "next_command": "handoffd start /srv/shop STORY"},
            "US-005 已中止\n請輸入「開始 US-001」（換成故事編號），或直接說要做什麼",
        ),
        (
            "paused",
            {"next_command": "handoffd resume /srv/shop"},
            "已暫停；沒有在跑的，也不會開始新的\n請輸入「繼續」",
        ),
        ("noted", {}, "已記下，會放進下一步的提示詞"),
        ("already_running", {"step": "impl", "elapsed_min": 4.2}, "實作已經跑了 4 分鐘"),
        (
            "blocked",
            {"step": "bdd", "reason": "US-001 is not done", "next_command": "handoffd status /srv/shop"},
            "情境卡住了：US-001 is not done\n想再看進度請輸入「狀態」",
        ),
        (
            "timeout",
            {"step": "impl", "message": "10 min", "next_command": "handoffd retry /srv/shop"},
            "實作逾時：10 min\n請輸入「重試」或「跳過」",
        ),
        (
            "done",
            {"story": "US-005", "next_story": "US-006", "next_command": "handoffd continue /srv/shop"},
            "US-005 全部完成 ✓\n下一個是 US-006\n請輸入「繼續」",
        ),
        (
            "done",
            {"story": "US-005", "review_suggested": True, "next_command": "handoffd start /srv/shop STORY"},
            "US-005 全部完成 ✓\n建議審查整個專案：請輸入「審查」\n"
            "請輸入「開始 US-001」（換成故事編號），或直接說要做什麼",
        ),
        (
            "dispatched",
            {"story": "US-005", "step": "impl", "attempt": 2, "next_command": "handoffd apply /srv/shop"},
            "US-005 實作第 2 次：提示詞在這裡\n寫出交接檔後，請輸入「繼續」",
        ),
        (
            "needs_human",
            {"step": "impl", "message": "no attempt left", "next_command": "handoffd retry /srv/shop"},
            "實作需要你處理：no attempt left\n請輸入「重試」或「跳過」",
        ),
    ],
)
def test_the_result_of_a_verb(action: str, result: dict[str, Any], text: str) -> None:
    """With the next command for a person, if there is one."""
    assert text == ZH.outcome(action, result, TRACK)


def test_a_gate_names_the_files_and_the_two_answers() -> None:
    """No one has to look either up."""
    result = {"step": "review", "review": ["docs/bdd/US-005.md", "docs/api/openapi.yaml"], "message": "x"}
    gate = {**result, "next_command": TRACK["next_command"]}

    assert [
        "US-005: the review waits for your decision",
        "Please read: docs/bdd/US-005.md, docs/api/openapi.yaml",
        EN.wording.say("type.gate"),
    ] == EN.outcome("needs_human", gate, TRACK).splitlines()


def test_the_reply_to_a_note_at_a_gate_says_that_it_is_no_decision() -> None:
    """It has the two answers."""
    assert [
        "已記下，會放進下一步的提示詞；這不算決定",
        "US-005 審查等你決定",
        "請看：docs/a.md",
        ZH.wording.say("type.gate"),
    ] == ZH.kept(TRACK, review=["docs/a.md"]).splitlines()


def test_a_step_done_by_hand() -> None:
    """With its tests, and the next step."""
    state = {"story": "US-005", "step": "impl", "status": "pass", "tests": {"pass": 44, "fail": 0, "skip": 0}}
    applied = {"type": "applied", "message": "it passed", "state": state}

    assert "US-005 實作完成 ✓ 測試全過（44/44），進入驗證" == ZH.applied(applied, "verify", measured=True)
    claimed = ZH.applied(applied, "verify", measured=False)
    assert "US-005 實作完成 ✓ 測試全過（44/44）（自行回報，未經量測），進入驗證" == claimed
    untested = {**applied, "state": {**state, "tests": None}}
    without = EN.applied(untested, "verify", measured=False)
    assert "US-005 implementation done ✓ on to verification" == without
    failing = {**state, "status": "failing", "attempt": 2, "last_error": "2 tests fail"}
    failed = ZH.applied({**applied, "state": failing}, "impl", measured=True)
    assert "US-005 實作失敗 ✗（第 2 次）：2 tests fail" == failed
    asked = {**applied, "state": {**state, "status": "needs_human"}}
    assert "it passed" == EN.applied(asked, "impl", measured=True)


def test_a_step_by_hand_that_already_runs_has_the_next_command() -> None:
    """As long as its hand-off is missing."""
    running = {"step": "impl", "elapsed_min": 4.2}

    assert EN.outcome("already_running", running, TRACK, by_hand=True).endswith(EN.wording.say("type.handed"))
    assert EN.wording.say("type.handed") not in EN.outcome("already_running", running, TRACK)


def test_a_refusal_has_reason_meaning_and_next_command() -> None:
    """The meaning is the intent that was understood."""
    why = "bdd is not a human step"
    refusal = {"code": "WRONG_STEP", "message": why, "next_command": "handoffd status /srv/shop"}

    lines = ["沒有做到：現在沒有需要決定的審查", "我的理解：核准", "想再看進度請輸入「狀態」"]
    assert lines == ZH.problem(refusal, "approve").splitlines()
    assert EN.problem(refusal, "approve").startswith(f"That did not work: {why}\n")
    assert "沒有做到：無法執行。原文：odd\n" in ZH.problem({"code": "ODD", "message": "odd"}, "retry")
    assert ZH.wording.say("type.help") in ZH.problem({"code": "ODD", "message": "odd"}, "retry")


def test_a_gate_that_cannot_be_skipped_is_not_said_to_be_none() -> None:
    """One code is for both; the command tells them apart."""
    refusal = {"code": "WRONG_STEP", "message": "?", "next_command": "handoffd gate /srv/shop"}

    lines = ZH.problem(refusal, "skip").splitlines()

    assert "沒有做到：這一步要由你決定，不能跳過" == lines[0]
    assert "請在終端機輸入：handoffd gate /srv/shop" == lines[-2]
    assert ZH.wording.say("type.gate") == lines[-1]


def test_a_refusal_is_in_the_language_of_the_report() -> None:
    """It quotes an original message with details, also of a code whose values are missing."""
    gone = {"code": "RESTARTING", "message": "the project was removed, or is being started again"}
    line = {"code": "MALFORMED_HANDOFF", "message": "line 3: no status"}
    other = {"code": "WRONG_STORY", "message": "US-1 is not in flight"}

    assert ZH.problem(gone, "reopen").startswith(
        "沒有做到：專案剛被移除，或當機後正在重新啟動；請稍後再試\n我的理解：重開故事\n"
    )
    assert ZH.problem(line, "continue").startswith("沒有做到：交接檔讀不懂。原文：line 3: no status\n")
    assert ZH.problem(other, "approve").startswith("沒有做到：無法執行。原文：US-1 is not in flight\n")
    assert EN.problem(line, "continue", path="x").startswith("That did not work: line 3: no status\n")


def test_a_missing_project_is_asked_for_by_name() -> None:
    """The reply has an example."""
    reply = EN.problem({"code": "PROJECT_MISSING", "message": "?"}, "approve", names="a, b", name="a")

    assert "which project? There are: a, b" in reply
    assert reply.endswith("Type `a: your message`")


def test_an_unclear_message_is_asked_back() -> None:
    """A decision with more text, or a message without meaning."""
    assert "「核准」" in ZH.unclear("approve", TRACK)
    assert ZH.wording.say("type.gate") in ZH.unclear("approve", TRACK)
    assert "as in `start US-001`" in EN.unclear(
        "start_story", {**TRACK, "next_command": "handoffd start /x STORY"}
    )
    assert "Type `pause`" in EN.unclear("pause", TRACK)
    assert "In a terminal: handoffd usage" in EN.unclear(None, command="handoffd usage")
    assert EN.wording.say("type.help") in EN.unclear("abort", None)
    assert EN.wording.say("type.help") in EN.unclear(None)


def test_the_reply_to_a_pause_has_the_command_that_ends_a_running_step() -> None:
    """A pause does not end it."""
    result = {"next_command": "handoffd resume /srv/shop"}

    assert "type `abort`" in EN.outcome("paused", result, {**TRACK, "dispatch": "d-1"})
    assert "type `abort`" not in EN.outcome("paused", result, {**TRACK, "dispatch": None})


def test_the_purpose_of_session_prompts() -> None:
    """Of a triage and of a review."""
    assert "2 個未解議題" in ZH.session("triage", {"issues": ["a", "b"]})
    assert "read-only" in EN.session("review", {})


COUNTS = {"pass": 44, "fail": 0, "skip": 0}


def event(seq: int, kind: str, before: str, after: str, **more: Any) -> dict[str, Any]:
    """Return an event of a story; `before` and `after` as `step status`."""
    places = [dict(zip(("step", "status"), text.split(), strict=True)) for text in (before, after)]
    own = {"seq": seq, "kind": kind, "project": "/srv/shop", "before": places[0], "after": places[1]}
    return {**own, "why": "why", "event": {}, "result": {}, "orders": [], "rules": [], **more}


def counted(*, verified: bool) -> dict[str, Any]:
    """Return the fact that tests ended with these counts."""
    return {"tests": {"counts": COUNTS, "verified": verified}}


def sentences(*events: dict[str, Any], language: Any = "zh-TW") -> list[str]:
    """Return the news about these events."""
    return [text for _, text in news(wording(language), events)]


START = event(1, "started", "bootstrap pending", "bdd pending", event={"story": "US-005"})


MEASURED = event(5, "checks_finished", "impl running", "impl pass", event=counted(verified=True))


def test_a_step_is_done_and_the_next_begins() -> None:
    """One sentence about two decisions, with the counts measured between them."""
    turn = event(6, "advanced", "impl pass", "verify running", result={"story": "US-005", "attempt": 1})

    assert ["US-005 開始，從情境做起", "US-005 實作完成 ✓ 測試全過（44/44），進入驗證"] == sentences(
        START, MEASURED, turn
    )


def test_news_have_the_numbers_of_their_events() -> None:
    """A reader asks for later ones."""
    assert [1] == [seq for seq, _ in news(wording("en"), [START, MEASURED])]


def test_counts_belong_to_one_attempt() -> None:
    """An exit code alone has none."""
    begun = event(7, "executor_started", "verify running", "verify running")
    odd = event(8, "checks_finished", "verify running", "verify pass", event=counted(verified=False))
    turn = event(9, "advanced", "verify pass", "update-memory running")

    assert "US-005 驗證完成 ✓ 進入記憶更新" == sentences(START, MEASURED, begun, odd, turn)[-1]


def test_ends_gates_and_ways_back() -> None:
    """People want to know about them."""
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
    ] == sentences(START, gate, back, failed, stuck, late, done)


def test_limits_budgets_and_warnings() -> None:
    """The story's step stays; the news has the reason."""
    order = [{"kind": "notify", "notice": "warning", "text": "until 22:00"}]
    exit_, cause = {"exit": {"end": "limit"}}, [{"rule": "settings.caps.story_usd"}]
    limit = event(2, "executor_exited", "impl running", "impl pending", event=exit_, orders=order)
    cap = event(3, "cap_reached", "impl running", "impl running", orders=order, rules=cause)
    other = event(4, "executor_quiet", "impl running", "impl running", orders=order)

    assert [
        "US-005 implementation waits for a usage limit: until 22:00",
        "US-005 implementation has stopped at its budget: until 22:00",
        "US-005 implementation: until 22:00",
    ] == sentences(START, limit, cap, other, language="en")[1:]


def test_most_events_are_no_news() -> None:
    """People do not want to read about every check."""
    assert [] == sentences(
        event(1, "noted", "impl running", "impl running"),
        {**START, "before": None, "after": None, "kind": "x"},
    )


def test_only_the_counts_that_judged_the_attempt_are_measured() -> None:
    """Not the counts of an earlier attempt, an exit code, or the agent's own counts."""
    claimed = event(6, "hand_off_arrived", "verify running", "verify pass", event={"handoff": {}})
    unverified = event(6, "checks_finished", "impl running", "impl pass", event=counted(verified=False))
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
