"""Messages over projects in memory: which verb they give, and what is answered when they cannot."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.supervision import MemorySupervision, project_view, track_view
from tests.unit.journal.making import dispatch, opened, record, track

from handoffd.api.chat import Messages, Spoken, only_reads
from handoffd.api.service import Caller, Service
from handoffd.clock import SystemClock
from handoffd.engine.decision import Refusal
from handoffd.engine.events import (
    Aborted,
    Approved,
    ChecksFinished,
    Noted,
    Paused,
    Rejected,
    Reopened,
    Retried,
    Skipped,
    TestEvidence,
    Verb,
)
from handoffd.engine.track import TrackKey
from handoffd.engine.views import Applied
from handoffd.errors import Refused
from handoffd.journal.journal import Journal
from handoffd.protocol.state import Reason, State, Status, TestCounts

EVE = Caller(pid=4711, by="eve")
HERE = "/srv/shop"


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    """An empty journal."""
    async with opened(tmp_path / "journal.db") as lent:
        yield lent


def supervised(*roots: str, **track: Any) -> MemorySupervision:
    """Return projects that wait at their review."""
    return MemorySupervision(*(project_view(root, track_view(**track)) for root in roots))


def messages(supervision: MemorySupervision, journal: Journal, *, inside: bool = False) -> Messages:
    """Return what answers messages about those projects."""
    service = Service(
        supervision,
        journal,
        SystemClock(),
        runs_dir=Path(os.devnull),
        stop=lambda _: None,
        inside=lambda _: inside,
    )
    return Messages(service)


@pytest.mark.parametrize(
    ("text", "verb", "action"),
    [
        ("approve: fine", Approved(note="fine", story="US-001", by="eve"), "approved"),
        (
            "退回 範圍：太大",
            Rejected(reason=Reason.SCOPE_WARNING, note="太大", story="US-001", by="eve"),
            "rejected",
        ),
        ("retry", Retried(by="eve"), "retried"),
        ("跳過", Skipped(by="eve"), "skipped"),
        ("abort", Aborted(by="eve"), "aborted"),
        ("今天先到這裡", Paused(by="eve"), "paused"),
        ("note: use cents", Noted(text="use cents", by="eve"), "noted"),
        ("reopen impl: sums", Reopened(step="impl", note="sums", entry=2, by="eve"), "reopened"),
        ("use whole cents", Noted(text="use whole cents", by="eve"), "noted"),
        ("approve US-001", Approved(story="US-001", by="eve"), "approved"),
    ],
)
async def test_a_command_is_a_verb(journal: Journal, text: str, verb: Verb, action: str) -> None:
    """With its note, its reason, and the name of whoever sent it; a gate is that of the story in hand."""
    supervision = supervised(HERE)

    answer = await messages(supervision, journal).answer(Spoken(project="shop"), text, EVE)

    assert ([(HERE, verb)], action, HERE) == (supervision.given, answer["action"], answer["project"])
    assert "accepted" == answer["result"]["type"]
    assert answer["report"]
    assert answer["caller_instruction"]


@pytest.mark.parametrize(
    ("text", "action", "key"),
    [
        ("status", "query", "next_step"),
        ("list projects", "listed", "projects"),
        ("framework", "detected", "level"),
        ("review", "review", "prompt"),
        ("審查", "review", "prompt"),
    ],
)
async def test_a_read_gives_no_verb(
    journal: Journal, tmp_path: Path, text: str, action: str, key: str
) -> None:
    """And answers with what was read."""
    supervision = supervised(str(tmp_path))

    answer = await messages(supervision, journal).answer(Spoken(project=str(tmp_path)), text, EVE)

    assert ([], action) == (supervision.given, answer["action"])
    assert key in answer["result"]


async def test_a_question_that_may_be_work_says_how_to_have_it_done(journal: Journal) -> None:
    """Nothing is lost but a word in front of it."""
    answer = await messages(supervised(HERE, gate=False), journal).answer(
        Spoken(project="shop"), "can you fix the sums?", EVE
    )

    assert ("query", "To start work on it, type `CC, …`") == (
        answer["action"],
        answer["report"].splitlines()[-1],
    )


async def test_what_is_unclear_does_nothing(journal: Journal) -> None:
    """Away from a gate; at one it is kept."""
    supervision = supervised(HERE, gate=False, status="running", next_command=None)

    answer = await messages(supervision, journal).answer(
        Spoken(project="shop"), "approve the new design", EVE
    )

    assert ("unclear", None, []) == (answer["action"], answer["result"], supervision.given)
    assert "approve" == answer["intent"]["near"]
    assert "do not guess" in answer["caller_instruction"]


async def test_without_a_project_the_only_one_is_meant(journal: Journal) -> None:
    """Of several, the one that is named; else nothing is done."""
    alone, two = supervised(HERE), supervised(HERE, "/srv/bank")

    assert HERE == (await messages(alone, journal).answer(Spoken(project=None), "approve", EVE))["project"]
    assert (
        "/srv/bank"
        == (await messages(two, journal).answer(Spoken(project=None), "bank: approve", EVE))["project"]
    )
    assert (
        "/srv/bank"
        == (await messages(two, journal).answer(Spoken(project="shop"), "approve for bank", EVE))["project"]
    )
    assert ["/srv/bank"] * 2 == [root for root, _ in two.given]
    asked = await messages(two, journal).answer(Spoken(project=None), "approve", EVE)
    assert ("error", "PROJECT_MISSING") == (asked["action"], asked["result"]["code"])
    assert "which project? There are: bank, shop" in asked["report"]
    every = await messages(two, journal).answer(Spoken(project=None), "status", EVE)
    assert ("query", 3) == (every["action"], len(every["report"].splitlines()))


async def test_work_that_only_sounds_like_another_project_stays_here(journal: Journal) -> None:
    """The name may be that of what the work is about."""
    supervision = supervised(HERE, "/srv/bank", gate=False)

    answer = await messages(supervision, journal).answer(
        Spoken(project="shop"), "add the address of bank", EVE
    )

    assert HERE == answer["project"]
    assert "add the address of bank" == answer["intent"]["instruction"]


@pytest.mark.parametrize(
    ("text", "code"),
    [("approve US-009", "WRONG_STORY"), ("start a story", "STORY_MISSING"), ("reopen", "STEP_MISSING"),
     ("nowhere: x", None)],
)  # fmt: skip
async def test_what_is_missing_is_asked_back(journal: Journal, text: str, code: str | None) -> None:
    """Before any verb is given."""
    supervision = supervised(HERE)

    answer = await messages(supervision, journal).answer(Spoken(project="shop"), text, EVE)

    if code is not None:
        assert ("error", code, []) == (answer["action"], answer["result"]["code"], supervision.given)
        assert "Understood: " in answer["report"]


async def test_what_the_engine_refuses_is_told_with_what_was_understood(journal: Journal) -> None:
    """And with what leads on."""
    supervision = supervised(HERE)
    supervision.answer = Refusal(
        code="WRONG_STEP",
        message="bdd is not a human step",
        caller_instruction="no",
        next_command="handoffd status {project}",
    )

    answer = await messages(supervision, journal).answer(Spoken(project="shop"), "核准", EVE)

    assert ("error", "WRONG_STEP") == (answer["action"], answer["result"]["code"])
    assert ["沒有做到：現在沒有需要決定的審查", "我的理解：核准", "想再看進度請輸入「狀態」"] == answer[
        "report"
    ].splitlines()


@pytest.mark.parametrize("text", ["approve", "reject scope", "retry", "reopen impl", "continue"])
async def test_an_executor_decides_nothing(journal: Journal, text: str) -> None:
    """Its message is refused as its verb would be."""
    supervision = supervised(HERE, gate=False)
    view = supervision.projects[HERE]
    supervision.projects[HERE] = project_view(HERE, *view.tracks, paused_by="eve")

    answer = await messages(supervision, journal, inside=True).answer(Spoken(project="shop"), text, EVE)

    assert ("error", "INSIDE_EXECUTOR", []) == (answer["action"], answer["result"]["code"], supervision.given)


async def test_a_project_that_is_not_there_is_told(journal: Journal) -> None:
    """By name, and as a folder that nobody supervises."""
    chat = messages(supervised(HERE), journal)

    assert "NOT_FOUND" == (await chat.answer(Spoken(project="nope"), "status", EVE))["result"]["code"]
    assert "NOT_FOUND" == (await chat.answer(Spoken(project="/srv/nope"), "continue", EVE))["result"]["code"]


async def test_a_folder_that_nobody_supervises_can_be_asked_about(journal: Journal, tmp_path: Path) -> None:
    """By its files; nothing is made in it."""
    folder = tmp_path / "folder"
    folder.mkdir()

    answer = await messages(supervised(HERE), journal).answer(Spoken(project=str(folder)), "狀態", EVE)

    assert ("query", "not_initialized") == (answer["action"], answer["result"]["status"])
    assert "這裡還沒開始過任何故事" == answer["report"].splitlines()[0]
    assert not any(folder.iterdir())


async def test_the_language_is_the_messages_own_or_a_given_one(journal: Journal) -> None:
    """There are two."""
    chat = messages(supervised(HERE), journal)

    assert ["zh-TW", "en", "zh-TW"] == [
        (await chat.answer(Spoken(project="shop"), text, EVE, language))["language"]
        for text, language in (("狀態", None), ("status", None), ("status", "zh-TW"))
    ]
    with pytest.raises(Refused, match="allowed: en, zh-TW"):
        await chat.answer(Spoken(project="shop"), "status", EVE, "tlh")


def test_what_only_reads_needs_no_lock() -> None:
    """Whatever projects there are; what is in doubt may become a note."""
    assert [True, True, False, False, False] == [
        only_reads(text) for text in ("status", "所有專案", "approve", "ok", "the tests on windows are slow")
    ]


@pytest.mark.parametrize(
    ("evidence", "told"),
    [
        (TestEvidence(counts=TestCounts(passed=3)), "測試全過（3/3），"),
        (TestEvidence(verified=False), "測試全過（3/3）（自行回報，未經量測），"),
        (None, "測試全過（3/3）（自行回報，未經量測），"),
    ],
)
async def test_counts_of_a_step_done_by_hand_are_told_as_what_they_are(
    journal: Journal, tmp_path: Path, evidence: TestEvidence | None, told: str
) -> None:
    """Measured by the daemon, or claimed by whoever did the step."""
    root = str(tmp_path)
    supervision = MemorySupervision(project_view(root, track_view(step="impl", status="running"), level=1))
    state = State(project="shop", story="US-001", step="impl", status=Status.PASS, tests=TestCounts(passed=3))
    supervision.applied = Applied(type="applied", message="it passed", state=state)
    key = TrackKey(root)
    running = track("impl", Status.RUNNING, dispatch=dispatch())
    await journal.commit(record(key=key, after=running))
    finished = ChecksFinished(dispatch="d1", tests=evidence)
    await journal.commit(record(finished, key=key, after=track("impl", Status.PASS)))
    await journal.commit(record(key=key, after=track("verify", Status.RUNNING, dispatch=dispatch("d2"))))

    answer = await messages(supervision, journal).answer(Spoken(project=root), "繼續", EVE)

    assert told in answer["report"]
