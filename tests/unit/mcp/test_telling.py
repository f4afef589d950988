"""Reports that stand before the JSON of an answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.controlled import Controlled

from handoffd.chat.wording import LANGUAGES
from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer
from handoffd.errors import Json
from handoffd.mcp.reads import INSPECTIONS, READS
from handoffd.mcp.server import Teller
from handoffd.mcp.verbs import verb_offers
from handoffd.protocol.rules import Language

OFFERS = {offer.name: offer for offer in (*READS, *INSPECTIONS, *verb_offers(approvals=True))}


def _place(runtime: Path) -> Place:
    return Place(
        config=None,
        environ={"HANDOFFD_RUNTIME_DIR": str(runtime), "HANDOFFD_STATE_DIR": str(runtime / "state")},
    )


def _told(runtime: Path, name: str, language: Language = "en", **given: object) -> str | None:
    place, offer = _place(runtime), OFFERS[name]
    return Teller(place, language).report_of(offer, offer.run(place, dict(given)))


def test_a_question_is_answered_in_words(control: Controlled, tmp_path: Path) -> None:
    """With what to type where something waits for a person."""
    status = _told(control.runtime, "status", project="shop")
    projects = _told(control.runtime, "projects")

    assert status is not None
    assert "the review waits for your decision" in status
    assert "approve" in status
    assert projects is not None
    assert projects.startswith("2 projects:")
    assert "level 0" in str(_told(control.runtime, "detect", project=str(tmp_path)))
    assert _told(control.runtime, "query", project=str(tmp_path))
    assert "health" in str(OFFERS["review"].title)
    assert _told(control.runtime, "review", project=str(tmp_path))


def test_a_verb_tells_where_the_project_stands(control: Controlled) -> None:
    """In the person's language."""
    told = _told(control.runtime, "note", "zh-TW", project="shop", text="x")

    assert told is not None
    assert "US-001" in told
    assert any("\u4e00" <= sign <= "\u9fff" for sign in told)


@pytest.mark.parametrize(
    ("name", "answer", "english", "chinese"),
    [
        (
            "trust",
            {"trusted": [".ai/rules.yaml"]},
            "now in effect: .ai/rules.yaml",
            "從現在起生效：.ai/rules.yaml",
        ),
        ("trust", {"trusted": []}, "no edit was pending", "沒有等待信任的修改"),
        ("add", {"name": "shop", "tracks": []}, "shop is now supervised", "shop 從現在起受管理"),
        ("remove", {"name": "shop"}, "shop is no longer supervised", "shop 不再受管理"),
        ("init", {"name": "shop"}, "shop is set up", "shop 已準備好"),
        ("check", {"passed": True}, "the check of this step passed", "這一步的檢查通過"),
        ("check", {"passed": False}, "the check of this step did not pass", "這一步的檢查沒有通過"),
        ("check", {"passed": None}, "this step has no check", "這一步沒有檢查"),
    ],
)
def test_what_moves_no_story_tells_what_was_done(
    control: Controlled, name: str, answer: Json, english: str, chinese: str
) -> None:
    """Where a story stands was not asked, and may look as if it had just got there."""
    kind = {
        "trust": "trusted",
        "add": "added",
        "remove": "removed",
        "init": "initialised",
        "check": "checked",
    }[name]
    given = Answer({"type": kind, "project": "/srv/shop", **answer}, daemon=True)
    told = [
        str(Teller(_place(control.runtime), language).report_of(OFFERS[name], given))
        for language in LANGUAGES
    ]

    assert [True, True] == [
        text.startswith(begin) for text, begin in zip(told, (english, chinese), strict=True)
    ]
    assert not any("US-001" in text for text in told)


def test_trusting_tells_what_was_trusted(control: Controlled) -> None:
    """As the daemon answers it."""
    told = str(_told(control.runtime, "trust", project="shop"))

    assert told.startswith(("now in effect", "no edit was pending"))


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("limits", {"limits": []}),
        ("note", {"type": "error", "project": "/srv/shop"}),
        ("note", {"type": "accepted"}),
        ("note", {"type": "accepted", "project": "/nope"}),
        ("status", {"projects": [{}] * 11}),
    ],
)
def test_where_there_is_nothing_to_tell_there_is_no_report(
    control: Controlled, name: str, answer: Json
) -> None:
    """The answer is whole without one."""
    teller = Teller(_place(control.runtime), "en")

    assert teller.report_of(OFFERS[name], Answer(answer, daemon=True)) is None


def test_without_a_daemon_a_verb_has_no_report(alone: Path) -> None:
    """It says that nothing goes on."""
    teller = Teller(_place(alone), "en")

    assert teller.report_of(OFFERS["note"], Answer({"project": "/srv/shop"}, daemon=False)) is None
