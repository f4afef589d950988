"""What is said of an account that must not be asked for a while."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest
from tests.support.playbook import T0

from handoffd.engine.limits import limit_of, named, without
from handoffd.engine.track import Limit
from handoffd.engine.wording import span, until_words

MINUTE = timedelta(minutes=1)


def limit(account: str) -> Limit:
    """Return a limit of an account for five minutes."""
    return Limit(account=account, executor=account, kind="limit", since=T0, until=T0 + 5 * MINUTE)


def test_limits_are_found_and_dropped_by_account() -> None:
    """One executor's limit is not the other's."""
    both = (limit("claude"), limit("codex"))
    assert limit("codex") == limit_of(both, "codex")
    assert limit_of(both, "gemini") is None
    assert (limit("codex"),) == without(both, "claude")


def test_a_limit_and_an_overload_are_two_things() -> None:
    """The one is about what was paid for, the other is nobody's fault here."""
    assert "claude's usage limit" == named("claude", "limit")
    assert "claude's overloaded provider" == named("claude", "overload")
    assert "claude's refusing provider" == named("claude", "refusal")


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (-MINUTE, "0 s"),
        (timedelta(seconds=45), "45 s"),
        (12 * MINUTE, "12 min"),
        (130 * MINUTE, "2 h 10 min"),
        (120 * MINUTE, "2 h"),
        (timedelta(days=3, hours=4), "3 d 4 h"),
        (timedelta(days=7), "7 d"),
    ],
)
def test_a_span_is_told_in_the_units_that_matter(length: timedelta, words: str) -> None:
    """Nobody plans a night by seconds."""
    assert words == span(length)


def test_a_time_is_told_with_its_zone_and_with_its_day_when_that_is_another() -> None:
    """A limit of a week ends on some day; one of five hours may end tomorrow."""
    assert "until 22:10 UTC (in 10 min)" == until_words(T0 + 10 * MINUTE, T0)
    assert "until Sun 01 Feb 01:00 UTC (in 3 h)" == until_words(T0 + timedelta(hours=3), T0)
    taipei = (T0 + timedelta(hours=3)).astimezone(timezone(timedelta(hours=8), "CST"))
    assert "until 09:00 CST (in 3 h)" == until_words(taipei, T0)
