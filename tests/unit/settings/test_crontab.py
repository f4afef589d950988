"""Cron expressions: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoffd.settings.schedule import Crontab, parse


def test_five_fields_are_sets_of_numbers() -> None:
    """Numbers, lists, ranges, steps and names; days that are not restricted are None."""
    assert Crontab(
        minutes=(0, 20, 40),
        hours=(3,),
        days=None,
        months=tuple(range(1, 13)),
        weekdays=None,
        in_both=True,
        every_hour=False,
    ) == parse("*/20 3 * * *")
    found = parse("5,10-12 8-18/5 1,15 JAN-mar Mon-fri")
    assert ((5, 10, 11, 12), (8, 13, 18), (1, 15), (1, 2, 3), (1, 2, 3, 4, 5)) == (
        found.minutes, found.hours, found.days, found.months, found.weekdays,
    )  # fmt: skip
    assert (50, 55) == parse("50/5 * * * *").minutes


def test_sunday_is_0_and_7() -> None:
    """As cron has it, and no scheduler library."""
    assert (0,) == parse("0 0 * * 7").weekdays == parse("0 0 * * 0").weekdays == parse("0 0 * * sun").weekdays
    assert (0, 5, 6) == parse("0 0 * * 5-7").weekdays


@pytest.mark.parametrize(("hours", "every"), [("*", True), ("*/2", True), ("3", False), ("0-23", False)])
def test_whether_it_goes_on_every_hour_is_known(hours: str, every: bool) -> None:
    """It tells what becomes of an hour that comes twice."""
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
    """Those of crontab(5)."""
    assert parse(meaning) == parse(nickname)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be five fields"),
        ("* * * *", "has 4"),
        ("0 0 * * * *", "has 6"),
        ("@reboot", "or one of @hourly"),
        ("60 * * * *", "'60' is no minute (allowed: 0 to 59)"),
        ("* 24 * * *", "'24' is no hour (allowed: 0 to 23)"),
        ("* * 0 * *", "'0' is no day of month (allowed: 1 to 31)"),
        ("* * * foo *", "'foo' is no month (allowed: 1 to 12 or jan to dec)"),
        ("* * * * 8", "'8' is no day of week (allowed: 0 to 7 or sun to sat)"),
        ("* * * * fri-mon", "runs backwards"),
        ("*/0 * * * *", "makes no steps"),
        ("*-5 * * * *", "is no minute: a number, a range"),
        ("1,,2 * * * *", "is no minute"),
        ("-1 * * * *", "is no minute"),
        ("٣ * * * *", "is no minute"),
        ("0 0 31 2,4 *", "never comes: no month of it has a day 31"),
        ("0 0 31 2,4 */2", "never comes: no month of it has a day 31"),
        ("0 " + "0," * 200 + "0 * * *", "must be five fields"),
    ],
)
def test_what_means_nothing_is_told_with_what_would_do(text: str, said: str) -> None:
    """For the line of the settings."""
    with pytest.raises(ValueError, match=r".") as caught:
        parse(text)
    assert said in str(caught.value)


def test_a_leap_day_comes_and_so_does_a_weekday_of_an_impossible_date() -> None:
    """Every four years, and every Friday of February."""
    assert (29,) == parse("0 0 29 2 *").days
    assert (5,) == parse("0 0 31 2 5").weekdays


@given(st.text(max_size=60))
def test_any_text_is_a_cron_expression_or_an_error(text: str) -> None:
    """And never a crash."""
    try:
        found = parse(text)
    except ValueError:
        return
    assert set(found.minutes) <= set(range(60))
