"""What passes between the notifier, the box that keeps its notices, and the sinks."""

from __future__ import annotations

from tests.support.notices import NOTICE

from handoffd.notify.ports import Parcel, Undelivered


def test_a_parcel_comes_from_no_order_unless_it_says_so() -> None:
    """Nobody repeats what no order stands behind."""
    assert Parcel(notice=NOTICE, sinks=("command",)).order is None


def test_a_failure_is_worth_retrying_unless_it_says_otherwise() -> None:
    """Most failures pass; only a sink knows of one that does not."""
    assert Undelivered("no answer").worth_retrying
    assert not Undelivered("no such program", worth_retrying=False).worth_retrying
