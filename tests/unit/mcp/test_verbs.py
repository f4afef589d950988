"""The verbs as tools, and a person's message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.chat_tables import DISPATCHING, KINDS
from tests.support.controlled import Controlled
from tests.support.refusals import refused
from tests.unit.mcp.conftest import place_at

from handoffd.api.verbs import VERBS
from handoffd.engine.events import Approved, Noted, RolledBack, Started
from handoffd.entrance.requests import Answer, account
from handoffd.errors import HandoffdError, NotFound, Refused
from handoffd.mcp.tool import Offer
from handoffd.mcp.verbs import UNGUARDED, message_offer, verb_offers


def _offer(name: str, *, approvals: bool = False) -> Offer:
    return {offer.name: offer for offer in verb_offers(approvals=approvals)}[name]


def _give(control: Controlled, name: str, *, approvals: bool = False, **given: Any) -> Answer:
    return _offer(name, approvals=approvals).run(place_at(control.runtime), given)


def test_every_verb_is_offered() -> None:
    """Verbs for people only where a person allowed it, and so is `force`, which makes another verb."""
    without = [offer.name for offer in verb_offers(approvals=False)]
    allowed = [offer.name for offer in verb_offers(approvals=True)]

    assert sorted(VERBS) == sorted(allowed)
    assert {name for name, spec in VERBS.items() if spec.guard != "always"} == set(without)
    for name in ("start", "rollback"):
        assert "force" not in _offer(name).schema["properties"]
        assert "force" in _offer(name, approvals=True).schema["properties"]


def test_the_description_of_a_tool_for_people_names_them() -> None:
    """The model reads it there."""
    for offer in verb_offers(approvals=True):
        assert ("For people" in offer.description) == (VERBS[offer.name].guard == "always")
        assert "project" in offer.schema["required"]


def test_a_verb_is_recorded_under_the_account_of_the_server(control: Controlled) -> None:
    """With the way it came."""
    answer = _give(control, "note", project="shop", text="x")

    assert "accepted" == answer.json["type"]
    assert [("/srv/shop", Noted(text="x", by=f"{account()} via mcp"))] == control.supervision.given


def test_arguments_arrive_unchanged(control: Controlled) -> None:
    """With defaults for the others."""
    _give(control, "start", project="shop", story="US-7", blocked_by=["US-6"])
    _give(control, "rollback", approvals=True, project="shop", step="bdd", force=True)

    (_, started), (_, rolled_back) = control.supervision.given
    assert isinstance(started, Started)
    assert ("US-7", ("US-6",), False) == (started.story, started.blocked_by, started.force)
    assert isinstance(rolled_back, RolledBack)
    assert rolled_back.force


@pytest.mark.parametrize(
    ("project", "error", "code", "hint"),
    [
        ("/srv/new", Refused, "PEOPLE_ONLY", "handoffd init /srv/new"),
        ("nope", NotFound, "NOT_FOUND", "handoffd projects"),
    ],
)
def test_to_begin_with_a_project_is_for_people(
    control: Controlled, project: str, error: type[HandoffdError], code: str, hint: str
) -> None:
    """It trusts the settings there."""
    with refused(code, hint, kind=error):
        _give(control, "custom", project=project, text="x")
    assert [] == control.supervision.given


def test_where_a_person_allowed_it_a_tool_begins_with_a_project(control: Controlled) -> None:
    """As on the command line."""
    answer = _give(control, "custom", approvals=True, project="/srv/new", text="x")

    assert "accepted" == answer.json["type"]
    assert "/srv/new" in control.supervision.projects


# --- a message ---------------------------------------------------------------------------------------
def _send(runtime: Path, text: str, *, approvals: bool = False, **given: Any) -> Answer:
    return message_offer(approvals=approvals).run(place_at(runtime), {"text": text, **given})


def test_a_question_is_answered(control: Controlled) -> None:
    """In words, without a verb."""
    answer = _send(control.runtime, "shop 的進度如何？")

    assert answer.daemon
    assert ("message", "query", "/srv/shop") == tuple(
        answer.json[key] for key in ("type", "action", "project")
    )
    assert "US-001" in answer.json["report"]
    assert [] == control.supervision.given


def test_free_text_at_a_gate_is_a_note_and_opens_nothing(control: Controlled) -> None:
    """With approvals or without."""
    for approvals in (False, True):
        answer = _send(control.runtime, "make the totals bold", project="shop", approvals=approvals)
        assert "noted" == answer.json["action"]

    for _, verb in control.supervision.given:
        assert isinstance(verb, Noted)
        assert f"{account()} via mcp" == verb.by


@pytest.mark.parametrize(
    "text",
    ["approve", "shop: LGTM", "核准", "reject: scope", "退回", "retry", "skip", "繼續", "reopen impl"],
)
def test_a_decision_of_people_is_refused_with_the_command(control: Controlled, text: str) -> None:
    """In any words, with the project named anywhere."""
    with pytest.raises(Refused) as caught:
        _send(control.runtime, text, project="shop")

    assert "PEOPLE_ONLY" == caught.value.code
    assert str(caught.value.hint).startswith("handoffd auto shop ")
    assert [] == control.supervision.given


def test_where_a_person_allowed_it_their_message_opens_the_gate(control: Controlled) -> None:
    """With its note."""
    assert "approved" == _send(control.runtime, "approve", project="shop", approvals=True).json["action"]

    ((_, verb),) = control.supervision.given
    assert isinstance(verb, Approved)


def test_work_begins_only_in_supervised_projects(control: Controlled, tmp_path: Path) -> None:
    """Beginning with another one would trust its settings."""
    with refused("PEOPLE_ONLY"):
        _send(control.runtime, "用 CC 修登入頁", project=str(tmp_path))

    _send(control.runtime, "用 CC 修登入頁", project="empty")
    (started,) = [verb for _, verb in control.supervision.given if isinstance(verb, Started)]
    assert "custom" == started.task_type


def test_a_message_needs_no_daemon(alone: Path) -> None:
    """An unknown project is an error."""
    assert "error" == _send(alone, "status", project="nope").json["action"]
    assert not _send(alone, "list projects").daemon


def test_a_new_kind_of_intent_is_for_people() -> None:
    """Until it is added to the others."""
    assert set() == UNGUARDED - set(KINDS)
    assert {"start_story", "start_custom"} == UNGUARDED & DISPATCHING


def test_a_message_does_not_begin_with_a_folder_beside_a_project(control: Controlled, tmp_path: Path) -> None:
    """It would trust its settings; a person has to begin."""
    (tmp_path / "legacy").mkdir()
    (tmp_path / "legacy/package.json").write_text("{}")
    (tmp_path / "shop").mkdir()

    for text in ("legacy 專案加入購物車", "用 CC 幫 legacy 做 code review"):
        with pytest.raises((NotFound, Refused)):
            _send(control.runtime, text, project=str(tmp_path / "shop"))

    assert [] == control.supervision.given
