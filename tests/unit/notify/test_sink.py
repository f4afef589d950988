"""How a failure to deliver speaks."""

from __future__ import annotations

from handoffd.notify.sink import Undelivered


def test_a_failure_is_worth_retrying_unless_it_says_otherwise() -> None:
    """Most failures pass; only a sink knows of one that does not."""
    assert Undelivered("no answer").worth_retrying
    assert not Undelivered("no such program", worth_retrying=False).worth_retrying
