"""What samples say of growth."""

from __future__ import annotations

import os

from tests.soak.samples import Sample, cost, last_of_each, slope_per_hour, steady


def sample(at_s: float, life: int = 1, rss_mb: float = 80.0) -> Sample:
    """Return a sample of a daemon that was born with the soak."""
    return Sample(
        at_s=at_s, life=life, age_s=at_s, rss_mb=rss_mb, descriptors=60, threads=9, cpu_s=1, running=4,
        stories=9,
    )  # fmt: skip


def test_steady_growth_is_seen_through_a_burst() -> None:
    """One MiB an hour stays that, though a tenth of the samples is far off."""
    points = [(at, at / 3600 + (30 if at % 100 == 0 else 0)) for at in range(0, 3600, 10)]

    found = slope_per_hour(points)

    assert found is not None
    assert 0.99 < found < 1.01


def test_what_does_not_grow_has_no_slope() -> None:
    """One point alone has no slope either."""
    assert 0 == slope_per_hour([(0, 5), (10, 5), (20, 5)])
    assert slope_per_hour([(0, 5)]) is None


def test_warming_up_does_not_count() -> None:
    """Neither do other lives."""
    samples = [sample(10), sample(700, rss_mb=81), sample(800, life=2)]

    assert [(700, 81)] == steady(samples, 1, 600)
    assert [samples[1], samples[2]] == last_of_each(samples)


def test_what_a_process_costs() -> None:
    """By the kernel's word; of one that is gone there is none."""
    found = cost(os.getpid())

    assert found is not None
    assert found.rss_mb > 5
    assert found.descriptors >= found.lasting >= 3
    assert found.threads >= 1
    assert cost(2**22 + 1) is None
