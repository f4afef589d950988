"""Five years of cron expressions in six time zones, beside what cronsim makes of them.

Left out are the days on which a clock is changed: what was due in the hour that is skipped comes an hour
later with us (test_cron.py), and at the end of that hour with cron.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from handoffd.schedule.cron import FireTimes

BEGIN, END = datetime(2024, 1, 1, tzinfo=UTC), datetime(2029, 1, 1, tzinfo=UTC)
DAILY = timedelta(days=1)


def ours(cron: str, zone: str) -> Iterator[datetime]:
    """Yield when it is due from the beginning on."""
    times, moment = FireTimes(cron, zone), BEGIN
    while (found := times.after(moment)) is not None:
        yield (moment := found)


def theirs(cron: str, zone: str) -> Iterator[datetime]:
    """Yield when cronsim has it due from the beginning on."""
    return (found.astimezone(UTC) for found in CronSim(cron, BEGIN.astimezone(ZoneInfo(zone))))


def ordinary(times: Iterator[datetime], zone: ZoneInfo, until: datetime) -> list[datetime]:
    """Return those before `until` on days that have 24 hours."""

    def has_24_hours(moment: datetime) -> bool:
        day = moment.astimezone(zone).date()
        first, last = (datetime.combine(one, time(), zone) for one in (day, day + DAILY))
        return first.utcoffset() == last.utcoffset()

    return [moment for moment in takewhile(lambda moment: moment < until, times) if has_24_hours(moment)]


@pytest.mark.parametrize(
    "zone",
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Sao_Paulo"],
)
@pytest.mark.parametrize(
    "cron",
    [
        "0 3 * * *", "30 2 * * *", "0 */6 * * *", "15 1-4 * * *", "0 0 29 2 *", "0 9 13 * 5", "0 9 * * 1-5",
        "30 1,2,3 * * 0", "0 0 1 */3 *", "5 4 */2 * *", "5 4 */2 * 1", "5 4 1 * */2", "59 23 31 12 *",
        "10 2-3 * 3,10,11 7", "0 0 * * sun", "45 1 * mar-nov mon", "0 12 1-7 * 1", "0 2/3 * * *",
    ],
)  # fmt: skip
def test_five_years_are_those_of_cron(cron: str, zone: str) -> None:
    """To the minute, and in order."""
    found = ordinary(ours(cron, zone), ZoneInfo(zone), END)

    assert ordinary(theirs(cron, zone), ZoneInfo(zone), END) == found
    assert all(earlier < later for earlier, later in pairwise(found))


@pytest.mark.parametrize("cron", ["*/15 * * * *", "7 * * * *", "*/7 1-3 * * *", "0-30/10 8-18 * * 1-5"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
def test_what_is_due_often_is_so_for_half_a_year(cron: str, zone: str) -> None:
    """Over both changes of the clock."""
    until = BEGIN + 320 * DAILY

    assert ordinary(theirs(cron, zone), ZoneInfo(zone), until) == ordinary(
        ours(cron, zone), ZoneInfo(zone), until
    )
