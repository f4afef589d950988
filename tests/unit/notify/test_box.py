"""What passes between the notifier and whoever keeps its notices."""

from __future__ import annotations

from tests.support.notices import NOTICE

from handoffd.notify.box import Parcel


def test_a_parcel_comes_from_no_order_unless_it_says_so() -> None:
    """Nobody repeats what no order stands behind."""
    assert Parcel(notice=NOTICE, sinks=("command",)).order is None
