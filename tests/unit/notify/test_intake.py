"""What was handed in and is not recorded yet."""

from __future__ import annotations

from dataclasses import replace

from tests.support.notices import NOTICE

from handoffd.notify.notifier import Intake
from handoffd.notify.ports import Opening, Parcel

SHOP, BLOG = ("/srv/shop", ""), ("/srv/blog", "")


def parcel(name: str, lane: tuple[str, str] | None = None, order: int | None = None) -> Parcel:
    """Return a notice, which opens something in a lane."""
    opens = None if lane is None else Opening(lane=lane)
    return Parcel(notice=replace(NOTICE, id=name), sinks=(), order=order, opens=opens)


def test_order_is_kept_between_what_begins_and_what_ends() -> None:
    """So a matter that comes right after another is not taken for over with it."""
    intake, one, two = Intake(), parcel("one", SHOP), parcel("two", SHOP)
    for found in (one, parcel("other")):
        intake.put(found)
    assert intake.put_over(SHOP, lambda: False)  # it is on its way
    intake.put(two)

    assert ["one", "other"] == [each.notice.id for each in intake.parcels(10)]
    assert [one] == intake.parcels(1)
    assert [] == intake.overs()
    intake.take(2)
    assert ([SHOP], []) == (intake.overs(), intake.parcels(10))
    intake.take(1)
    assert ([], [two]) == (intake.overs(), intake.parcels(10))
    intake.take(1)
    assert 0 == len(intake)


def test_that_something_is_over_is_taken_in_once() -> None:
    """It is said at every look, also for hours in which nothing can be recorded."""
    intake = Intake()
    assert [True, False, False] == [intake.put_over(SHOP, lambda: True) for _ in range(3)]
    assert not intake.put_over(BLOG, lambda: False)  # nothing waits there
    assert 1 == len(intake)

    intake.put(parcel("next", SHOP))
    assert [True, False] == [intake.put_over(SHOP, lambda: False) for _ in range(2)]
    intake.take(3)
    assert not intake.put_over(SHOP, lambda: False)


def test_what_comes_from_no_order_can_be_taken_out() -> None:
    """Nobody repeats it."""
    intake, order, loose = Intake(), parcel("order", order=7), parcel("loose")
    intake.put(loose)
    intake.put(order)
    intake.put_over(SHOP, lambda: True)

    assert [loose] == intake.take_those_of_no_order()
    assert [order] == intake.parcels(10)
    intake.take(1)
    assert [SHOP] == intake.overs()
