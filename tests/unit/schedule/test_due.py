"""What is to be done about a schedule: a function of times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.schedule.cron import FireTimes
from handoffd.schedule.plan import ON_TIME, Due, Lateness, Missed, due, jitter

DAILY = FireTimes("0 3 * * *", "UTC").latest
THREE = datetime(2026, 1, 10, 3, tzinfo=UTC)
NONE = Lateness(catch_up=False, at_most=timedelta(hours=24))
ONE = Lateness(catch_up=True, at_most=timedelta(hours=24))
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def test_nothing_is_due_before_its_time() -> None:
    """Nor again after it was dealt with."""
    assert due(DAILY, THREE - DAY, THREE - timedelta(seconds=1), ONE) is None
    assert due(DAILY, THREE, THREE + HOUR, ONE) is None


@pytest.mark.parametrize("late", [timedelta(0), timedelta(seconds=1), ON_TIME])
def test_what_is_a_little_late_is_on_time(late: timedelta) -> None:
    """Whatever is to become of what is missed."""
    for lateness in (NONE, ONE):
        assert Due(at=THREE, late=False) == due(DAILY, THREE - DAY, THREE + late, lateness)


def test_what_was_missed_is_made_up_for_or_given_up() -> None:
    """As long as it is worth it."""
    assert Missed(at=THREE) == due(DAILY, THREE - DAY, THREE + HOUR, NONE)
    assert Due(at=THREE, late=True) == due(DAILY, THREE - DAY, THREE + HOUR, ONE)
    short = Lateness(catch_up=True, at_most=timedelta(minutes=30))
    assert Missed(at=THREE) == due(DAILY, THREE - DAY, THREE + HOUR, short)


def test_of_many_missed_times_the_last_counts() -> None:
    """A week away is one start, and then none until it is due again."""
    found = due(DAILY, THREE - 7 * DAY, THREE + HOUR, ONE)
    assert Due(at=THREE, late=True) == found
    assert due(DAILY, THREE, THREE + 2 * HOUR, ONE) is None


def test_a_clock_that_is_set_back_repeats_nothing() -> None:
    """What was dealt with was, whatever the clock says afterwards."""
    assert due(DAILY, THREE, THREE - 5 * HOUR, ONE) is None
    assert due(DAILY, THREE, THREE + timedelta(seconds=5), ONE) is None
    assert Due(at=THREE + DAY, late=False) == due(DAILY, THREE, THREE + DAY, ONE)


def test_jitter_is_no_lateness() -> None:
    """It is put on top of the time it is due."""
    later = Lateness(catch_up=False, at_most=DAY, jitter=timedelta(minutes=10))
    assert due(DAILY, THREE - DAY, THREE + timedelta(minutes=9), later) is None
    assert Due(at=THREE, late=False) == due(DAILY, THREE - DAY, THREE + timedelta(minutes=10), later)
    assert Missed(at=THREE) == due(DAILY, THREE - DAY, THREE + timedelta(minutes=12), later)


@given(st.text(max_size=20), st.floats(0, 3600))
def test_jitter_is_the_same_for_the_same_within_its_limit(key: str, most_s: float) -> None:
    """A restart does not move a start."""
    found = jitter(key, most_s)
    assert found == jitter(key, most_s)
    assert timedelta(0) <= found <= timedelta(seconds=most_s + 0.001)


def test_jitter_spreads() -> None:
    """That is what it is for."""
    assert len({jitter(f"/srv/{number}", 3600) for number in range(100)}) > 90


@given(st.lists(st.integers(1, 60 * 30), min_size=1, max_size=20), st.booleans())
def test_whatever_looks_when_each_time_is_dealt_with_once(pauses_min: list[int], catch_up: bool) -> None:
    """Looking after pauses of any length: no time twice, the last one always, in order."""
    lateness = Lateness(catch_up=catch_up, at_most=timedelta(days=365))
    now = handled = THREE - HOUR
    dealt = []
    for pause in pauses_min:
        now += timedelta(minutes=pause)
        found = due(DAILY, handled, now, lateness)
        if found is not None:
            dealt.append(found.at)
            handled = found.at
        assert DAILY(handled, now) is None
    assert sorted(set(dealt)) == dealt
