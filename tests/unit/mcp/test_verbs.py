"""The verbs as tools."""

from __future__ import annotations

from typing import Final

import pytest
from tests.support.controlled import Controlled

from handoffd.api.verbs import VERBS
from handoffd.engine.events import Noted, RolledBack, Started
from handoffd.entrance.place import Place
from handoffd.entrance.requests import account
from handoffd.errors import HandoffdError, Json, NotFound, Refused
from handoffd.mcp.tool import Offer
from handoffd.mcp.verbs import verb_offers

NEVER_OFFERED: Final[dict[str, str]] = {}
"""Verbs that are no tools, whoever allowed what, each with the reason."""


def _place(control: Controlled) -> Place:
    return Place(config=None, environ={"HANDOFFD_RUNTIME_DIR": str(control.runtime)})


def _offer(name: str, *, approvals: bool = False) -> Offer:
    return {offer.name: offer for offer in verb_offers(approvals=approvals)}[name]


def test_every_verb_is_offered_or_has_a_reason() -> None:
    """Those for people only where a person allowed it."""
    without = [offer.name for offer in verb_offers(approvals=False)]
    allowed = [offer.name for offer in verb_offers(approvals=True)]

    assert sorted(VERBS) == sorted([*allowed, *NEVER_OFFERED])
    assert {name for name, spec in VERBS.items() if spec.guard != "always"} == set(without)
    assert "approve" not in without


def test_force_is_for_people() -> None:
    """It makes another verb of the one it is given to."""
    for name in ("start", "rollback"):
        assert "force" not in _offer(name).schema["properties"]
        assert "force" in _offer(name, approvals=True).schema["properties"]


def test_tools_for_people_say_so() -> None:
    """Where the model reads it."""
    for offer in verb_offers(approvals=True):
        assert ("For people" in offer.description) == (VERBS[offer.name].guard == "always")
        assert "project" in offer.schema["required"]


def test_a_verb_is_given_in_the_name_of_who_started_the_server(control: Controlled) -> None:
    """And that it came this way is recorded."""
    answer = _offer("note").run(_place(control), {"project": "shop", "text": "x"})

    assert "accepted" == answer.json["type"]
    assert [("/srv/shop", Noted(text="x", by=f"{account()} via mcp"))] == control.supervision.given


def test_arguments_arrive_as_they_were_given(control: Controlled) -> None:
    """With their defaults for what was left out."""
    _offer("start").run(_place(control), {"project": "shop", "story": "US-7", "blocked_by": ["US-6"]})
    _offer("rollback", approvals=True).run(_place(control), {"project": "shop", "step": "bdd", "force": True})

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
    """It trusts the settings that lie there."""
    given: Json = {"project": project, "text": "x"}
    with pytest.raises(error) as refused:
        _offer("custom").run(_place(control), given)

    assert (code, hint) == (refused.value.code, refused.value.hint)
    assert [] == control.supervision.given


def test_where_a_person_allowed_it_a_project_is_begun_with(control: Controlled) -> None:
    """As on the command line."""
    answer = _offer("custom", approvals=True).run(_place(control), {"project": "/srv/new", "text": "x"})

    assert "accepted" == answer.json["type"]
    assert "/srv/new" in control.supervision.projects
