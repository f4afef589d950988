"""Five years of cron expressions in six time zones, as the parser that cronsim replaced computed them.

`tests/data/cron.json` has the number and the digest of its times for each year; for two months of one, where
it is due often. Left out are days on which a clock is changed, which tests/unit/schedule/test_cron.py has.
`python -m tests.differential.test_cron` writes the file anew with the present parser, which is right for new
expressions only.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, time, timedelta
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from handoffd.schedule.cron import FireTimes

RECORDED: Final = Path(__file__).parent.parent / "data" / "cron.json"
FIRST, YEARS, DAY = 2019, 5, timedelta(days=1)
"""Past years: no law will change their clocks."""
ZONES: Final = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Sao_Paulo",
)  # fmt: skip
EXPRESSIONS: Final = (
    "0 3 * * *", "30 2 * * *", "0 */6 * * *", "15 1-4 * * *", "0 0 29 2 *", "0 9 13 * 5", "0 9 * * 1-5",
    "30 1,2,3 * * 0", "0 0 1 */3 *", "5 4 */2 * *", "5 4 */2 * 1", "5 4 1 * */2", "59 23 31 12 *",
    "10 2-3 * 3,10,11 7", "0 0 * * sun", "45 1 * mar-nov mon", "0 12 1-7 * 1", "0 5 5-5/2 * *",
    "@Weekly",
)  # fmt: skip
OFTEN: Final = ("*/15 * * * *", "7 * * * *", "*/7 1-3 * * *", "0-30/10 8-18 * * 1-5", "0 2/3 * * *")
"""Recorded for October and November of the first year, in which most of the zones change their clocks."""


def due(cron: str, zone: str, begin: datetime, end: datetime) -> list[datetime]:
    """Return when it is due from `begin` until before `end`, on days that have 24 hours."""
    times, moment, found = FireTimes(cron, zone), begin - timedelta(seconds=1), []
    while (following := times.after(moment)) is not None and following < end:
        moment = following
        if has_24_hours(moment, ZoneInfo(zone)):
            found.append(moment)
    return found


def has_24_hours(moment: datetime, zone: ZoneInfo) -> bool:
    """Return whether the clock is not changed on the day of `moment`."""
    day = moment.astimezone(zone).date()
    first, last = (datetime.combine(one, time(), zone) for one in (day, day + DAY))
    return first.utcoffset() == last.utcoffset()


def digest(times: list[datetime]) -> str:
    """Return the number of the times, and what differs when one of them does."""
    return f"{len(times)}:{sha256(' '.join(map(datetime.isoformat, times)).encode()).hexdigest()[:10]}"


def spans(cron: str) -> list[tuple[datetime, datetime]]:
    """Return the times, each with its end, for which an expression is recorded."""
    if cron in OFTEN:
        return [(datetime(FIRST, 10, 1, tzinfo=UTC), datetime(FIRST, 12, 1, tzinfo=UTC))]
    first_days = [datetime(FIRST + past, 1, 1, tzinfo=UTC) for past in range(YEARS + 1)]
    return list(pairwise(first_days))


def record() -> None:
    """Write the recorded times."""
    found = {
        zone: {
            cron: " ".join(digest(due(cron, zone, *span)) for span in spans(cron))
            for cron in (*EXPRESSIONS, *OFTEN)
        }
        for zone in ZONES
    }
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cron", [*EXPRESSIONS, *OFTEN])
def test_five_years_are_as_they_were_recorded(cron: str, zone: str) -> None:
    """To the minute, and in order; this names the year that differs."""
    recorded = json.loads(RECORDED.read_text())[zone][cron].split()

    for (begin, end), expected in zip(spans(cron), recorded, strict=True):
        found = due(cron, zone, begin, end)

        assert (begin, expected) == (begin, digest(found))
        assert all(earlier < later for earlier, later in pairwise(found))


if __name__ == "__main__":
    record()
