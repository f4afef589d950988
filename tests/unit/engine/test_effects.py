"""Orders: told apart by name, and each carrying what it needs to be given twice."""

from __future__ import annotations

from typing import get_args

from handoffd.engine.decision import Effect, MeasureBaseline, Notify, RunChecks, Spawn, StopTree

KINDS = {effect: effect.__dataclass_fields__["kind"].default for effect in get_args(Effect)}


def test_every_order_has_a_name_of_its_own() -> None:
    """The journal tells them apart by it."""
    spelt = {kind: "".join(part.title() for part in name.split("_")) for kind, name in KINDS.items()}
    assert {kind: kind.__name__ for kind in KINDS} == spelt


def test_orders_about_processes_carry_their_dispatch() -> None:
    """Given again after a crash they find the run they already started."""
    with_dispatch = {kind for kind in KINDS if "dispatch" in kind.__dataclass_fields__}
    assert {MeasureBaseline, Spawn, StopTree, RunChecks} == with_dispatch


def test_equal_orders_are_equal() -> None:
    """Tests and the journal compare them as values."""
    first, second = (Notify(notice="done", story="US-1", step="done", text="US-1 is done") for _ in range(2))
    assert first == second
    assert {first} == {second}
