"""What became of a message, in the words of both languages."""

from __future__ import annotations

from typing import Any

import pytest

from handoffd.chat.replies import Report

EN, ZH = Report("en"), Report("zh-TW")
TRACK: dict[str, Any] = {"story": "US-005", "step": "review", "next_command": "handoffd approve /srv/shop"}


@pytest.mark.parametrize(
    ("action", "result", "text"),
    [
        ("approved", {"step": "review"}, "審查已核准 ✓"),
        ("rejected", {"step": "review", "reason": "scope_warning"}, "審查已退回：超出範圍"),
        ("started", {"step": "bdd"}, "US-005 開始進行，目前在情境"),
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
def test_what_became_of_it(action: str, result: dict[str, Any], text: str) -> None:
    """And, where a person is next, what to type."""
    assert text == ZH.outcome(action, result, TRACK)


def test_a_gate_names_the_files_and_the_two_answers() -> None:
    """So that nobody has to look either up."""
    result = {"step": "review", "review": ["docs/bdd/US-005.md", "docs/api/openapi.yaml"], "message": "x"}
    gate = {**result, "next_command": TRACK["next_command"]}

    assert [
        "US-005: the review waits for your decision",
        "Please read: docs/bdd/US-005.md, docs/api/openapi.yaml",
        EN.wording.say("type.gate"),
    ] == EN.outcome("needs_human", gate, TRACK).splitlines()


def test_what_is_kept_at_a_gate_says_that_it_decides_nothing() -> None:
    """And how it is decided."""
    assert [
        "已記下，會放進下一步的提示詞；這不算決定",
        "US-005 審查等你決定",
        "請看：docs/a.md",
        ZH.wording.say("type.gate"),
    ] == ZH.kept(TRACK, review=["docs/a.md"]).splitlines()


def test_a_step_done_by_hand() -> None:
    """With its tests, and the step that follows."""
    state = {"story": "US-005", "step": "impl", "status": "pass", "tests": {"pass": 44, "fail": 0, "skip": 0}}
    applied = {"type": "applied", "message": "it passed", "state": state}

    assert "US-005 實作完成 ✓ 測試全過（44/44），進入驗證" == ZH.applied(applied, "verify", measured=True)
    assert "US-005 實作完成 ✓ 測試全過（44/44）（自行回報，未經量測），進入驗證" == ZH.applied(
        applied, "verify", measured=False
    )
    assert "US-005 implementation done ✓ on to verification" == EN.applied(
        {**applied, "state": {**state, "tests": None}}, "verify", measured=False
    )
    failing = {**state, "status": "failing", "attempt": 2, "last_error": "2 tests fail"}
    assert "US-005 實作失敗 ✗（第 2 次）：2 tests fail" == ZH.applied(
        {**applied, "state": failing}, "impl", measured=True
    )
    assert "it passed" == EN.applied(
        {**applied, "state": {**state, "status": "needs_human"}}, "impl", measured=True
    )


def test_whoever_works_by_hand_is_told_how_to_go_on() -> None:
    """With the prompt, and while its hand-off is not there."""
    running = {"step": "impl", "elapsed_min": 4.2}

    assert EN.outcome("already_running", running, TRACK, by_hand=True).endswith(EN.wording.say("type.handed"))
    assert EN.wording.say("type.handed") not in EN.outcome("already_running", running, TRACK)


def test_what_could_not_be_done_says_what_was_understood() -> None:
    """Why, as what it was taken for, and what to type instead."""
    refusal = {
        "code": "WRONG_STEP",
        "message": "bdd is not a human step",
        "next_command": "handoffd status /srv/shop",
    }

    assert ["沒有做到：現在沒有需要決定的審查", "我的理解：核准", "想再看進度請輸入「狀態」"] == ZH.problem(
        refusal, "approve"
    ).splitlines()
    assert EN.problem(refusal, "approve").startswith("That did not work: bdd is not a human step\n")
    assert "沒有做到：無法執行。原文：odd\n" in ZH.problem({"code": "ODD", "message": "odd"}, "retry")
    assert ZH.wording.say("type.help") in ZH.problem({"code": "ODD", "message": "odd"}, "retry")


def test_a_refusal_is_told_in_the_language_of_the_report() -> None:
    """What matters of the original is quoted behind it; a code whose values are missing is told as well."""
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
    """As one would type it."""
    told = EN.problem({"code": "PROJECT_MISSING", "message": "?"}, "approve", names="a, b", name="a")

    assert "which project? There are: a, b" in told
    assert told.endswith("Type `a: your message`")


def test_what_is_unclear_is_asked_back() -> None:
    """A decision that says more than that; or nothing at all."""
    assert "「核准」" in ZH.unclear("approve", TRACK)
    assert ZH.wording.say("type.gate") in ZH.unclear("approve", TRACK)
    assert "Type `start US-001`" in EN.unclear(
        "start_story", {**TRACK, "next_command": "handoffd start /x STORY"}
    )
    assert "Type `pause`" in EN.unclear("pause", TRACK)
    assert "In a terminal: handoffd usage" in EN.unclear(None, command="usage")
    assert EN.wording.say("type.help") in EN.unclear("abort", None)
    assert EN.wording.say("type.help") in EN.unclear(None)


def test_a_pause_says_how_to_end_what_runs() -> None:
    """It ends nothing by itself."""
    result = {"next_command": "handoffd resume /srv/shop"}

    assert "type `abort`" in EN.outcome("paused", result, {**TRACK, "dispatch": "d-1"})
    assert "type `abort`" not in EN.outcome("paused", result, {**TRACK, "dispatch": None})


def test_prompts_of_sessions() -> None:
    """What they are for."""
    assert "2 個未解議題" in ZH.session("triage", {"issues": ["a", "b"]})
    assert "read-only" in EN.session("review", {})
