"""Time as the daemon reads and writes it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

from handoffd.clock import SystemClock, rfc3339


def test_moments_are_written_in_utc_with_milliseconds() -> None:
    """As the protocol demands, in any time zone."""
    moment = datetime(2026, 1, 31, 23, 15, 9, 123987, timezone(timedelta(hours=1)))

    assert "2026-01-31T22:15:09.123Z" == rfc3339(moment)
    assert "2026-01-31T22:15:00.000Z" == rfc3339(datetime(2026, 1, 31, 22, 15, tzinfo=UTC))


def test_wall_time_is_in_utc() -> None:
    """A moment without an offset would mean something else on every machine."""
    assert timedelta(0) == SystemClock().now().utcoffset()


def test_elapsed_time_is_comparable_between_processes() -> None:
    """Shims write this clock into their start records."""
    before = time.clock_gettime(time.CLOCK_MONOTONIC)
    now = SystemClock().monotonic()

    assert before <= now <= time.clock_gettime(time.CLOCK_MONOTONIC)
