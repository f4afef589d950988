"""When what is held back is told: quiet hours and digests, as functions of the settings and the time.

A time of the day means what the clock on the wall of that zone shows, also on the days on which it is
put forward or back; lengths are true ones, between two instants.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo

from handoffd.settings_notify import DigestSettings, NotifySettings, QuietSettings, SinkSettings

Reason = Literal["quiet", "digest", "burst"]
"""Why a notice is held back."""

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = timedelta(days=1)
_LONGEST_QUIET_DAYS = 8
_SLACK = timedelta(hours=2)
"""By so much a day may be longer than 24 h when clocks are changed, and some."""


def quiet_until(quiet: QuietSettings | None, now: datetime) -> datetime | None:
    """Return when the quiet hours end that are now; None when there are none now."""
    if quiet is None:
        return None
    until = _window_end(quiet, now)
    for _ in range(_LONGEST_QUIET_DAYS):  # one that begins when another ends goes on
        longer = None if until is None else _window_end(quiet, until)
        if longer is None:
            break
        until = longer
    return until


def _window_end(quiet: QuietSettings, now: datetime) -> datetime | None:
    zone = _zone(quiet.timezone)
    start, end = time.fromisoformat(quiet.start), time.fromisoformat(quiet.end)
    today = now.astimezone(zone).date()
    for day in (today - _DAY, today):
        if quiet.days is not None and _DAYS[day.weekday()] not in quiet.days:
            continue
        last = day if end > start else day + _DAY
        if _instant(day, start, zone) <= now < (over := _instant(last, end, zone)):
            return over
    return None


def digest_at(digest: DigestSettings, since: datetime) -> datetime:
    """Return when that is told which is collected since then."""
    if digest.every_h is not None:
        return since + timedelta(hours=digest.every_h)
    assert digest.at is not None  # checked with the settings
    zone, at = _zone(digest.timezone), time.fromisoformat(digest.at)
    day = since.astimezone(zone).date()
    moments = (_instant(day + _DAY * ahead, at, zone) for ahead in range(3))
    return next(moment for moment in moments if moment > since)


def release_at(
    reason: Reason, sink: SinkSettings, settings: NotifySettings, since: datetime, now: datetime
) -> datetime:
    """Return when that is told to a sink which has been held back since then; `now` when it is due.

    A `since` that is later than `now` counts as now: the clock was put back. What no setting holds back
    any more is due.
    """
    since = min(since, now)
    moment = now
    if reason == "burst":
        moment = since + timedelta(seconds=settings.burst.within_s)
    elif reason == "digest" and settings.digest is not None and sink.digest:
        moment = digest_at(settings.digest, since)
    if sink.quiet and (until := quiet_until(settings.quiet, max(moment, now))) is not None:
        moment = until
    return max(moment, now)


def is_stale(moment: datetime, now: datetime, settings: NotifySettings) -> bool:
    """Return whether a moment is further ahead than any can be: the clock was put back meanwhile."""
    every_h = settings.digest.every_h if settings.digest is not None else None
    longest = timedelta(hours=every_h or 0, days=_LONGEST_QUIET_DAYS) + _SLACK
    return moment - now > longest


def _zone(name: str | None) -> tzinfo | None:
    """Return a zone by its name; None for the machine's."""
    return None if name is None else ZoneInfo(name)


def _instant(day: date, at: time, zone: tzinfo | None) -> datetime:
    """Return when a clock shows `at` on a day, the first time if it does twice."""
    naive = datetime.combine(day, at)
    there = naive.astimezone() if zone is None else naive.replace(tzinfo=zone)
    return there.astimezone(UTC)
