"""Many notices of one kind within a moment."""

from __future__ import annotations

from handoffd.notify.notifier import Bursts
from handoffd.settings.notify import BurstSettings

THREE = BurstSettings(most=3, within_s=60)


def test_so_many_in_any_such_span_are_told_one_by_one() -> None:
    """It is no grid: a minute is any minute."""
    bursts = Bursts()

    told = [bursts.admit("phone", "blocked", at, THREE) for at in (0, 10, 59, 59.5, 60, 60.5, 70, 130)]
    assert [True, True, True, False, True, False, True, True] == told


def test_sinks_and_kinds_are_counted_apart() -> None:
    """A storm of one kind does not hide another."""
    bursts = Bursts()

    told = [
        bursts.admit(sink, kind, 0, BurstSettings(most=1))
        for sink in "ab"
        for kind in ("done", "timeout") * 2
    ]
    assert [True, True, False, False] * 2 == told
