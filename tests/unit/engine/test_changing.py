"""Copies of frozen values: the same as `dataclasses.replace` makes, sooner."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import pytest
from tests.support.playbook import track_at

from handoffd.engine.track import Ledger, Track, changed
from handoffd.protocol.state import Status


def test_a_copy_has_the_changes_and_nothing_else() -> None:
    """It is equal to what `replace` makes, and the value itself stays as it was."""
    ledger = Ledger(automatic=True, visits={"impl": 2})

    copy = changed(ledger, paused_by="me", visits={})

    assert replace(ledger, paused_by="me", visits={}) == copy
    assert Ledger(automatic=True, visits={"impl": 2}) == ledger


def test_without_changes_it_is_equal() -> None:
    """A copy of a whole track is that track."""
    track = track_at("impl", Status.PENDING)

    assert track == changed(track)
    assert isinstance(changed(track), Track)


def test_copies_of_copies_take_no_more_room() -> None:
    """Each track keeps one, for as long as a daemon runs."""
    ledger = changed(Ledger(), closed=True)
    once = sys.getsizeof(vars(ledger))
    for number in range(10):
        ledger = changed(ledger, paused_by=str(number))

    assert once == sys.getsizeof(vars(ledger)) == sys.getsizeof({**vars(ledger)})


def test_a_field_that_is_not_there_is_refused() -> None:
    """A misspelt name must not be lost."""
    with pytest.raises(TypeError, match="Ledger has no field 'paused'"):
        changed(Ledger(), paused="me")


def test_a_class_that_checks_its_values_is_refused() -> None:
    """Its checks would be left out."""

    @dataclass(frozen=True)
    class Checked:
        value: int

        def __post_init__(self) -> None:
            assert self.value > 0

    with pytest.raises(AssertionError, match="Checked would not be checked"):
        changed(Checked(1), value=-1)


def test_a_class_with_slots_is_refused() -> None:
    """They would not be copied."""

    @dataclass(frozen=True, slots=True)
    class Slotted:
        value: int

    with pytest.raises(AssertionError, match="Slotted has slots"):
        changed(Slotted(1), value=2)
