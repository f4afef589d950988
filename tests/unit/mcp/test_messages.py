"""A person's message as a tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.controlled import Controlled

from handoffd.chat.intents import DISPATCHING, KINDS
from handoffd.engine.events import Approved, Noted, Started
from handoffd.entrance.place import Place
from handoffd.entrance.requests import Answer, account
from handoffd.errors import NotFound, Refused
from handoffd.mcp.verbs import UNGUARDED, message_offer


def _send(runtime: Path, text: str, *, approvals: bool = False, **given: Any) -> Answer:
    variables = {"HANDOFFD_RUNTIME_DIR": str(runtime), "HANDOFFD_STATE_DIR": str(runtime / "state")}
    place = Place(config=None, environ=variables)
    return message_offer(approvals=approvals).run(place, {"text": text, **given})


def test_a_question_is_answered(control: Controlled) -> None:
    """In words, and nothing is given."""
    answer = _send(control.runtime, "shop 的進度如何？")

    assert answer.daemon
    assert ("message", "query", "/srv/shop") == tuple(
        answer.json[key] for key in ("type", "action", "project")
    )
    assert "US-001" in answer.json["report"]
    assert [] == control.supervision.given


def test_free_text_at_a_gate_is_a_note_and_opens_nothing(control: Controlled) -> None:
    """Whoever allowed what."""
    for approvals in (False, True):
        answer = _send(control.runtime, "make the totals bold", project="shop", approvals=approvals)
        assert "noted" == answer.json["action"]

    for _, verb in control.supervision.given:
        assert isinstance(verb, Noted)
        assert f"{account()} via mcp" == verb.by


@pytest.mark.parametrize(
    "text",
    [
        "approve",
        "shop: LGTM",
        "核准",
        "reject: scope",
        "退回",
        "retry",
        "skip",
        "繼續",
        "reopen impl",
    ],
)
def test_what_is_for_people_is_refused_with_the_command(control: Controlled, text: str) -> None:
    """However it is said, and wherever the project stands in it."""
    with pytest.raises(Refused) as refused:
        _send(control.runtime, text, project="shop")

    assert "PEOPLE_ONLY" == refused.value.code
    assert str(refused.value.hint).startswith("handoffd auto shop ")
    assert [] == control.supervision.given


def test_where_a_person_allowed_it_their_word_opens_the_gate(control: Controlled) -> None:
    """With the note that came with it."""
    assert "approved" == _send(control.runtime, "approve", project="shop", approvals=True).json["action"]

    ((_, verb),) = control.supervision.given
    assert isinstance(verb, Approved)


def test_work_is_begun_only_in_projects_that_somebody_supervises(control: Controlled, tmp_path: Path) -> None:
    """To begin with one is to trust its settings."""
    with pytest.raises(Refused) as refused:
        _send(control.runtime, "用 CC 修登入頁", project=str(tmp_path))
    assert "PEOPLE_ONLY" == refused.value.code

    _send(control.runtime, "用 CC 修登入頁", project="empty")
    (started,) = [verb for _, verb in control.supervision.given if isinstance(verb, Started)]
    assert "custom" == started.task_type


def test_without_a_daemon_the_same_is_understood(alone: Path) -> None:
    """And what there is not is said."""
    assert "error" == _send(alone, "status", project="nope").json["action"]
    assert not _send(alone, "list projects").daemon


def test_what_a_message_may_mean_is_known() -> None:
    """A new kind of intent is for people until somebody decides otherwise."""
    assert set() == UNGUARDED - set(KINDS)
    assert {"start_story", "start_custom"} == UNGUARDED & DISPATCHING


def test_a_folder_beside_a_project_is_not_begun_with_by_its_name(control: Controlled, tmp_path: Path) -> None:
    """Its settings would be trusted by that; a person has to begin."""
    (tmp_path / "legacy").mkdir()
    (tmp_path / "legacy/package.json").write_text("{}")
    (tmp_path / "shop").mkdir()

    for text in ("legacy 專案加入購物車", "用 CC 幫 legacy 做 code review"):
        with pytest.raises((NotFound, Refused)):
            _send(control.runtime, text, project=str(tmp_path / "shop"))

    assert [] == control.supervision.given
