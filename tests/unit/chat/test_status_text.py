"""The status of a project, in both languages."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.supervision import gate_view

from handoffd.chat.status_text import (
    FILES,
    at_gates,
    counted,
    framework,
    planned,
    projects,
    queried,
    reported,
    standing,
)
from handoffd.chat.wording import wording
from handoffd.protocol.state import plain

EN, ZH = wording("en"), wording("zh-TW")
UNKNOWN = ("reason", "waits_for", "last_error", "tests", "tests_measured", "next_command")
RUNNING = {"status": "running", "phase": "executing", "elapsed_min": 3.4}
TRACK: dict[str, Any] = {
    **dict.fromkeys(UNKNOWN),
    "track": "main",
    "story": "US-005",
    "step": "impl",
    "attempt": 2,
    "max_attempts": 5,
    **RUNNING,
    "blocked_by": [],
    "backlog": [],
    "failing_tests": [],
    "gate": False,
    "steps": ["bdd", "review", "impl", "verify", "update-memory"],
}


def view(**changes: Any) -> dict[str, Any]:
    """Return a project with one track."""
    usual = {"name": "shop", "condition": "ok", "detail": None, "paused_by": None}
    own = {key: changes.pop(key, value) for key, value in usual.items()}
    return {**own, "tracks": [{**TRACK, **changes}]}


@pytest.mark.parametrize(
    ("changes", "english", "chinese"),
    [
        (
            {},
            "US-005: implementation is running, attempt 2 of 5, for 3 min",
            "US-005 實作進行中，第 2/5 次，已 3 分鐘",
        ),
        (
            {"phase": "checking"},
            "US-005: implementation is handed over and being checked",
            "US-005 實作已交付，正在檢查",
        ),
        ({"status": "pending"}, "US-005: implementation is next", "US-005 接下來是實作"),
        (
            {"status": "pending", "waits_for": "a slot"},
            "US-005: implementation waits: a slot",
            "US-005 實作等待中：a slot",
        ),
        (
            {"status": "pass", "tests": {"pass": 3, "fail": 0, "skip": 0}, "tests_measured": False},
            "US-005: implementation is done ✓ all tests pass (3/3) (claimed, not measured); "
            "next is verification",
            "US-005 實作完成 ✓ 測試全過（3/3）（自行回報，未經量測），接下來是驗證",
        ),
        (
            {"status": "pass", "tests": {"pass": 44, "fail": 0, "skip": 0}, "tests_measured": True},
            "US-005: implementation is done ✓ all tests pass (44/44); next is verification",
            "US-005 實作完成 ✓ 測試全過（44/44），接下來是驗證",
        ),
        ({"step": "done", "status": "pass"}, "US-005 is done ✓", "US-005 全部完成 ✓"),
        ({"story": None, "status": "pending"}, "no story is in flight", "目前沒有進行中的故事"),
        (
            {"paused_by": "eve", "status": "pending"},
            "US-005: implementation; paused by eve",
            "US-005 實作，已由 eve 暫停",
        ),
        (
            {"condition": "invalid_state", "detail": "line 3"},
            "handoffd cannot work on the project: line 3",
            "專案目前無法運作：line 3",
        ),
    ],
)
def test_the_status_is_one_line(changes: dict[str, Any], english: str, chinese: str) -> None:
    """About the story in flight, or the condition of the project."""
    assert [[english], [chinese]] == [standing(words, view(**changes)) for words in (EN, ZH)]


USED_UP = {"status": "needs_human", "blocked_by": ["max_attempts_exceeded"], "last_error": "boom"}
OUT_OF_SCOPE = {"status": "needs_human", "reason": "scope_warning"}
GATE = {"step": "review", "status": "needs_human", "gate": True}


@pytest.mark.parametrize(
    ("changes", "command", "chinese", "asked"),
    [
        (GATE, "approve", "US-005 審查等你決定", "請輸入「核准」"),
        (USED_UP, "retry", "US-005 實作失敗，次數已用完：boom", "請輸入「重試」"),
        (OUT_OF_SCOPE, "note", "US-005 實作需要你處理：超出範圍", "請輸入「備註："),
        ({"status": "timeout", "last_error": "x"}, "retry", "US-005 實作逾時：x", "請輸入「重試」"),
        (
            {"status": "pending", "waits_for": "the budget"},
            "budget",
            "US-005 實作等待中：the budget",
            "請在終端機輸入：handoffd budget",
        ),
        ({"step": "done", "status": "pass"}, "start", "US-005 全部完成 ✓", "請輸入「開始 US-001」"),
    ],
)
def test_the_status_of_a_story_that_waits_for_a_person_ends_with_the_next_command(
    changes: dict[str, Any], command: str, chinese: str, asked: str
) -> None:
    """In the words of a chat, if it has them."""
    operand = {"note": " TEXT", "budget": " --usd 8", "start": " STORY"}.get(command, "")
    lines = standing(ZH, view(**changes, next_command=f"handoffd {command} /srv/shop{operand}"))

    assert chinese == lines[0]
    assert lines[-1].startswith(asked)


def test_a_project_without_a_state_can_be_started() -> None:
    """It has no story yet."""
    lines = standing(EN, {"condition": "not_initialized", "detail": None, "tracks": []})

    assert ["no story was ever started here", EN.say("type.start")] == lines


def test_the_details_are_the_ones_of_the_topic() -> None:
    """Tests, steps to come, the reason of a wait, the backlog."""
    busy = view(
        status="failing",
        last_error="2 fail",
        waits_for="a slot",
        backlog=["US-6"],
        tests={"pass": 42, "fail": 2, "skip": 0},
        failing_tests=["a", "b", "c", "d"],
        tests_measured=False,
    )

    assert "Tests: 2 of 44 tests fail: a, b, c… (claimed, not measured)" in standing(EN, busy, topic="tests")
    assert "Still to come: verification → memory update" in standing(EN, busy, topic="steps")
    assert "原因：a slot" in standing(ZH, busy, topic="blocked")
    assert "Waiting behind it: US-6" in standing(EN, busy)
    suggested = view(step="done", status="pass", review_suggested=True)
    assert "建議審查整個專案：請輸入「審查」" in standing(ZH, suggested)
    assert "Lately: news" in standing(EN, busy, lately={"main": "news"})
    assert "Tests: no tests have run yet" in standing(EN, view(), topic="tests")
    assert "沒有剩下的步驟" in standing(ZH, view(step="update-memory"), topic="steps")


def test_without_counts_there_is_no_text() -> None:
    """No test was run."""
    assert [None, None] == [
        counted(EN, counts, measured=True) for counts in (None, {"pass": 0, "fail": 0, "skip": 3})
    ]


def test_the_counts_of_a_state_alone_are_a_claim() -> None:
    """It does not tell whether they were measured."""
    found = {**TRACK, "status": "pass", "next_step": "verify", "tests": {"pass": 3, "fail": 0, "skip": 0}}
    del found["tests_measured"]

    assert "測試全過（3/3）（自行回報，未經量測）" in queried(ZH, found)[0]


def test_an_unsupervised_project() -> None:
    """From its files alone."""
    waiting = {"status": "needs_human", "step": "review", "next_step": "impl"}
    found = {**TRACK, **waiting, "next_command": "handoffd add /x"}
    del found["gate"], found["steps"]

    assert ["US-005 審查需要你處理：?", "請在終端機輸入：handoffd add /x"] == queried(ZH, found)
    for status, line in (
        ("not_initialized", "這裡還沒開始過任何故事"),
        ("invalid_state", "專案目前無法運作：bad"),
    ):
        changed = {**found, "status": status, "step": "none", "last_error": "bad"}
        assert line == queried(ZH, changed)[0]
    assert "US-005 is done ✓" == queried(EN, {**found, "step": "done", "status": "pass"})[0]


def test_a_list_of_projects() -> None:
    """A line for each; without projects, how to begin."""
    assert ["2 projects:", "shop: no story is in flight", "b: US-005 is done ✓"] == projects(
        EN, [view(story=None, status="pending"), view(name="b", step="done", status="pass")]
    )
    assert ["目前沒有受管理的專案", "請在終端機輸入：handoffd init PROJECT"] == projects(ZH, [])


def test_each_story_of_a_project_with_several_is_told() -> None:
    """With its own next command, not the first one's; a track without a story has no line among them."""
    both = view(**GATE, next_command="handoffd approve /srv/shop --story US-005")
    both["tracks"] += [{**TRACK, "story": None, "status": "pending"}, {**TRACK, "story": "US-006"}]

    assert [
        "US-005: the review waits for your decision",
        "US-006: implementation is running, attempt 2 of 5, for 3 min",
    ] == [line for line in standing(EN, both) if line.startswith("US-")]
    assert ["1 projects:", "shop: US-005", "shop: US-006"] == [
        line[:12] if line.startswith("shop") else line for line in projects(EN, [both])
    ]
    broken = {**both, "condition": "missing", "detail": "it is gone"}
    assert 1 == standing(EN, broken).count("handoffd cannot work on the project: it is gone")


def test_the_files_of_the_framework() -> None:
    """All, some or none."""
    none = dict.fromkeys(FILES, False)
    missing = "、".join(file for key, file in FILES.items() if key != "has_state")

    assert [f"採用程度 1：有：.ai/STATE.json；缺：{missing}"] == framework(
        ZH, {**none, "has_state": True, "level": 1}
    )
    assert [f"adoption level 2: all files are present: {', '.join(FILES.values())}"] == framework(
        EN, {**dict.fromkeys(FILES, True), "level": 2}
    )
    assert [f"adoption level 0: no file of it is present: no {', '.join(FILES.values())}"] == framework(
        EN, {**none, "level": 0}
    )


def test_a_gate_is_told_with_what_a_person_needs_to_decide_it() -> None:
    """In both languages, and the answer tells what is not known."""
    gate = {"status": "needs_human", "gate": True, "step": "review", "review": plain(gate_view("/srv/shop"))}

    assert [
        "US-005: the review waits for your decision",
        "What it shall bring: Dark mode People read the shop at night.",
        "Files changed: 3 (+60 -4 lines)",
        "Outside of what its step may write: 1",
        "Tests: 1 of 12 tests fail",
        "New tests: tests/test_shop.py::test_new, tests/test_shop.py::test_dark and 1 more",
        "Still open: 1 unclear points, 1 unticked boxes",
        "Attempts: 2, of which 1 failed; sent back: 1",
        "Cost so far: 12.4k tokens, $0.21",
        "The agent says: All �[31mscenarios are written.",
        "In a terminal, with the diff: handoffd gate /srv/shop",
    ] == standing(EN, view(**gate))
    assert "變更了 3 個檔案（+60 -4 行）" in standing(ZH, view(**gate))
    assert not any("Files changed" in line for line in standing(EN, view(**gate), topic="left"))
    empty = plain(
        gate_view("/srv/shop", changes=None, unclear=(), unticked=(), attempts=(), tokens=None, cost_usd=None)
    )
    unmeasured = {**empty["tests"], "measured": None, "claimed": None, "new": ()}
    bare = {**empty, "claim": None, "title": None, "text": None, "tests": unmeasured}
    assert ["Tests: no tests have run yet", "Cost so far: not known"] == standing(
        EN, view(**{**gate, "review": bare})
    )[1:-1]


def test_each_line_is_below_the_story_that_it_is_about() -> None:
    """The files of a review, and the last news, where a project has several stories."""
    tracks = [
        {**TRACK, "story": "US-001", "step": "done", "status": "pass"},
        {**TRACK, **GATE, "track": "US-004", "story": "US-004"},
        {**TRACK, "track": "US-005"},
    ]

    lines = standing(
        EN, {**view(), "tracks": tracks}, lately={"US-005": "news"}, review={"US-004": ["a.md", "b.md"]}
    )

    assert [
        "US-001 is done ✓",
        "US-004: the review waits for your decision",
        "Please read: a.md, b.md",
        "US-005: implementation is running, attempt 2 of 5, for 3 min",
        "Lately: news",
    ] == lines


def test_a_question_about_a_gate_is_answered_with_the_gates_alone() -> None:
    """With the named story's, if one is named; without a gate, with that and the status."""
    review = plain(gate_view("/srv/shop"))
    one = {**TRACK, **GATE, "review": review}
    three = {**view(), "tracks": [TRACK, one, {**one, "story": "US-006"}]}

    def stories(found: list[str]) -> list[str]:
        return [line.partition(":")[0] for line in found if "waits for your decision" in line]

    assert ["US-005", "US-006"] == stories(standing(EN, three, topic="gate"))
    assert ["US-006"] == stories(standing(EN, three, topic="gate", story="US-006"))
    assert "Outside of what its step may write: 1" in standing(EN, three, topic="gate")
    inside = {**review, "changes": {**review["changes"], "outside": 0}}
    assert "all of them where their steps may write" in standing(EN, view(**{**one, "review": inside}))
    assert ["目前沒有審查等你決定", "US-005 實作進行中，第 2/5 次，已 3 分鐘"] == standing(
        ZH, view(), topic="gate"
    )
    other = view(name="bank")
    assert ["shop: US-005: the review waits for your decision", "In a terminal: handoffd gate"] == at_gates(
        EN, [view(**one), other]
    )
    assert ["no review waits for your decision", "In a terminal: handoffd gate"] == at_gates(EN, [other])


NIGHT: dict[str, Any] = {
    "landed": [], "waiting": [], "failed": [], "more": {"landed": 0, "waiting": 0, "failed": 0},
    "cost": {"runs": 4, "tokens": 12_400, "usd": 0.21},
}  # fmt: skip


def test_a_report_in_a_chat_names_stories_and_the_command_that_shows_all() -> None:
    """At most five of a kind, with how many there are."""
    six = [{"name": "shop", "story": f"US-00{number}"} for number in range(6)]
    night = {**NIGHT, "waiting": six, "failed": [{"name": "bank", "story": None}]}
    night["more"] = {**NIGHT["more"], "waiting": 3}

    assert [
        "In the last 12 hours: 4 runs ended; cost: 12.4k tokens, $0.21",
        "Waits for you (9): shop US-000, shop US-001, shop US-002, shop US-003, shop US-004…",
        "Failed (1): bank",
        "In a terminal: handoffd report",
    ] == reported(EN, night, "handoffd report")
    assert "沒有併入、沒有失敗，也沒有在等你的" in reported(ZH, NIGHT, "handoffd report")


def test_the_coming_night_in_a_chat_is_counts_and_what_stops_it() -> None:
    """In the user's language; without work, that there is none."""
    night: dict[str, Any] = {
        "outcomes": {"done": 2, "stops": 1}, "projects": 2, "daemon": False,
        "stops": [{"name": "shop", "why": "a person's decision"}],
    }  # fmt: skip

    assert [
        "Until 08:00: 2 stories done, 1 stop, 0 still going on, 0 not begun",
        "No daemon runs; start it: `handoffd run`",
        "shop: a person's decision",
        "In a terminal: handoffd tonight",
    ] == planned(EN, night, "08:00", "handoffd tonight")
    assert "shop：要等人決定" in planned(ZH, night, "08:00", "handoffd tonight")
    rest = {**night, "projects": 0, "stops": [], "daemon": True}
    assert "nothing is planned, because no story is in flight or waits" == planned(EN, rest, "08:00", "x")[0]
