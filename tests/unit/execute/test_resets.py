"""When a limit is over, in the words of the agents."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.execute import ending

NOW = datetime(2026, 11, 21, 20, 30, tzinfo=UTC)
TAIPEI = timezone(timedelta(hours=8))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3 days 4 hours 5 minutes", 3 * 86400 + 4 * 3600 + 5 * 60),
        ("1h2m3.5s", 3723.5),
        ("5h4m3s", 18243),
        ("59 minutes", 3540),
        ("20", 20),
        ("43.26s", 43.26),
        ("850ms", 0.85),
        ("less than a minute", None),
        ("", None),
        ("3 moons", None),
    ],
)
def test_how_long_a_limit_lasts(text: str, seconds: float | None) -> None:
    """Added to the moment of the message."""
    expected = None if seconds is None else NOW + timedelta(seconds=seconds)
    assert expected == ending.reset_after(text, NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1763769600", "2025-11-22T00:00+00:00"),
        ("1763769600000", "2025-11-22T00:00+00:00"),
        ("2026-11-22T01:00:00Z", "2026-11-22T01:00+00:00"),
        ("2026-11-22T01:00:00", "2026-11-21T17:00+00:00"),
        ("3pm (America/New_York)", "2026-11-21T20:00+00:00"),
        ("3:45pm (UTC)", "2026-11-21T15:45+00:00"),
        ("4pm (America/New_York)", "2026-11-21T21:00+00:00"),
        ("12am (UTC)", "2026-11-22T00:00+00:00"),
        ("12:30 PM UTC", "2026-11-21T12:30+00:00"),
        ("Nov 25, 10am (Europe/London)", "2026-11-25T10:00+00:00"),
        ("Jan 2 at 9:05 AM UTC", "2027-01-02T09:05+00:00"),
        ("Feb 3rd, 2027 3:05 PM", "2027-02-03T07:05+00:00"),
        ("5:00 AM", "2026-11-21T21:00+00:00"),
        ("06:15", "2026-11-21T22:15+00:00"),
        ("Dec 1", "2026-11-30T16:00+00:00"),
        ("7am UTC", "2026-11-22T07:00+00:00"),
        ("7am UTC-4", "2026-11-21T11:00+00:00"),
        ("9:00 (GMT+05:30)", "2026-11-22T03:30+00:00"),
        ("Sat 8pm (UTC)", "2026-11-21T20:00+00:00"),
        ("Saturday 8am UTC", "2026-11-28T08:00+00:00"),
        ("Thurs, 10:00 AM (Europe/London)", "2026-11-26T10:00+00:00"),
        ("on Monday", "2026-11-22T16:00+00:00"),
        ("Monday, Nov 30, 3am UTC", "2026-11-30T03:00+00:00"),
        ("Nov 20, 3am UTC", "2026-11-20T03:00+00:00"),
        ("tomorrow at 7pm (UTC)", "2026-11-22T19:00+00:00"),
        ("Tomorrow, 7am UTC", "2026-11-22T07:00+00:00"),
        ("today 7am UTC", "2026-11-21T07:00+00:00"),
        ("tonight at 11:30 PM (UTC)", "2026-11-21T23:30+00:00"),
        ("tomorrow", "2026-11-22T16:00+00:00"),
        ("tomorrow, Nov 22, 3am UTC", "2026-11-22T03:00+00:00"),
        ("later today", None),
        ("Feb 29, 3am UTC", None),
        ("13pm", None),
        ("25:00", None),
        ("Feb 31, 3pm", None),
        ("soon", None),
    ],
)
def test_when_a_limit_is_over(text: str, expected: str | None) -> None:
    """Without a zone, in the daemon's; without a date, on the day that brings it nearest."""
    moment = None if expected is None else datetime.fromisoformat(expected)
    assert moment == ending.reset_at(text, NOW, local=TAIPEI)


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("7:18 AM", "2026-11-21T07:18:27+00:00", "2026-11-21T07:18+00:00"),
        ("7:18 AM", "2026-11-21T19:18:00+00:00", "2026-11-21T07:18+00:00"),
        ("7:18 AM", "2026-11-21T19:18:01+00:00", "2026-11-22T07:18+00:00"),
        ("11:59 PM", "2026-11-22T00:00:27+00:00", "2026-11-21T23:59+00:00"),
        ("12am", "2026-11-21T23:59:59+00:00", "2026-11-22T00:00+00:00"),
        ("Dec 31, 11:59 PM", "2027-01-01T00:00:27+00:00", "2026-12-31T23:59+00:00"),
        ("Sunday 11:59 PM", "2026-11-23T00:00:27+00:00", "2026-11-22T23:59+00:00"),
        ("Feb 29, 3am", "2028-02-28T12:00:00+00:00", "2028-02-29T03:00+00:00"),
        # In New York the clocks go back at 2:00 on 1 November, and forward at 2:00 on 14 March.
        ("1:30am (America/New_York)", "2026-11-01T05:00:00+00:00", "2026-11-01T05:30+00:00"),
        ("1:30am (America/New_York)", "2026-11-01T05:30:27+00:00", "2026-11-01T05:30+00:00"),
        ("1:30am (America/New_York)", "2026-11-01T06:30:27+00:00", "2026-11-01T06:30+00:00"),
        ("2:30am (America/New_York)", "2027-03-14T06:50:00+00:00", "2027-03-14T07:30+00:00"),
        ("3am (America/New_York)", "2027-03-14T07:00:27+00:00", "2027-03-14T07:00+00:00"),
        ("2pm (America/New_York)", "2026-11-02T02:30:00+00:00", "2026-11-01T19:00+00:00"),
    ],
)
def test_a_limit_that_has_just_ended_is_over(text: str, now: str, expected: str) -> None:
    """Its message is read after the moment that it names: over midnight, a new year, a change of clocks."""
    assert datetime.fromisoformat(expected) == ending.reset_at(text, datetime.fromisoformat(now))


DAY = timedelta(days=1)
NOWS = st.timedeltas(-3000 * DAY, 3000 * DAY).map(lambda away: NOW + away)
ZONES = st.sampled_from(["UTC", "America/New_York", "Europe/London", "Asia/Taipei", "Australia/Lord_Howe"])


@given(NOWS, ZONES, st.times())
def test_a_time_of_day_is_half_a_day_away_at_most(now: datetime, zone: str, clock: time) -> None:
    """A time that has just passed is today's; a change of clocks makes the way forward longer."""
    moment = ending.reset_at(f"{clock:%H:%M} ({zone})", now)

    assert moment is not None
    assert -DAY / 2 <= moment - now <= DAY / 2 + timedelta(hours=2)


@pytest.mark.parametrize(
    ("words", "nearest", "farthest"),
    [
        ("%I:%M %p", timedelta(hours=-11.9), timedelta(hours=10)),
        ("%a %H:%M", timedelta(hours=-11.9), 6 * DAY),
        ("%b %d, %I:%M%p", -170 * DAY, 170 * DAY),
        ("%B %dth, %Y %I:%M %p", -1000 * DAY, 1000 * DAY),
    ],
)
@given(data=st.data(), now=NOWS, zone=ZONES)
def test_a_moment_is_found_by_its_words(
    words: str, nearest: timedelta, farthest: timedelta, data: st.DataObject, now: datetime, zone: str
) -> None:
    """The moment itself, or the other one of that hour when the clocks go back, if that is nearer."""
    meant = (now + data.draw(st.timedeltas(nearest, farthest))).astimezone(ZoneInfo(zone))
    minute = meant.replace(second=0, microsecond=0)
    found = ending.reset_at(f"{minute.strftime(words)} ({zone})", now)

    assert found is not None
    assert f"{minute:%F %R}" == f"{found.astimezone(minute.tzinfo):%F %R}"
    assert abs(found - now) <= abs(minute - now)


def test_an_unknown_zone_is_ignored() -> None:
    """It is text of an agent: it may name anything, also a file."""
    assert ending.reset_at("3pm (Mars/Olympus)", NOW) == ending.reset_at("3pm", NOW)
    assert ending.reset_at("3pm (../../etc/passwd)", NOW) == ending.reset_at("3pm", NOW)


@given(st.text(max_size=80) | st.text("0123456789:apmAPM msh.,JanFeb()UTC/", max_size=30))
def test_any_text_is_a_moment_or_none(text: str) -> None:
    """No output breaks its reader: numbers out of range, half a date, a zone with nothing before it."""
    for moment in (ending.reset_at(text, NOW), ending.reset_after(text, NOW)):
        assert moment is None or moment.tzinfo is not None
