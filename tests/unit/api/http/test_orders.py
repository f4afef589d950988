"""Endpoints that change something, in process; over the wire: test_routes.py."""

from __future__ import annotations

import pytest
from tests.support.controlled import Controlled

from handoffd.engine.events import Noted, Paused
from handoffd.errors import Refused


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
