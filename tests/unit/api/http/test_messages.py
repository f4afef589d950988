"""Messages over the socket."""

from __future__ import annotations

import pytest
from tests.support.controlled import Controlled
from tests.unit.api.http.test_shapes import told

from handoffd.engine.events import Approved
from handoffd.errors import HandoffdError


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
