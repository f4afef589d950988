"""Schedules as values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from handoffd.engine.events import Started
from handoffd.fleet.timetable import own_starts, schedule_view, started
from handoffd.journal.projects import Fire, StoredSchedule
from handoffd.schedule.cron import FireTimes
from handoffd.schedule.plan import Planned
from handoffd.settings.schedule import ScheduledStart
from handoffd.track.services import OwnSchedules

SHOP = "/srv/shop"
DUE = datetime(2026, 1, 31, 2, tzinfo=UTC)
NIGHTLY = ScheduledStart(
    name="nightly", cron="0 3 * * *", timezone="Europe/Berlin", start="REVIEW-{date}-{time}"
)


def test_a_schedule_asks_for_a_story_in_its_own_words() -> None:
    """By the time of its own zone; who asked is recorded."""
    local = DUE.astimezone(FireTimes("0 3 * * *", "Europe/Berlin").zone)
    assert (
        Started(
            story="REVIEW-2026-01-31-0300", schedule="nightly", due=local, by="schedule nightly",
        )
        == started(Planned(SHOP, "nightly", NIGHTLY), local)
    )  # fmt: skip


def test_everything_that_an_entry_says_goes_with_it() -> None:
    """Of a custom task the instruction, too."""
    start = ScheduledStart(
        name="look", cron="@daily", custom="Look around.", overlap="queue", priority=3, complexity="L",
        executor=("codex",), agent_teams=True,
    )  # fmt: skip
    event = started(Planned(SHOP, ".ai/look", start), DUE)
    assert ("custom", "Look around.", True, 3, "L", ("codex",), True, "look-2026-01-31-0200") == (
        event.task_type, event.instruction, event.queue, event.priority, event.complexity, event.executor,
        event.agent_teams, event.story,
    )  # fmt: skip
    assert (".ai/look", "schedule .ai/look") == (event.schedule, event.by)


def test_what_projects_say_is_kept_until_they_say_otherwise() -> None:
    """Nothing changes by saying it again."""
    own = OwnSchedules()
    before = own.revision
    own.learn(SHOP, ())
    assert before == own.revision
    own.learn(SHOP, (NIGHTLY,))
    own.learn(SHOP, (NIGHTLY,))
    assert ({SHOP: (NIGHTLY,)}, before + 1) == (own.starts, own.revision)
    own.learn(SHOP, ())
    assert ({}, before + 2) == (own.starts, own.revision)


def test_schedules_are_read_from_what_was_trusted() -> None:
    """Of a text that another release could read, and this one cannot, there are none."""
    text = "schedule:\n  - {name: tidy, cron: '@daily', start: TIDY}\n"
    assert ["tidy"] == [start.name for start in own_starts(text)]
    assert () == own_starts("schedule: [{unheard: of}]\n") == own_starts("auto: true\n")


def test_a_schedule_is_told_with_what_comes_and_what_came() -> None:
    """In its own zone; of one that nobody armed yet, what would come from now on."""
    times = FireTimes(NIGHTLY.cron, NIGHTLY.timezone)
    one = Planned(SHOP, "nightly", NIGHTLY)
    fresh = schedule_view(one, times, None, DUE, None)
    assert ("REVIEW-2026-02-01-0300", "Europe/Berlin", None, False) == (
        fresh.story, fresh.timezone, fresh.last_outcome, fresh.own,
    )  # fmt: skip
    assert DUE + timedelta(days=1) == fresh.next_at

    last = Fire(
        project=SHOP, schedule="nightly", due=DUE, at=DUE, outcome="skipped", story="X", why="US-1 runs"
    )
    stored = StoredSchedule(project=SHOP, schedule="nightly", fingerprint="x", armed_at=DUE, last=last)
    told = schedule_view(one, times, stored, DUE + timedelta(days=9), "the disk is full")
    assert ("skipped", "US-1 runs", "X", DUE, "the disk is full") == (
        told.last_outcome, told.last_why, told.last_story, told.last_due, told.waits_for,
    )  # fmt: skip
    assert DUE + timedelta(days=1) == told.next_at
