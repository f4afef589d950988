"""When a usage limit is over, read out of what an agent said about it.

Agents say it in many ways: a time of day with or without a zone, a weekday, a date, seconds since 1970,
"in 3 hours 5 minutes". Patterns of an executor's definition cut that out of the text (`reset` for a moment,
`wait` for how long); this reads what they cut out. What cannot be read is no moment, never a guess: the
caller then tries again after pauses of its own.

A time of day names a moment every day. Agents leave out the day when it is near, and their message is read
some time after they wrote it, so the moment may have passed: that limit is over. Taken for tomorrow's, it
would keep an account idle for a day.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_MILLISECONDS_FROM = 10**11
"""Read as seconds, such a number would lie in the year 5138."""

OVER_FOR = timedelta(hours=12)
"""A time of day that passed no longer ago than this has passed; else the next one is meant."""

_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(
    r"(\d{1,9}(?:\.\d{1,9})?)\s*(milliseconds?|ms|weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])",
    re.IGNORECASE,
)
_SECONDS = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*")
_SINCE = re.compile(r"\s*(\d{10,13})\s*")
_TIME = re.compile(r"\b(\d{1,2})(?::(\d{2}))?(?::\d{2})?\s*([ap])\.?m\b|\b(\d{1,2}):(\d{2})\b", re.IGNORECASE)
_DATE = re.compile(
    r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+(\d{1,2})(?:st|nd|rd|th)?\b(?:,?\s+(\d{4})\b)?",
    re.IGNORECASE,
)
_WEEKDAY = re.compile(
    r"\b(mon(?:day)?|tue(?:s|sday)?|wed(?:nesday)?|thu(?:r|rs|rsday)?|fri(?:day)?|sat(?:urday)?|sun(?:day)?)\b",
    re.IGNORECASE,
)
_NEXT_TO = re.compile(r"\b(today|tonight|tomorrow)\b", re.IGNORECASE)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ZONE = re.compile(
    r"\b(?:UTC|GMT)(?:([+-])(\d{1,2})(?::?(\d{2}))?)?\b|\(([A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*)\)"
)


def after(text: str, now: datetime) -> datetime | None:
    """Return `now` and a duration like `3 days 4 hours`, `1h2m3.5s` or `20` (seconds); None if it is none."""
    bare = _SECONDS.fullmatch(text)
    seconds = float(bare[1]) if bare else sum(_seconds(*found.groups()) for found in _DURATION.finditer(text))
    if not bare and not _DURATION.search(text):
        return None
    return _moment(now, seconds)


def at(text: str, now: datetime, local: tzinfo = UTC) -> datetime | None:
    """Return the moment that `text` names, which may be past.

    `text` is a time of day (`3pm`, `15:05`), perhaps with a weekday, a date and a zone (`UTC+2`, or a name in
    brackets), an ISO 8601 time, or (milli)seconds since 1970. Without a zone it is meant in `local`; without
    a date, `today` or `tomorrow`, on the day that brings it nearest to `now`, but at most 12 hours before it;
    without a year, in the nearest one. None if it is none of these.
    """
    return _since_1970(text) or _iso(text, local) or _by_clock(text, now.astimezone(_zone(text) or local))


def _seconds(number: str, unit: str) -> float:
    unit = unit.lower()
    short = "ms" if unit.startswith(("ms", "milli")) else unit[0]
    return float(number) * _UNITS_S[short]


def _moment(base: datetime, seconds: float) -> datetime | None:
    try:
        return base.astimezone(UTC) + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _since_1970(text: str) -> datetime | None:
    found = _SINCE.fullmatch(text)
    if found is None:
        return None
    number = int(found[1])
    seconds = number / 1000 if number >= _MILLISECONDS_FROM else number
    return datetime.fromtimestamp(seconds, UTC)


def _iso(text: str, local: tzinfo) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=local)).astimezone(UTC)


def _zone(text: str) -> tzinfo | None:
    found = _ZONE.search(text)
    if found is None:
        return None
    sign, hours, minutes, name = found.groups()
    try:
        if name is not None:
            return ZoneInfo(name)
        ahead = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        return timezone(-ahead if sign == "-" else ahead)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _by_clock(text: str, now: datetime) -> datetime | None:
    """Return the moment that a time of day, a date or both name by the clock of the zone of `now`."""
    found, weekday, dated = _TIME.search(text), _WEEKDAY.search(text), _DATE.search(text)
    near = _NEXT_TO.search(text)
    tomorrow = near is not None and near[1].lower() == "tomorrow"
    try:
        clock = _clock(found) if found else time() if weekday or dated or tomorrow else None
        if clock is None:
            return None
        said = [now.date() + timedelta(days=tomorrow)] if near else None
        days = _dates(dated, now) if dated else said or _near_days(weekday, now)
        moments = [moment for day in days for moment in _moments(day, clock, now.tzinfo)]
    except (ValueError, OverflowError):
        return None
    return _meant(moments, now, None if dated or near else OVER_FOR)


def _clock(found: re.Match[str]) -> time | None:
    hour, minute, half, hour24, minute24 = found.groups()
    if half is None:
        return time(int(hour24), int(minute24))
    if not 1 <= int(hour) <= 12:
        return None
    return time(int(hour) % 12 + (12 if half.lower() == "p" else 0), int(minute or 0))


def _near_days(named: re.Match[str] | None, now: datetime) -> Iterator[date]:
    """Yield the days on which a time of day may be meant: yesterday to tomorrow, or those of that weekday."""
    far = 1 if named is None else 7
    for days in range(-far, far + 1):
        day = now.date() + timedelta(days=days)
        if named is None or day.weekday() == _DAYS.index(named[1].lower()[:3]):
            yield day


def _dates(named: re.Match[str], now: datetime) -> Iterator[date]:
    """Yield the days of that date: of the year that is named, else of this one and those beside it."""
    month, day = _MONTHS.index(named[1].lower()[:3]) + 1, int(named[2])
    years = [int(named[3])] if named[3] else range(now.year - 1, now.year + 2)
    for year in years:
        try:
            yield date(year, month, day)
        except ValueError:  # 29 February
            continue


def _moments(day: date, clock: time, zone: tzinfo | None) -> Iterator[datetime]:
    """Yield when it is `clock` on `day`: twice in the hour in which the clocks go back.

    In the hour that is left out when they go forward it is an hour later.
    """
    first, second = (datetime.combine(day, clock.replace(fold=fold), zone).astimezone(UTC) for fold in (0, 1))
    yield first
    if second > first:
        yield second


def _meant(moments: Iterable[datetime], now: datetime, over_for: timedelta | None) -> datetime | None:
    """Return the moment nearest to `now`; with `over_for`, of those that passed no longer ago than that."""
    possible = [moment for moment in moments if over_for is None or now - moment <= over_for]
    return min(possible, key=lambda moment: (abs(moment - now), moment), default=None)
