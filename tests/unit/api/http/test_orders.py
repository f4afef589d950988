"""Endpoints that change something, and messages, in process; over the wire: test_routes.py."""

from __future__ import annotations

import pytest
from tests.support.controlled import Controlled
from tests.unit.api.http.test_shapes import told

from handoffd.engine.events import Approved, Noted, Paused
from handoffd.errors import HandoffdError, Refused


def test_a_verb_goes_to_its_project_with_its_arguments(control: Controlled) -> None:
    """As the vocabulary has it."""
    control.client.post("/v1/verbs/pause", {"project": "shop"})
    control.client.post("/v1/verbs/note", {"project": "/srv/shop", "text": "hello", "by": "eve"})

    assert [Paused(by="api"), Noted(text="hello", by="eve")] == [
        verb for _, verb in control.supervision.given
    ]


def test_a_verb_without_its_project_says_how_it_is_given(control: Controlled) -> None:
    """As a command."""
    with pytest.raises(Refused) as caught:
        control.client.post("/v1/verbs/reject", {"reason": "x"})

    assert (caught.value.hint or "").startswith("handoffd reject PROJECT REASON")


def test_stopping_takes_the_executors_along_only_when_told(control: Controlled) -> None:
    """The flag is off by default."""
    control.client.post("/v1/stop", {})
    control.client.post("/v1/stop", {"executors": True})

    assert [False, True] == control.stopped_with


@pytest.mark.parametrize("text", ["status", "approve", "ok", "list projects", "approve US-9", "繼續"])
def test_every_answer_has_its_shape(control: Controlled, text: str) -> None:
    """Refused or not, it is an answer."""
    answer = control.client.post("/v1/messages", {"project": "shop", "text": text})

    assert [] == told(answer, "/v1/messages", "post")


def test_who_sent_it_is_recorded(control: Controlled) -> None:
    """As with a verb."""
    control.client.post("/v1/messages", {"project": "shop", "text": "核准", "by": "eve"})

    assert [("/srv/shop", Approved(story="US-001", by="eve"))] == control.supervision.given


@pytest.mark.parametrize(
    "body", [{}, {"text": 5}, {"text": "x", "language": "tlh"}, {"text": "x", "speed": 1}]
)
def test_a_request_that_is_none_is_refused(control: Controlled, body: dict[str, object]) -> None:
    """With what would do."""
    with pytest.raises(HandoffdError) as refused:
        control.client.post("/v1/messages", body)

    assert "BAD_ARGUMENT" == refused.value.code
    assert refused.value.hint
