"""What is counted."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from handoffd.metrics.prometheus import Bounded, Instruments


def test_labels_do_not_grow_for_ever() -> None:
    """The first values keep their name; those that come when it is full are one."""
    name = Bounded(2)

    assert ["a", "b", "other", "a"] == [name("a"), name("b"), name("c"), name("a")]


def test_two_daemons_in_one_process_count_apart() -> None:
    """Nothing is registered globally."""
    one, other = CollectorRegistry(), CollectorRegistry()
    Instruments(one).crashes.inc()
    Instruments(other)

    name = "handoffd_project_crashes_total"
    assert (1, 0) == (one.get_sample_value(name), other.get_sample_value(name))


def test_outcomes_are_there_before_they_come_about() -> None:
    """A counter that appears at 1 has not increased, for Prometheus."""
    registry = CollectorRegistry()
    Instruments(registry)

    assert 0 == registry.get_sample_value("handoffd_stories_done_total", {"type": "story"})
    labels = {"kind": "tests", "outcome": "fault"}
    assert 0 == registry.get_sample_value("handoffd_checks_total", labels)
