"""What orders are really answered with, held against the types that describe it."""

from __future__ import annotations

import pytest
from tests.support.controlled import Controlled
from tests.unit.api.http.test_shapes import told


@pytest.mark.parametrize("verb", ["add", "trust", "pause", "remove"])
def test_a_verb_is_answered_in_its_shape(control: Controlled, verb: str) -> None:
    """Those that are events and those that are none."""
    path = f"/v1/verbs/{verb}"

    assert [] == told(control.client.post(path, {"project": "/srv/shop"}), path, "post")


def test_the_daemons_own_orders_have_theirs(control: Controlled) -> None:
    """Stop and reload."""
    for path in ("/v1/reload", "/v1/stop"):
        assert [] == told(control.client.post(path, {}), path, "post")
