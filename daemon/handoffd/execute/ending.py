"""Why a run ended (not what it handed over), and when a usage limit that ended it is over.

Exit codes and subtypes are unreliable, so the class of an end comes from the places where errors appear: the
stream's result, its error lines, and the last lines outside the stream (standard error). An agent's own words
never count, or an agent that works on a rate limiter would be parked. Words and codes are data: `ends` and
`limits` of `config/executors.yaml`. A machine-readable cause in the stream wins over all words. A refusal
comes last: an error of the provider that nothing else explains.

Agents report the end of a usage limit in many ways: a time of day with or without a zone, a weekday, a date,
seconds since 1970, "in 3 hours 5 minutes". Patterns of an executor's definition cut that out of the text
(`reset` for a moment, `wait` for a duration), and this module reads it. Text that it cannot read gives None,
never a guess: the caller then tries again after pauses of its own.

A time of day recurs every day. Agents leave out the day when it is near, and the daemon reads the message a
while after the agent wrote it, so the moment may have passed: that limit is over. Read as tomorrow's time, it
would keep an account idle for a day.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from handoffd.engine.run import End, Footprint
from handoffd.execute.base import ExitRecord
from handoffd.execute.executor import EndRule, Executor
from handoffd.execute.stream.reader import Seen, plain_lines

PLAIN_LINES = 40
"""How many of the last lines outside the stream are searched, the latest first."""

MAX_LINE_CHARS = 500
"""How much of each is searched: a regular expression may take more steps than the text is long."""

ROUNDED_OFF = timedelta(minutes=1)
"""Added to a time of day, because agents leave the seconds out."""

_CRASHES = frozenset({signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV})
_BY_A_SHELL = 128
"""Shells add this to the number of the signal that ended their child."""


class Ending(Struct, frozen=True, kw_only=True):
    """The class of an end; None: the daemon ended the run, or lost it. `retry_at`: when its limit is over."""

    end: End | None
    retry_at: datetime | None = None


class Ended(Struct, frozen=True, kw_only=True):
    """A run that is over. `last` is the end of its output, standard error included."""

    record: ExitRecord
    seen: Seen
    last: bytes


def ending_of(executor: Executor, ended: Ended, now: datetime, local: tzinfo) -> Ending:
    """Return the class of a run's end; `local` is the zone for times of day without one.

    A run that the daemon ended has a class only if the last thing it met was a limit or an overload: it may
    have spent its time on retries.
    """
    by, met = ended.record.by, ended.seen.limit
    if by == "lost" or (by != "itself" and met is None):
        return Ending(end=None)
    if by == "itself":
        end: End | None = _class_of(executor, ended)
    else:
        end = _named(executor, ended) or _meaning(executor, met, ended)
    return Ending(end=end, retry_at=_retry_at(executor, ended, now, local) if end is End.LIMIT else None)


def footprint_of(record: ExitRecord) -> Footprint | None:
    """Return the memory and tasks that a run used; None if nothing was counted or limited."""
    found = Footprint(
        memory_peak=record.memory_peak,
        memory_max=record.memory_max,
        memory_kills=record.memory_kills,
        tasks_peak=record.tasks_peak,
        tasks_max=record.tasks_max,
        tasks_refused=record.tasks_refused,
    )
    return found if found != Footprint() else None


def _class_of(executor: Executor, ended: Ended) -> End:
    if ended.record.out_of_memory:
        return End.MEMORY_LIMIT if ended.record.at_own_limit else End.OUT_OF_MEMORY
    if _is_clean(ended):
        return End.CLEAN
    texts = tuple(_errors(ended))
    meant = next(filter(None, (_meaning(executor, text, ended) for text in texts)), None)
    known = _named(executor, ended) or meant or _meaning(executor, None, ended)
    return known or (End.REFUSED if _is_refused(executor, ended, texts) else _unexplained(ended))


def _named(executor: Executor, ended: Ended) -> End | None:
    """Return the meaning of the stream's machine-readable cause; error texts may be reworded any day."""
    return next((rule.end for rule in _by_cause(executor, ended) if rule.end is not End.REFUSED), None)


def _by_cause(executor: Executor, ended: Ended) -> Iterator[EndRule]:
    cause = ended.seen.cause
    return (rule for rule in executor.ends if cause and rule.cause is not None and rule.cause.search(cause))


def _is_refused(executor: Executor, ended: Ended, texts: Iterable[str]) -> bool:
    """Return whether the provider answered with an error that nothing else explains, before any work."""
    if ended.seen.tools or ended.seen.files or ended.record.signal is not None:
        return False
    if any(rule.end is End.REFUSED for rule in _by_cause(executor, ended)):
        return True
    code = ended.record.code
    rules = [rule for rule in executor.ends if rule.end is End.REFUSED and rule.code in {None, code}]
    return any(rule.match.search(text) for text in texts for rule in rules if rule.match is not None)


def _meaning(executor: Executor, text: str | None, ended: Ended) -> End | None:
    """Return the meaning of an error, or without `text` of the exit code alone; None if it has none."""
    for rule in executor.ends:
        if rule.cause is not None or rule.end is End.REFUSED:
            continue
        by_code = rule.code is None or rule.code == ended.record.code
        by_text = rule.match is None if text is None else rule.match is not None and rule.match.search(text)
        if by_code and by_text:
            return rule.end
    limited = text is not None and any(pattern.search(text) for pattern in executor.limits)
    return End.LIMIT if limited else None


def _unexplained(ended: Ended) -> End:
    record = ended.record
    crashed = record.signal is not None or (record.code or 0) - _BY_A_SHELL in _CRASHES
    return End.CRASH if crashed and ended.seen.result is None else End.FAILED


def _is_clean(ended: Ended) -> bool:
    """Return whether neither the exit code nor the output reports an error that ended the run."""
    result = ended.seen.result
    reported = bool(ended.seen.errors) if result is None else result.is_error is True
    return ended.record.code == 0 and not reported


def _errors(ended: Ended) -> Iterator[str]:
    """Yield the texts from the places where errors appear, the most informative first."""
    seen = ended.seen
    if seen.result is not None and seen.result.error is not None:
        yield seen.result.error
    if seen.limit is not None:
        yield seen.limit
    yield from reversed(seen.errors)
    yield from (line[:MAX_LINE_CHARS] for line in reversed(plain_lines(ended.last)[-PLAIN_LINES:]))


def _retry_at(executor: Executor, ended: Ended, now: datetime, local: tzinfo) -> datetime | None:
    """Return when a limit is over: the stream's machine-readable time, else the first time in an error."""
    if ended.seen.resets_at is not None:
        try:
            return datetime.fromtimestamp(ended.seen.resets_at, UTC)
        except (ValueError, OverflowError, OSError):
            pass
    named = (
        _moment(pattern.search(text), now, local) for text in _errors(ended) for pattern in executor.limits
    )
    return next(filter(None, named), None)


def _moment(found: re.Match[str] | None, now: datetime, local: tzinfo) -> datetime | None:
    groups = found.groupdict() if found is not None else {}
    if groups.get("wait"):
        return reset_after(groups["wait"], now)
    moment = reset_at(groups["reset"], now, local) if groups.get("reset") else None
    return None if moment is None else _later(moment, ROUNDED_OFF.total_seconds())


# --- when a limit is over ----------------------------------------------------------------------------
_MILLISECONDS_FROM = 10**11
"""Larger numbers are milliseconds: as seconds they would mean the year 5138 or later."""

OVER_FOR = timedelta(hours=12)
"""A time of day that passed within this time means that moment; an earlier one means the next day's."""

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


def reset_after(text: str, now: datetime) -> datetime | None:
    """Return `now` plus a duration such as `3 days 4 hours`, `1h2m3.5s` or `20` (seconds); else None."""
    bare = _SECONDS.fullmatch(text)
    seconds = float(bare[1]) if bare else sum(_seconds(*found.groups()) for found in _DURATION.finditer(text))
    if not bare and not _DURATION.search(text):
        return None
    return _later(now, seconds)


def reset_at(text: str, now: datetime, local: tzinfo = UTC) -> datetime | None:
    """Return the moment that `text` names, which may be past; None if it names none.

    `text` is a time of day (`3pm`, `15:05`), perhaps with a weekday, a date and a zone (`UTC+2`, or a name in
    brackets), an ISO 8601 time, or (milli)seconds since 1970. Without a zone, `local` applies. Without a
    date, `today` or `tomorrow`, it is the nearest such moment, at most 12 hours before `now`. Without a year,
    it is the nearest one.
    """
    return _since_1970(text) or _iso(text, local) or _by_clock(text, now.astimezone(_zone(text) or local))


def _seconds(number: str, unit: str) -> float:
    unit = unit.lower()
    short = "ms" if unit.startswith(("ms", "milli")) else unit[0]
    return float(number) * _UNITS_S[short]


def _later(base: datetime, seconds: float) -> datetime | None:
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
        return (moment if moment.tzinfo else moment.replace(tzinfo=local)).astimezone(UTC)
    except (ValueError, OverflowError):  # it may be before the year 1, or after 9999, in UTC
        return None


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
    """Return the moment that a time of day, a date or both name, in the zone of `now`."""
    found, weekday, dated = _TIME.search(text), _WEEKDAY.search(text), _DATE.search(text)
    near = _NEXT_TO.search(text)
    tomorrow = near is not None and near[1].lower() == "tomorrow"
    try:
        clock = _clock(found) if found else time() if weekday or dated or tomorrow else None
        if clock is None:
            return None
        named = [now.date() + timedelta(days=tomorrow)] if near else None
        days = _dates(dated, now) if dated else named or _near_days(weekday, now)
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
    """Yield the days that a time of day may mean: yesterday to tomorrow, or each near day of that weekday."""
    far = 1 if named is None else 7
    for days in range(-far, far + 1):
        day = now.date() + timedelta(days=days)
        if named is None or day.weekday() == _DAYS.index(named[1].lower()[:3]):
            yield day


def _dates(named: re.Match[str], now: datetime) -> Iterator[date]:
    """Yield the date in the named year, else in last year, this year and next year."""
    month, day = _MONTHS.index(named[1].lower()[:3]) + 1, int(named[2])
    years = [int(named[3])] if named[3] else range(now.year - 1, now.year + 2)
    for year in years:
        try:
            yield date(year, month, day)
        except ValueError:  # 29 February
            continue


def _moments(day: date, clock: time, zone: tzinfo | None) -> Iterator[datetime]:
    """Yield the moments at which it is `clock` on `day`: two in the hour in which the clocks go back.

    A time in the hour that is skipped when they go forward means one hour later.
    """
    first, second = (datetime.combine(day, clock.replace(fold=fold), zone).astimezone(UTC) for fold in (0, 1))
    yield first
    if second > first:
        yield second


def _meant(moments: Iterable[datetime], now: datetime, over_for: timedelta | None) -> datetime | None:
    """Return the moment nearest to `now`; with `over_for`, ignore moments further in the past than that."""
    possible = [moment for moment in moments if over_for is None or now - moment <= over_for]
    return min(possible, key=lambda moment: (abs(moment - now), moment), default=None)
