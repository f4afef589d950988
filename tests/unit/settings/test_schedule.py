"""Entries of `schedule` in the settings, and their cron expressions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple
from pydantic import ValidationError

from handoffd.settings.schedule import ScheduledStart, SharedStart, expanded, must_differ, parse

SUNDAY = datetime(2027, 1, 3, 3, 5)  # noqa: DTZ001  (only its digits count)


def entry(**changes: Any) -> ScheduledStart:
    """Return an entry with `changes`."""
    return ScheduledStart(**{"name": "nightly", "cron": "0 3 * * *", "start": "REVIEW-{date}", **changes})


def test_the_time_it_is_due_is_filled_into_the_story() -> None:
    """Date, time, and the ISO week, also into the label of a custom task."""
    assert "a-2027-01-03-0305-2026-W53" == expanded("{name}-{date}-{time}-{week}", "a", SUNDAY)
    assert "REVIEW-2027-01-03" == entry().story(SUNDAY)
    assert "nightly-2027-01-03-0305" == entry(start=None, custom="Look.").story(SUNDAY)
    assert "LOOK-2026-W53" == entry(start=None, custom="Look.", label="LOOK-{week}").story(SUNDAY)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "../x"}, "must be 1 to 32 of"),
        ({"name": "x" * 33}, "must be 1 to 32 of"),
        ({"cron": "x"}, "must be five fields"),
        ({"timezone": "Mars/Olympus"}, "must be a time zone such as"),
        ({"timezone": "/etc/passwd"}, "must be a time zone such as"),
        ({"start": "a b"}, "must be the id of a story"),
        ({"start": "{story}"}, "must be the id of a story"),
        ({"start": "x" * 60 + "{date}"}, "must be the id of a story"),
        ({"custom": "Both."}, "and not both"),
        ({"start": None}, "must have `start`"),
        ({"catch_up_h": 0}, "greater than 0"),
        ({"jitter_s": 3601}, "less than or equal to 3600"),
        ({"overlap": "never"}, "'skip' or 'queue'"),
        ({"projects": ["*"]}, "Extra inputs"),
    ],
)
def test_an_invalid_entry_is_refused(changes: dict[str, Any], said: str) -> None:
    """The error names what is allowed."""
    with pytest.raises(ValidationError) as caught:
        entry(**changes)
    assert said in str(caught.value)


def test_executors_are_a_list_or_a_text_with_commas() -> None:
    """Commas work as on the command line."""
    assert ("claude", "codex") == entry(executor="claude, codex").executor
    assert ("claude",) == entry(executor=["claude"]).executor


def test_an_entry_of_the_daemon_needs_projects() -> None:
    """An empty list is refused."""
    with pytest.raises(ValidationError):
        SharedStart(name="a", cron="@daily", start="X", projects=())


def test_two_entries_have_two_names() -> None:
    """Their history is kept by name."""
    assert (entry(), entry(name="b")) == must_differ((entry(), entry(name="b")))
    with pytest.raises(ValueError, match="two entries are called 'nightly'"):
        must_differ((entry(), entry()))


def test_another_time_or_zone_is_another_schedule() -> None:
    """The entry starts anew; with another story it does not."""
    assert entry().fingerprint == entry(start="X").fingerprint
    assert 3 == len({one.fingerprint for one in (entry(), entry(cron="@daily"), entry(timezone="UTC"))})


def test_five_fields_are_sets_of_numbers() -> None:
    """Numbers, lists, ranges, steps and names; days that are not restricted are None."""
    every_month = tuple(range(1, 13))
    found = parse("*/20 3 * * *")
    assert ((0, 20, 40), (3,), None, every_month, None, True, False) == astuple(found)
    found = parse("5,10-12 8-18/5 1,15 JAN-mar Mon-fri")
    assert ((5, 10, 11, 12), (8, 13, 18), (1, 15), (1, 2, 3), (1, 2, 3, 4, 5)) == (
        found.minutes, found.hours, found.days, found.months, found.weekdays,
    )  # fmt: skip
    assert (50, 55) == parse("50/5 * * * *").minutes


def test_sunday_is_0_and_7() -> None:
    """As in cron, and in no scheduler library."""
    assert (0,) == parse("0 0 * * 7").weekdays == parse("0 0 * * 0").weekdays == parse("0 0 * * sun").weekdays
    assert (0, 5, 6) == parse("0 0 * * 5-7").weekdays


@pytest.mark.parametrize(("hours", "every"), [("*", True), ("*/2", True), ("3", False), ("0-23", False)])
def test_an_entry_that_runs_every_hour_is_marked(hours: str, every: bool) -> None:
    """It is due in both of two hours that the clock repeats."""
    assert every is parse(f"0 {hours} * * *").every_hour


@pytest.mark.parametrize(
    ("nickname", "meaning"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@Weekly", "0 0 * * 0"),
        (" @monthly ", "0 0 1 * *"),
    ],
)
def test_nicknames_are_understood(nickname: str, meaning: str) -> None:
    """The ones of crontab(5)."""
    assert parse(meaning) == parse(nickname)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be five fields"),
        ("* * * *", "has 4"),
        ("0 0 * * * *", "has 6"),
        ("@reboot", "or one of @hourly"),
        ("60 * * * *", "'60' is not a minute (allowed: 0 to 59)"),
        ("* 24 * * *", "'24' is not a hour (allowed: 0 to 23)"),
        ("* * 0 * *", "'0' is not a day of month (allowed: 1 to 31)"),
        ("* * * foo *", "'foo' is not a month (allowed: 1 to 12 or jan to dec)"),
        ("* * * * 8", "'8' is not a day of week (allowed: 0 to 7 or sun to sat)"),
        ("* * * * fri-mon", "runs backwards"),
        ("*/0 * * * *", "has no steps"),
        ("*-5 * * * *", "is not a minute: a number, a range"),
        ("1,,2 * * * *", "is not a minute"),
        ("-1 * * * *", "is not a minute"),
        ("٣ * * * *", "is not a minute"),
        ("0 0 31 2,4 *", "never comes: none of its months has a day 31"),
        ("0 0 31 2,4 */2", "never comes: none of its months has a day 31"),
        ("0 " + "0," * 200 + "0 * * *", "must be five fields"),
    ],
)
def test_an_invalid_expression_is_refused(text: str, said: str) -> None:
    """The error names what is allowed."""
    with pytest.raises(ValueError, match=r".") as caught:
        parse(text)
    assert said in str(caught.value)


def test_a_leap_day_comes_and_so_does_a_weekday_of_an_impossible_date() -> None:
    """The one every four years, the other on every Friday of February."""
    assert (29,) == parse("0 0 29 2 *").days
    assert (5,) == parse("0 0 31 2 5").weekdays


@given(st.text(max_size=60))
def test_any_text_is_a_cron_expression_or_an_error(text: str) -> None:
    """It never crashes the parser."""
    try:
        found = parse(text)
    except ValueError:
        return
    assert set(found.minutes) <= set(range(60))
