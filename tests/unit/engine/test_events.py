"""Facts: told apart by name, frozen, one place for each in the table."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import get_args

import pytest

from handoffd.engine.decide import TRANSITIONS
from handoffd.engine.events import Event, Fact, Noted, TestEvidence, Verb

KINDS = {event: event.__dataclass_fields__["kind"].default for event in get_args(Event)}


def test_every_fact_has_a_name_of_its_own() -> None:
    """The journal tells them apart by it."""
    assert len(KINDS) == len(set(KINDS.values()))
    spelt = {kind: "".join(part.title() for part in name.split("_")) for kind, name in KINDS.items()}
    assert {kind: kind.__name__ for kind in KINDS} == spelt


def test_every_fact_can_happen_somewhere() -> None:
    """A kind that no row of the table has would always be refused."""
    assert set(KINDS.values()) == {kind for row in TRANSITIONS.values() for kind in row}


def test_every_verb_says_who_gave_it() -> None:
    """But for the first one: a project is initialised by whoever adds it."""
    nameless = [verb for verb in get_args(Verb) if "by" not in {field.name for field in fields(verb)}]
    assert ["Initialised"] == [verb.__name__ for verb in nameless]
    assert not set(get_args(Verb)) & set(get_args(Fact))


def test_a_fact_is_frozen() -> None:
    """What has happened does not change."""
    with pytest.raises(FrozenInstanceError):
        Noted(text="one").text = "two"  # type: ignore[misc]


def test_evidence_proves_nothing_by_itself() -> None:
    """An empty measurement is neither a fault nor a failing test."""
    evidence = TestEvidence()
    assert (None, False, (), 0) == (evidence.fault, evidence.timed_out, evidence.failing, evidence.collected)
