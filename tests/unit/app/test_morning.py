"""The report of the night as a notice: when it is made, and under which id."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.house import MovableClock
from tests.unit.report.nights import report

from handoffd.app.daemon import Morning
from handoffd.engine.notice import Notice, headline, message
from handoffd.errors import StoreError
from handoffd.report.values import Report
from handoffd.settings.model import Settings

SEVEN = datetime(2026, 1, 31, 7, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Life:
    """One life of a daemon, as far as its mornings go."""

    def __init__(self, now: datetime = SEVEN, answer: Report | None = None, at: str | None = None) -> None:
        given: dict[str, Any] = {"report": {"timezone": "UTC", "at": at}}
        places = {"state_dir": Path("/var/lib/h"), "runtime_dir": Path("/run/h")}
        self.settings = Settings.model_validate({**places, **given})
        self.clock = MovableClock()
        self.clock.jumped_s = (now - self.clock.now()).total_seconds()
        self.answer = answer or report()
        self.asked: list[tuple[str | None, str | None, str | None]] = []
        self.notices: list[Notice] = []
        self.failing = False
        self.morning = Morning(lambda: self.settings, self.clock, self._report, self.notices.append)

    async def _report(self, project: str | None, since: str | None, until: str | None) -> Report:
        self.asked.append((project, since, until))
        if self.failing:
            raise StoreError("the disk does not answer")
        return self.answer


async def test_it_is_sent_once_when_it_is_due() -> None:
    """About the time since the report before, of all projects."""
    life = Life(SEVEN - HOUR)
    await life.morning.look()
    life.clock.ahead_s += 3600
    for _ in range(3):
        await life.morning.look()

    assert [
        (None, "2026-01-29T07:00:00.000Z", "2026-01-30T07:00:00.000Z"),
        (None, "2026-01-30T07:00:00.000Z", "2026-01-31T07:00:00.000Z"),
    ] == life.asked
    assert 2 == len({notice.id for notice in life.notices})


async def test_every_life_gives_it_the_same_id() -> None:
    """So the journal keeps one: a daemon that starts at noon sends the one that another had no time for."""
    first, second, third = Life(), Life(SEVEN + 5 * HOUR), Life(SEVEN + 24 * HOUR)
    for life in (first, second, third):
        await life.morning.look()
    (one,), (same,), (other,) = first.notices, second.notices, third.notices
    assert one.id == same.id != other.id


async def test_a_quiet_day_has_none(quiet: Report) -> None:
    """Nothing has happened, so nothing is sent, and it is not asked about again."""
    life = Life(answer=quiet)
    await life.morning.look()
    await life.morning.look()
    assert ([], 1) == (life.notices, len(life.asked))


async def test_a_report_that_fails_is_made_again() -> None:
    """The journal may answer a little later."""
    life = Life()
    life.failing = True
    await life.morning.look()
    life.failing = False
    await life.morning.look()
    assert 1 == len(life.notices)


async def test_it_can_be_off() -> None:
    """Nothing is asked then."""
    life = Life(at="off")
    await life.morning.look()
    assert [] == life.asked


async def test_the_notice_lists_what_the_report_has() -> None:
    """With each command, and the command for all of it; it fits into a message."""
    life = Life()
    await life.morning.look()
    (notice,) = life.notices
    assert ("report", "handoffd", "/var/lib/h", None) == (
        notice.kind,
        notice.name,
        notice.project,
        notice.story,
    )
    assert "handoffd reports on the night" == headline(notice)
    text = message(notice)
    assert "- shop US-1: since " in text
    assert " > handoffd approve shop --story US-1" in text
    assert text.endswith(
        "Next: handoffd report --since 2026-01-30T07:00:00.000Z --until 2026-01-31T07:00:00.000Z"
    )


@pytest.fixture
def quiet() -> Report:
    """A report of a time in which nothing happened."""
    return report(events=0, down=())
