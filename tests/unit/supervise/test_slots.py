"""Slots: a counted set of holders, first come first served."""

from __future__ import annotations

from handoffd.engine.track import TrackKey
from handoffd.supervise.slots import Slots

A, B, C = (TrackKey(f"/srv/{name}") for name in "abc")


def test_no_more_tracks_hold_a_slot_than_there_are() -> None:
    """The next one waits, and knows its place."""
    slots = Slots(1)

    assert [True, False, False] == [slots.ask(key, lambda: None) for key in (A, B, C)]
    assert (1, 1) == (slots.in_use, slots.total)
    assert [None, 1, 2] == [slots.place(key) for key in (A, B, C)]


def test_a_slot_that_becomes_free_goes_to_who_has_waited_longest() -> None:
    """It is the waiting one's before that is even told, so nobody can slip in between."""
    slots, granted = Slots(1), list[str]()
    slots.ask(A, lambda: granted.append("a"))
    slots.ask(B, lambda: granted.append("b"))
    slots.ask(C, lambda: granted.append("c"))

    slots.release(A)

    assert ["b"] == granted
    assert [False, True, False] == [slots.holds(key) for key in (A, B, C)]
    assert 1 == slots.place(C)


def test_whoever_holds_a_slot_may_ask_again() -> None:
    """An attempt that is repeated does not wait behind itself."""
    slots = Slots(1)
    slots.ask(A, lambda: None)

    assert slots.ask(A, lambda: None)
    assert 1 == slots.in_use


def test_a_newcomer_does_not_overtake_who_waits() -> None:
    """Even when there is room just now, as after a release in the same moment."""
    slots = Slots(1)
    slots.occupy(A)
    slots.occupy(B)
    slots.ask(C, lambda: None)
    slots.release(A)

    assert not slots.ask(A, lambda: None)
    assert [2, 1] == [slots.place(key) for key in (A, C)]


def test_an_adopted_executor_counts_whatever_the_limit() -> None:
    """It runs already; nothing else is started until there is room again."""
    slots, granted = Slots(1), list[str]()
    slots.occupy(A)
    slots.occupy(B)
    slots.ask(C, lambda: granted.append("c"))

    slots.release(A)
    assert (1, []) == (slots.in_use, granted)
    slots.release(B)
    assert (1, ["c"]) == (slots.in_use, granted)


def test_who_gives_up_waiting_is_not_called() -> None:
    """A track that was paused meanwhile does not get a slot it does not use."""
    slots, granted = Slots(1), list[str]()
    slots.ask(A, lambda: None)
    slots.ask(B, lambda: granted.append("b"))

    slots.release(B)
    slots.release(A)

    assert ([], 0) == (granted, slots.in_use)
