"""What must not stand still."""

from __future__ import annotations

import pytest

from handoffd.app.service_manager import POLL, WRITER, Beat, beats_of, stuck


@pytest.mark.parametrize(
    ("since", "why"),
    [
        (None, None),
        (1000.0, None),
        (940.0, None),
        (939.0, "the writer has made no progress for 61 s"),
        (1200.0, None),
    ],
)
def test_whoever_has_work_must_get_on_within_the_limit(since: float | None, why: str | None) -> None:
    """Who has nothing to do may rest for ever; a clock that seems to go back is no fault."""
    assert why == stuck([Beat(name="the writer", since=since, limit_s=60)], now=1000.0)


def test_everybody_who_is_late_is_named() -> None:
    """One that is well does not hide another."""
    beats = [Beat(name=name, since=since, limit_s=60) for name, since in (("a", 0), ("b", 99), ("c", 10))]

    assert "a has made no progress for 100 s; c has made no progress for 90 s" == stuck(beats, now=100)


@pytest.mark.parametrize(("poll_s", "limit_s"), [(30, 180), (0.1, 180), (600, 3000)])
def test_a_slow_poll_is_given_its_time(poll_s: float, limit_s: float) -> None:
    """Several intervals, and never less than some minutes."""
    writer, poll = beats_of(5.0, 7.0, poll_s)

    assert (WRITER, 5.0) == (writer.name, writer.since)
    assert (POLL, 7.0, limit_s) == (poll.name, poll.since, poll.limit_s)
