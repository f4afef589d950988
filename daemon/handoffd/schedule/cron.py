"""When a cron expression is due; cronsim knows calendars, this module clocks that are changed.

Where the clock skips an hour, a time in it moves by as much as was skipped (02:30 becomes 03:30). Where an
hour comes twice, an expression that names its hours is due in the first one only; one that is due every
hour, or every few, is due in both.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from tzlocal import get_localzone

from handoffd.settings.schedule import fields_of, wall_times

_INSTANT: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)


class FireTimes:
    """The times at which an expression is due. `timezone` None: the machine's.

    All times know their zone; results are in UTC.
    """

    def __init__(self, cron: str, timezone: str | None = None) -> None:
        self._cron = cron
        self._every_hour = fields_of(cron)[1].startswith("*")
        self.zone: tzinfo = get_localzone() if timezone is None else ZoneInfo(timezone)
        """The zone of the expression."""

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time after `moment`; None: it is not due within 50 years."""
        return self._nearest(moment, back=False)

    def latest(self, after: datetime, until: datetime) -> datetime | None:
        """Return the last time later than `after` and not later than `until`; None: there is none."""
        found = self._nearest(until + _INSTANT, back=True)
        return None if found is None or found <= after else found

    def _nearest(self, moment: datetime, *, back: bool) -> datetime | None:
        """Return the first time after `moment`, or the last one before it.

        At a change of the clock, times are not in the order of what the clock shows. So it looks on until no
        other can be nearer.
        """
        near, far = (max, min) if back else (min, max)
        found: datetime | None = None
        wall = moment.astimezone(self.zone).replace(tzinfo=None)
        utc = moment.astimezone(UTC).replace(tzinfo=None)
        for due in wall_times(self._cron, utc + near(self._offsets(wall)), back=back):
            limit = due.replace(tzinfo=UTC) - far(self._offsets(due))
            if found is not None and (limit <= found if back else limit >= found):
                break
            beyond = [one for one in self._meant(due) if (one < moment if back else one > moment)]
            found = near([*beyond, *([] if found is None else [found])], default=None)
        return found

    def _offsets(self, wall: datetime) -> list[timedelta]:
        """Return what the clock differs from UTC on the days before and after it shows `wall`."""
        days = (wall - _DAY, wall + _DAY)
        return [day.replace(tzinfo=self.zone).utcoffset() or timedelta() for day in days]

    def _meant(self, wall: datetime) -> list[datetime]:
        """Return when it is due for what the clock shows; a skipped time is as long after the one before."""
        first, second = (wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        return [first, second] if self._every_hour and first < second else [first]
