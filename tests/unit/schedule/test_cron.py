"""When cron expressions are due: calendars, zones, and the two odd hours of a year."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoffd.schedule.cron import FireTimes

BERLIN = "Europe/Berlin"
"""Skips 02:00 to 03:00 on 2026-03-29, has it twice on 2026-10-25."""


def at(text: str) -> datetime:
    """Return a time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def following(cron: str, after: str, count: int, timezone: str = "UTC") -> list[str]:
    """Return the next times in UTC."""
    times, moment, found = FireTimes(cron, timezone), at(after), []
    for _ in range(count):
        due = times.after(moment)
        assert due is not None
        assert UTC is due.tzinfo
        moment = due
        found.append(f"{due:%m-%d %H:%M}")
    return found


def test_a_time_that_is_due_is_not_due_again() -> None:
    """Later means later; a second before, it is due."""
    assert ["01-02 03:00"] == following("0 3 * * *", "2026-01-01T03:00:00", 1)
    assert ["01-01 03:00"] == following("0 3 * * *", "2026-01-01T02:59:59.999999", 1)


def test_weekdays_count_from_sunday() -> None:
    """2026-01-04 is one."""
    assert ["01-04 00:00", "01-11 00:00"] == following("0 0 * * 0", "2026-01-01T00:00:00", 2)
    assert ["01-02 00:00", "01-05 00:00"] == following("0 0 * * 1-5", "2026-01-01T12:00:00", 2)


def test_a_day_in_either_of_two_restricted_fields_is_meant() -> None:
    """The 13th, and every Friday; as cron has it."""
    assert ["02-06 00:00", "02-13 00:00", "02-20 00:00", "02-27 00:00", "03-06 00:00", "03-13 00:00"] == (
        following("0 0 13 * 5", "2026-02-01T00:00:00", 6)
    )
    assert ["01-09 00:00", "01-13 00:00"] == following("0 0 13 * 5", "2026-01-08T00:00:00", 2)


def test_where_a_day_field_begins_with_a_star_both_count() -> None:
    """Mondays that are odd days of a month, and the first of a month if it is an even day of the week."""
    assert ["01-05 00:00", "01-19 00:00", "02-09 00:00"] == following("0 0 */2 * 1", "2026-01-01T12:00:00", 3)
    assert ["02-01 00:00", "03-01 00:00"] == following("0 0 1 * */2", "2026-01-01T12:00:00", 2)


def test_a_leap_day_is_waited_for() -> None:
    """For years."""
    assert at("2028-02-29T00:00:00") == FireTimes("0 0 29 2 *", "UTC").after(at("2026-03-01T00:00:00"))


def test_what_was_due_in_a_skipped_hour_comes_once_and_later() -> None:
    """02:30 is 03:30 on that day; the day before and the day after it is 02:30."""
    assert ["03-28 01:30", "03-29 01:30", "03-30 00:30"] == following(
        "30 2 * * *", "2026-03-27T12:00:00", 3, BERLIN
    )


def test_every_so_many_minutes_passes_over_a_skipped_hour() -> None:
    """Not one time is lost or doubled in it."""
    assert ["03-29 00:40", "03-29 01:00", "03-29 01:20"] == following(
        "*/20 * * * *", "2026-03-29T00:30:00", 3, BERLIN
    )


def test_what_names_its_hour_is_due_once_in_an_hour_that_comes_twice() -> None:
    """In the first one."""
    assert ["10-25 00:30", "10-26 01:30"] == following("30 2 * * *", "2026-10-24T12:00:00", 2, BERLIN)
    assert ["10-25 00:00", "10-25 00:20", "10-25 00:40", "10-26 01:00"] == following(
        "*/20 2 * * *", "2026-10-24T12:00:00", 4, BERLIN
    )


def test_every_so_many_minutes_goes_on_through_both() -> None:
    """An hour has passed, whatever the clock says."""
    assert ["10-25 00:30", "10-25 01:00", "10-25 01:30", "10-25 02:00"] == following(
        "*/30 * * * *", "2026-10-25T00:00:00", 4, BERLIN
    )


def test_the_zone_of_the_machine_is_taken_where_none_is_named() -> None:
    """And it is one."""
    assert FireTimes("0 3 * * *").zone is not None
    assert FireTimes("0 3 * * *").after(at("2026-01-01T00:00:00")) is not None


@pytest.mark.parametrize("cron", ["* * * * *", "0 3 * * *", "*/7 8-18 * * 1-5", "0 0 29 2 *", "30 2 * * *"])
@settings(deadline=None, max_examples=20)
@given(back_h=st.floats(0.01, 24 * 60), now=st.integers(0, 365 * 24 * 60))
def test_the_latest_time_is_the_last_of_those_that_follow(cron: str, back_h: float, now: int) -> None:
    """Found from behind, it is the same; and none is none."""
    times = FireTimes(cron, BERLIN)
    until = at("2026-01-15T00:00:30") + timedelta(minutes=now)
    after = until - timedelta(hours=back_h)

    latest = times.latest(after, until)

    if latest is None:
        first = times.after(after)
        assert first is None or first > until
    else:
        assert after < latest <= until
        beyond = times.after(latest)
        assert beyond is None or beyond > until


def test_a_long_absence_costs_no_long_look() -> None:
    """Ten years of minutes are not gone through."""
    asked = []

    class Counting(FireTimes):
        def after(self, moment: datetime) -> datetime | None:
            asked.append(moment)
            return super().after(moment)

    until = at("2026-01-15T00:00:30")
    assert at("2026-01-15T00:00:00") == Counting("* * * * *", "UTC").latest(at("2016-01-01T00:00:00"), until)
    assert len(asked) < 10
