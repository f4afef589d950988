"""The past: lives of daemons, and all that happened in a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.recorded import spoil
from tests.unit.journal.making import KEY, NOW, dispatch, opened, record, track

from handoffd.engine.events import (
    Advanced,
    ChecksFinished,
    ExecutorExited,
    ExecutorStarted,
    Landed,
    Noted,
    Paused,
    TestEvidence,
)
from handoffd.engine.run import End, Exit, PostCheck, Usage
from handoffd.engine.track import TrackKey
from handoffd.errors import Refused
from handoffd.journal import history
from handoffd.journal.history import Counts
from handoffd.journal.journal import Journal
from handoffd.journal.records import FAILED, Life, Part
from handoffd.protocol.handoff import Absent, Found, Handoff
from handoffd.protocol.state import Status, TestCounts

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
BLOG = TrackKey("/srv/blog")


# --- lives -------------------------------------------------------------------------------------------
async def test_a_life_lasts_until_it_was_noted_last(journal: Journal) -> None:
    """Of one that was killed no more is known; one that was stopped says that."""
    await journal.lives.begin(NOW)
    await journal.lives.beat(NOW + MINUTE)
    await journal.lives.begin(NOW + HOUR)
    await journal.lives.end(NOW + HOUR + MINUTE)
    await journal.lives.begin(NOW + 2 * HOUR)

    killed, stopped, runs = await journal.lives.since(NOW)

    assert Life(NOW, NOW + MINUTE, None) == killed
    assert Life(NOW + HOUR, NOW + HOUR + MINUTE, "stopped") == stopped
    assert Life(NOW + 2 * HOUR, NOW + 2 * HOUR, None) == runs


async def test_only_the_last_life_before_a_time_is_told(journal: Journal) -> None:
    """Its end is when the daemon went away."""
    for hour in range(4):
        await journal.lives.begin(NOW + hour * HOUR)
    found = await journal.lives.since(NOW + 2.5 * HOUR)
    assert [NOW + 2 * HOUR, NOW + 3 * HOUR] == [life.began_at for life in found]


async def test_a_machine_that_slept_has_begun_a_new_life(journal: Journal) -> None:
    """A little late is not a sleep, and a clock that was put back shortens nothing."""
    await journal.lives.begin(NOW)
    await journal.lives.beat(NOW + 4 * MINUTE)
    await journal.lives.beat(NOW + MINUTE)
    await journal.lives.beat(NOW + 8 * HOUR)

    slept, woke = await journal.lives.since(NOW)

    assert Life(NOW, NOW + 4 * MINUTE, "slept") == slept
    assert (NOW + 8 * HOUR, None) == (woke.began_at, woke.ended)


async def test_a_life_whose_begin_could_not_be_noted_begins_with_its_first_beat(journal: Journal) -> None:
    """The disk was full when the daemon began."""
    await journal.lives.beat(NOW)
    await journal.lives.end(NOW + MINUTE)
    await journal.lives.beat(NOW + HOUR)
    assert [NOW, NOW + HOUR] == [life.began_at for life in await journal.lives.since(NOW)]


async def test_old_lives_are_forgotten(journal: Journal) -> None:
    """A year is enough to look back on."""
    for days in (0, 401):
        await journal.lives.begin(NOW + timedelta(days=days))
    assert [NOW + timedelta(days=401)] == [one.began_at for one in await journal.lives.since(NOW)]


# --- a night -----------------------------------------------------------------------------------------
async def worked(journal: Journal, key: TrackKey = KEY) -> None:
    """Record an attempt from 22:15 to 22:45 that claims a pass, and is checked until 22:50."""
    begun = replace(dispatch(f"d-{key.project}"), decided_at=NOW)
    running = track("bdd", Status.RUNNING, dispatch=begun)
    claim = Handoff(status=Status.PASS, tests=TestCounts(passed=5), files_changed=("a.py",))
    used = Exit(code=0, seconds=1800, at=NOW + HOUR / 2, usage=Usage(input_tokens=7, cost_usd=0.5))
    found = TestEvidence(counts=TestCounts(passed=3, failed=2))
    for at, event, after in (
        (NOW, Advanced(dispatch=begun.id, executor="claude"), running),
        (NOW, ExecutorStarted(dispatch=begun.id, pid=7, at=NOW), running),
        (
            NOW + HOUR / 2,
            ExecutorExited(
                dispatch=begun.id, exit=used, reading=Found(handoff=claim, source="front-matter"),
                untouched=("a.py",),
            ),
            running,
        ),
        (
            NOW + 35 * MINUTE,
            ChecksFinished(dispatch=begun.id, tests=found, post_check=PostCheck(passed=False)),
            track("bdd", Status.FAILING),
        ),
    ):  # fmt: skip
        await journal.commit(record(event, after=after, at=at, key=key, why=f"{event.kind} at {at:%H:%M}"))


async def test_a_night_has_what_happened_in_it(journal: Journal) -> None:
    """Claims and measurements, each run once, and where each track was before."""
    await journal.add_project(KEY.project, "shop", NOW)
    await journal.commit(record(at=NOW - HOUR))
    await worked(journal)
    await journal.commit(record(Landed(story="US-9", onto="main", commit="c0" * 20), at=NOW + HOUR))

    night = await journal.past.night(Part(since=NOW, until=NOW + 2 * HOUR))

    assert ["noted"] == [one.kind for one in night.before]
    kinds = [one.kind for one in night.events]
    assert ["advanced", "executor_started", "executor_exited", "checks_finished", "landed"] == kinds
    assert ["US-1", "US-1", "US-1", "US-1", "US-9"] == [one.story for one in night.events]
    exited, checked = night.events[2:4]
    assert exited.claimed is not None
    assert ("pass", Counts(passed=5)) == (exited.claimed.said.status, exited.claimed.said.tests)
    assert ("a.py",) == exited.claimed.untouched
    assert checked.measured is not None
    assert checked.measured.tests is not None
    assert (3, 2) == (checked.measured.tests.counts.passed, checked.measured.tests.counts.failed)
    (run,) = night.runs
    assert (NOW, NOW + HOUR / 2, "failing", 7, 0.5) == (
        run.started_at, run.ended_at, run.result, run.tokens, run.cost_usd,
    )  # fmt: skip
    (end,) = night.ends
    assert ("landed", "US-9", "main") == (end.kind, end.story, end.onto)


async def test_attempts_have_their_claims_and_measurements(journal: Journal) -> None:
    """And none of the other events, so that a month is read as fast as a night."""
    await worked(journal)
    attempts = await journal.past.attempts(Part(since=NOW, until=NOW + 2 * HOUR))
    assert ["executor_exited", "checks_finished"] == [one.kind for one in attempts.events]
    assert ["failing"] == [run.result for run in attempts.runs]
    other = await journal.past.attempts(Part(since=NOW, until=NOW + 2 * HOUR, project="/srv/other"))
    assert ((), ()) == (other.events, other.runs)


async def test_a_run_without_a_verdict_says_how_it_ended(journal: Journal) -> None:
    """As the screens of one attempt and of a gate do: that counts, also where it is repeated at no cost."""
    begun = replace(dispatch("d1"), decided_at=NOW)
    crashed = Exit(signal=11, end=End.CRASH, seconds=60, at=NOW + MINUTE)
    ended = ExecutorExited(dispatch="d1", exit=crashed, reading=Absent())
    for at, event, after in (
        (NOW, Advanced(dispatch="d1", executor="claude"), track("bdd", Status.RUNNING, dispatch=begun)),
        (NOW + MINUTE, ended, track("bdd", Status.PENDING)),
    ):
        await journal.commit(record(event, after=after, at=at))
    (run,) = (await journal.past.night(Part(since=NOW, until=NOW + HOUR))).runs
    assert ("interrupted", "crash") == (run.result, run.outcome)
    assert run.outcome in FAILED


async def test_since_when_a_track_waits_is_the_begin_of_an_unbroken_wait(journal: Journal) -> None:
    """And of a paused one when a person paused it last."""
    asks, works = track("review", Status.NEEDS_HUMAN), track("impl", Status.RUNNING, dispatch=dispatch("d1"))
    other = TrackKey("/srv/other")
    for hour, event, after in (
        (0, Noted(text="a"), asks), (1, Paused(by="mei"), works), (2, Noted(text="b"), asks),
        (3, Noted(text="c"), asks),
    ):  # fmt: skip
        await journal.commit(record(event, after=after, at=NOW + hour * HOUR))

    assert {KEY: NOW + 2 * HOUR} == await journal.past.since([KEY, other], [])
    assert {KEY: NOW + HOUR} == await journal.past.since([], [KEY, other])
    await journal.commit(record(Noted(text="d"), after=works, at=NOW + 4 * HOUR))
    assert {} == await journal.past.since([KEY], [])


async def test_a_night_ends_where_it_is_said(journal: Journal) -> None:
    """And is of one project, if one is named. A run that goes on belongs to it."""
    for key in (KEY, BLOG):
        await journal.add_project(key.project, "shop", NOW)
        await worked(journal, key)
    goes_on = replace(dispatch("d9"), decided_at=NOW + HOUR)
    running = track("impl", Status.RUNNING, dispatch=goes_on)
    await journal.commit(record(Advanced(dispatch="d9", executor="claude"), after=running, at=NOW + HOUR))

    first = await journal.past.night(Part(since=NOW, until=NOW + MINUTE, project=BLOG.project))
    assert (["advanced", "executor_started"], []) == ([one.kind for one in first.events], list(first.before))
    later = await journal.past.night(Part(since=NOW + HOUR, until=NOW + 2 * HOUR))
    assert (["advanced"], ["d9"]) == ([one.kind for one in later.events], [run.id for run in later.runs])
    assert {KEY, BLOG} == {one.key for one in later.before}
    assert {"slot"} == {one.awaits for one in later.before}


async def test_too_long_a_time_is_refused(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep all others from reading."""
    monkeypatch.setattr(history, "MOST_EVENTS", 3)
    await worked(journal)
    with pytest.raises(Refused, match="more than 3 events") as caught:
        await journal.past.night(Part(since=NOW, until=NOW + HOUR))
    assert "TOO_MUCH_HISTORY" == caught.value.code


@pytest.mark.parametrize("schema", [1, 4, 10])
async def test_a_night_of_an_older_release_is_read(golden: Callable[[int], Path], schema: int) -> None:
    """Its events name neither story nor wait: the story is that of the attempt before."""
    path = golden(schema)
    async with opened(path) as journal:
        night = await journal.past.night(Part(since=NOW - HOUR, until=NOW + HOUR))
        found = await journal.past.stories(Part(), 10)
        about = await journal.latest(10, Part(story="US-005"))
    assert {"US-005"} <= {one.story for one in found}
    assert about
    assert {None} == {one.awaits for one in night.events}


async def test_an_older_journal_is_read_before_it_is_brought_up_to_date(
    golden: Callable[[int], Path],
) -> None:
    """A command without a daemon looks at the file as it is."""
    journal = await Journal.open_to_read(golden(10))
    try:
        night = await journal.past.night(Part(since=NOW - HOUR, until=NOW + HOUR))
        assert night.events
        assert () == night.lives
        assert await journal.latest(10, Part(story="US-005"))
        assert await journal.past.stories(Part(), 10)
    finally:
        await journal.close()


async def test_a_damaged_event_is_named(place: Path) -> None:
    """As everywhere in the journal."""
    async with opened(place) as journal:
        await worked(journal)
    spoil(place, "UPDATE events SET event = '{' WHERE kind = 'checks_finished'")
    async with opened(place) as journal:
        with pytest.raises(Exception, match="cannot be read"):
            await journal.past.night(Part(since=NOW, until=NOW + HOUR))


def plan(db: sqlite3.Connection, question: Callable[[], object]) -> str:
    """Return how SQLite finds what a question asks for."""
    asked: list[str] = []
    db.set_trace_callback(asked.append)
    question()
    db.set_trace_callback(None)
    questions = [f"EXPLAIN QUERY PLAN {text}" for text in asked if text.startswith("SELECT")]
    rows = [row[-1] for text in questions for row in db.execute(text)]
    return "\n".join(rows)


def test_no_question_about_a_time_reads_the_whole_history(db: sqlite3.Connection) -> None:
    """With a hundred thousand runs that would take a minute."""
    part = Part(since=NOW, until=NOW + HOUR)
    found = plan(db, lambda: history.night(db, part))
    assert "SCAN events" not in found
    assert "SCAN dispatches" not in found
    for index in ("events_by_time", "dispatches_by_time", "dispatches_open", "events_by_project"):
        assert index in found
    assert "SCAN events" not in plan(db, lambda: history.stories(db, Part(), 10))


# --- what steps took ----------------------------------------------------------------------------------
async def ran_once(
    journal: Journal, run: str, story: str, result: Status, usage: Usage | None = None
) -> None:
    """Record a run of bdd that took a minute."""
    begun = replace(dispatch(run), story=story)
    running = track("bdd", Status.RUNNING, story=story, dispatch=begun)
    await journal.commit(record(Advanced(dispatch=run, executor="claude"), after=running))
    end = Exit(code=0, seconds=60, at=NOW + MINUTE, usage=usage)
    event = ExecutorExited(dispatch=run, exit=end, reading=Absent())
    await journal.commit(record(event, after=track("bdd", result, story=story)))


async def test_what_a_step_took_a_story_is_summed_over_its_attempts(journal: Journal) -> None:
    """Until it passed: a step that has not passed yet is left out, and so are other projects."""
    await ran_once(journal, "d1", "US-1", Status.FAILING, Usage(input_tokens=7, cost_usd=0.5))
    await ran_once(journal, "d2", "US-1", Status.PASS, Usage(input_tokens=5, cost_usd=0.25))
    await ran_once(journal, "d3", "US-2", Status.FAILING, Usage(input_tokens=1, cost_usd=0.1))
    await ran_once(journal, "d4", "US-3", Status.PASS)
    found = await journal.past.steps_took([KEY.project, "/srv/other"])
    assert () == found["/srv/other"]
    first, third = found[KEY.project]
    assert ("bdd", "US-1", 2, 12, 0.75) == (
        first.step, first.story, first.attempts, first.tokens, first.cost_usd
    )  # fmt: skip
    assert 120 == pytest.approx(first.seconds, abs=0.01)
    assert ("US-3", None, None) == (third.story, third.tokens, third.cost_usd)
