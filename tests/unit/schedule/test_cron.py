"""When cron expressions are due: calendars, zones, and the two odd hours of a year."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoffd.schedule.cron import FireTimes
from handoffd.settings.schedule import wall_times

SECOND = timedelta(seconds=1)
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


@pytest.mark.parametrize(
    ("cron", "after", "times"),
    [
        # Later means later; a moment before, it is due.
        ("0 3 * * *", "2026-01-01T03:00:00", ["01-02 03:00"]),
        ("0 3 * * *", "2026-01-01T02:59:59.999999", ["01-01 03:00"]),
        # Weekdays count from Sunday, which 2026-01-04 is.
        ("0 0 * * 0", "2026-01-01T00:00:00", ["01-04 00:00", "01-11 00:00"]),
        ("0 0 * * 1-5", "2026-01-01T12:00:00", ["01-02 00:00", "01-05 00:00"]),
        # Of two restricted day fields either counts: the 13th, and every Friday.
        (
            "0 0 13 * 5",
            "2026-02-01T00:00:00",
            ["02-06 00:00", "02-13 00:00", "02-20 00:00", "02-27 00:00", "03-06 00:00", "03-13 00:00"],
        ),
        ("0 0 13 * 5", "2026-01-08T00:00:00", ["01-09 00:00", "01-13 00:00"]),
        # Where one begins with a star both count: odd days that are Mondays, firsts on even days of the week.
        ("0 0 */2 * 1", "2026-01-01T12:00:00", ["01-05 00:00", "01-19 00:00", "02-09 00:00"]),
        ("0 0 1 * */2", "2026-01-01T12:00:00", ["02-01 00:00", "03-01 00:00"]),
    ],
)
def test_an_expression_is_read_as_cron_does(cron: str, after: str, times: list[str]) -> None:
    """The next times follow in order, each once."""
    assert times == following(cron, after, len(times))


def test_a_leap_day_may_be_years_away() -> None:
    """It is found all the same."""
    assert at("2028-02-29T00:00:00") == FireTimes("0 0 29 2 *", "UTC").after(at("2026-03-01T00:00:00"))


@pytest.mark.parametrize(
    ("cron", "after", "times"),
    [
        # 02:30 does not exist on 29 March: it becomes 03:30. Every 20 minutes loses and doubles nothing.
        ("30 2 * * *", "2026-03-27T12:00:00", ["03-28 01:30", "03-29 01:30", "03-30 00:30"]),
        ("*/20 * * * *", "2026-03-29T00:30:00", ["03-29 00:40", "03-29 01:00", "03-29 01:20"]),
        # 02:30 comes twice on 25 October: an expression that names the hour means the first one only.
        ("30 2 * * *", "2026-10-24T12:00:00", ["10-25 00:30", "10-26 01:30"]),
        ("*/20 2 * * *", "2026-10-24T12:00:00", ["10-25 00:00", "10-25 00:20", "10-25 00:40", "10-26 01:00"]),
        ("*/30 * * * *", "2026-10-25T00:00:00", ["10-25 00:30", "10-25 01:00", "10-25 01:30", "10-25 02:00"]),
    ],
)
def test_a_change_of_clocks_loses_and_repeats_nothing(cron: str, after: str, times: list[str]) -> None:
    """In Berlin."""
    assert times == following(cron, after, len(times), BERLIN)


def test_without_a_zone_the_machines_is_used() -> None:
    """Whichever it is."""
    assert FireTimes("0 3 * * *").zone is not None
    assert FireTimes("0 3 * * *").after(at("2026-01-01T00:00:00")) is not None


CHANGES = [
    (BERLIN, "2026-03-28T22:00:00"), (BERLIN, "2026-10-24T22:00:00"),
    # Half an hour is skipped, and comes twice.
    ("Australia/Lord_Howe", "2026-10-03T12:00:00"), ("Australia/Lord_Howe", "2026-04-04T12:00:00"),
]  # fmt: skip


@pytest.mark.parametrize(("zone", "begin"), CHANGES)
@pytest.mark.parametrize(
    "cron",
    [
        "30 2 * * *", "10,35 2 * * *", "10,35 * * * *", "*/20 2 * * *", "*/7 1-3 * * *", "30 */2 * * *",
        "15 1-4 * * *", "0 3 * * *", "@hourly",
    ],
)  # fmt: skip
def test_around_a_change_of_clocks_each_start_is_found_from_both_sides(
    cron: str, zone: str, begin: str
) -> None:
    """Whatever the moment: a skipped time later by as much, one that comes twice by the field of the hour."""
    times, moment = FireTimes(cron, zone), at(begin)
    shown = takewhile(
        lambda wall: wall < datetime.fromisoformat(begin) + timedelta(days=3),
        wall_times(cron, datetime.fromisoformat(begin) - timedelta(days=1)),
    )
    folds = (0, 1) if cron.startswith("@") or cron.split()[1].startswith("*") else (0,)
    due = set()
    for wall in shown:
        local = [wall.replace(tzinfo=ZoneInfo(zone), fold=fold) for fold in folds]
        real = [one for one in local if one == one.astimezone(UTC).astimezone(one.tzinfo)]
        due |= {one.astimezone(UTC) for one in real or local[:1]}

    for minute in range(0, 20 * 60, 7):
        moment = at(begin) + timedelta(minutes=minute, seconds=1)
        assert min(one for one in due if one > moment) == times.after(moment)
        assert max(one for one in due if one <= moment) == times.latest(moment - timedelta(days=9), moment)


@pytest.mark.parametrize("cron", ["* * * * *", "0 3 * * *", "*/7 8-18 * * 1-5", "0 0 29 2 *", "30 2 * * *"])
@settings(max_examples=20)
@given(back_h=st.floats(0.01, 24 * 60), now=st.integers(0, 365 * 24 * 60))
def test_the_latest_time_is_the_last_one_that_follows(cron: str, back_h: float, now: int) -> None:
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


def test_a_long_absence_has_a_latest_time() -> None:
    """The one before now, whose second counts."""
    until, last = at("2026-01-15T00:00:00.5"), at("2026-01-15T00:00:00")
    times = FireTimes("* * * * *", "UTC")
    assert last == times.latest(at("2016-01-01T00:00:00"), until) == times.latest(last - SECOND, last)
    assert times.latest(last, until) is None


def test_a_leap_day_on_a_weekday_may_be_forty_years_away() -> None:
    """Between two on a Sunday is 2100, which has none."""
    times, late = FireTimes("0 0 29 2 */7", "UTC"), at("2128-02-29T00:00:00")
    assert late == times.after(at("2088-02-29T00:00:00"))
    assert at("2088-02-29T00:00:00") == times.latest(at("2080-01-01T00:00:00"), late - SECOND)
