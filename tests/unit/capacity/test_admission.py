"""Admission: memory, what has yet to grow, load, and one start at a time."""

from __future__ import annotations

from typing import Any

import pytest

from handoffd.capacity.admission import GROWS_S, LOOK_S, Admission, Facts
from handoffd.engine.track import TrackKey
from handoffd.settings.model import SchedulingSettings

NOW = 1000.0


def admission(*starts: float, **scheduling: Any) -> Admission:
    """Return the rules for `scheduling`, after `starts` so many seconds ago."""
    found = Admission(SchedulingSettings.model_validate({"min_free_memory_mb": 0} | scheduling))
    for ago in starts:
        found.started(TrackKey(f"/{ago}"), NOW - ago)
    return found


def why(found: Admission, facts: Facts, now: float = NOW) -> str | None:
    """Return why nobody is let in."""
    closed = found.closed(facts, now)
    return closed.why if closed is not None else None


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (1024, None),
        (1023, "memory: 1,023 MiB free, 1,024 wanted"),
        (0, "memory: 0 MiB free, 1,024 wanted"),
        (None, None),
    ],
)
def test_so_much_memory_must_be_free(free: int | None, expected: str | None) -> None:
    """Where nobody can tell how much there is, it is no reason to wait."""
    assert expected == why(admission(min_free_memory_mb=1024), Facts(free_mb=free))


def test_what_was_just_started_is_counted_with_what_it_will_take() -> None:
    """Less and less, as it grows; so a burst of starts sees its own memory before it is taken."""
    scheduling = {"min_free_memory_mb": 1000, "memory_per_agent_mb": 400}
    rules = admission(GROWS_S / 2, 0, **scheduling)
    assert 600 == rules.growing_mb(NOW)
    told = "memory: 1,500 MiB free, 600 of them for what was just started, 1,000 wanted"
    assert told == why(rules, Facts(free_mb=1500))
    assert None is why(rules, Facts(free_mb=1600))
    assert None is why(rules, Facts(free_mb=1500), NOW + GROWS_S)
    assert 0 == rules.growing_mb(NOW + GROWS_S)


def test_what_has_ended_takes_nothing_any_more() -> None:
    """However many come and go in a moment; one that is started once more is counted once."""
    rules = admission(min_free_memory_mb=1, memory_per_agent_mb=100)
    for number in range(5000):
        rules.started(TrackKey(f"/{number}"), NOW)
        rules.ended(TrackKey(f"/{number}"))
    assert 0 == rules.growing_mb(NOW)
    for ahead_s in (0, 5):
        rules.started(TrackKey("/a"), NOW + ahead_s)
    assert 100 == rules.growing_mb(NOW + 5)


@pytest.mark.parametrize(
    ("load", "expected"), [(2.0, None), (2.04, "load: 2.0 per core, at most 2 wanted"), (None, None)]
)
def test_load_is_looked_at_where_somebody_wants_it(load: float | None, expected: str | None) -> None:
    """By default it is not."""
    assert expected == why(admission(max_load_per_core=2), Facts(load_per_core=load))
    assert None is why(admission(), Facts(load_per_core=99))


def test_starts_are_staggered() -> None:
    """It is known when the next one may be."""
    rules = admission(1.5, stagger_s=4)
    closed = rules.closed(Facts(), NOW)
    assert closed is not None
    assert ("stagger", "next start in 2 s (stagger)", 2.5) == closed
    assert "next start in 1 s (stagger)" == why(rules, Facts(), NOW + 2.4)
    assert None is why(rules, Facts(), NOW + 2.5)
    assert None is why(admission(stagger_s=4), Facts())


def test_memory_is_told_before_load_and_load_before_time() -> None:
    """What lasts longest is what people should know of."""
    rules = admission(0, min_free_memory_mb=10, max_load_per_core=1, stagger_s=5)
    kinds = []
    for facts in (Facts(1, 9), Facts(9999, 9), Facts(9999, 0)):
        closed = rules.closed(facts, NOW)
        assert closed is not None
        kinds.append((closed.kind, closed.again_s))
    assert [("memory", LOOK_S), ("load", LOOK_S), ("stagger", 5)] == kinds


@pytest.mark.parametrize(
    ("scheduling", "expected"),
    [
        ({}, False),
        ({"min_free_memory_mb": 1}, True),
        ({"max_load_per_core": 1}, True),
        ({"stagger_s": 1}, False),
    ],
)
def test_the_machine_is_only_looked_at_where_that_matters(scheduling: dict[str, Any], expected: bool) -> None:
    """A look costs a few files."""
    assert expected == admission(**scheduling).looks
