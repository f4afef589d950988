"""When a cron expression is due; APScheduler knows calendars and time zones.

Where the clock skips an hour, a time in it moves by as much as was skipped (02:30 becomes 03:30). Where an
hour comes twice, an expression that names its hours is due in the first one only; one that is due every
hour, or every few, is due in both.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from handoffd.settings.schedule import Crontab, parse

_INSTANT: Final = timedelta(microseconds=1)
_FIRST_LOOK: Final = timedelta(minutes=2)
_WIDER: Final = 8
"""Each look back goes this many times as far as the one before."""


class FireTimes:
    """The times at which an expression is due. `timezone` None: the machine's.

    All times know their zone; results are in UTC.
    """

    def __init__(self, cron: str, timezone: str | None = None) -> None:
        self._crontab = parse(cron)
        zone = None if timezone is None else ZoneInfo(timezone)
        self._triggers = tuple(CronTrigger(**fields, timezone=zone) for fields in _triggers(self._crontab))
        self.zone: tzinfo = self._triggers[0].timezone
        """The zone of the expression."""

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time after `moment`; None: no calendar has such a day."""
        times = [found for trigger in self._triggers if (found := self._next(trigger, moment)) is not None]
        return min(times, default=None)

    def _next(self, trigger: CronTrigger, moment: datetime) -> datetime | None:
        while True:
            found: datetime | None = trigger.get_next_fire_time(
                None, (moment + _INSTANT).astimezone(self.zone)
            )
            if found is None:
                return None
            moment = found.astimezone(UTC)
            if not found.fold or self._crontab.every_hour:
                return moment

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """Return the last time later than `after` and not later than `until`; None: there is none.

        A time near `until` is found quickly, however long ago `after` is.
        """
        window = _FIRST_LOOK
        while True:
            begin = max(after, until - window)
            if (found := self._last_between(begin, until)) is not None:
                return found
            if begin <= after:
                return None
            window *= _WIDER

    def _last_between(self, after: datetime, until: datetime) -> datetime | None:
        last, found = None, self.after(after)
        while found is not None and found <= until:
            last, found = found, self.after(found)
        return last


def _triggers(crontab: Crontab) -> list[dict[str, str]]:
    """Return the fields for one trigger, or for two: of two restricted fields, a day may be in either."""
    fields = {
        "second": "0", "minute": _listed(crontab.minutes), "hour": _listed(crontab.hours),
        "month": _listed(crontab.months),
    }  # fmt: skip
    of_days = {} if crontab.days is None else {"day": _listed(crontab.days)}
    # APScheduler's week begins on Monday with 0, cron's on Sunday.
    week = tuple(sorted((day - 1) % 7 for day in crontab.weekdays or ()))
    of_weeks = {"day_of_week": _listed(week)} if week else {}
    if crontab.in_both:
        return [{**fields, **of_days, **of_weeks}]
    return [{**fields, **of_days}, {**fields, **of_weeks}]


def _listed(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
