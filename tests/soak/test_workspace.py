"""The workspace that is soaked."""

from __future__ import annotations

from tests.soak.campaign import plan
from tests.soak.workspace import kinds, quantile, unit_environment


def test_no_project_waits_for_a_time_limit() -> None:
    """Those would spend the hour waiting; half of the others have tests."""
    found = list(kinds(100))

    assert 100 == len(set(found))
    assert not any(kind % 3 == 0 or kind % 4 == 3 for kind in found)
    assert 30 < sum(kind % 2 for kind in found) < 70


def test_a_plan_has_one_long_life_and_all_its_restarts() -> None:
    """The restarts follow the long life, while stories still begin, and none after the end."""
    found = plan(60, 30)

    assert 30 == len(found.restarts_s)
    assert (2520, 3420) == (found.restarts_s[0], found.restarts_s[-1])
    assert found.begin_s == 3420


def test_the_daemon_has_what_its_unit_sets() -> None:
    """Its memory is that of a service."""
    assert {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"} == unit_environment()


def test_a_quantile_of_what_was_counted() -> None:
    """The upper bound of its bucket."""
    buckets = {0.01: 50.0, 0.1: 98.0, float("inf"): 100.0}

    assert (0.01, float("inf")) == (quantile(buckets, 0.5), quantile(buckets, 0.99))
    assert quantile({}, 0.5) is None
