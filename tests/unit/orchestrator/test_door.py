"""`orchestrator.door`: the way to the engine, with a daemon and without."""

from __future__ import annotations

import os

from tests.support.controlled import Controlled
from tests.unit.orchestrator.conftest import Shop

from handoffd.orchestrator.engine_access import Door


def test_a_project_that_nobody_knew_is_added(shop: Shop) -> None:
    """Then the verb is given."""
    shop.written(step="review", status="needs_human", max_attempts=1)

    assert "accepted" == Door(str(shop.root), os.environ).give("approve")["type"]


def test_what_cannot_be_asked_is_an_answer(shop: Shop) -> None:
    """With its code, as the reference answers."""
    shop.written()

    answer = Door(str(shop.root), os.environ).give("reject", reason="dislike")

    assert ("error", "BAD_ARGUMENT") == (answer["type"], answer["code"])


def test_a_daemon_is_asked_first(control: Controlled) -> None:
    """What it supervises is its own to change."""
    answer = Door("/srv/shop", os.environ).give("approve", note="fine")

    assert "accepted" == answer["type"]
    assert "approved" == control.supervision.given[-1][1].kind
