"""Reads of what has happened: parts of the history, stories, usage."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace
from tests.support.playbook import shipped_rules
from tests.support.refusals import refused
from tests.support.supervision import MemorySupervision, project_view, track_view
from tests.unit.journal.making import KEY, NOW, dispatch, record, track

from handoffd.api.past import Past, end_of_night, grouping, midnights, moment_of, usage_report
from handoffd.clock import SystemClock
from handoffd.engine.events import Aborted, Advanced, ExecutorExited, Landed
from handoffd.engine.run import Exit, Usage
from handoffd.engine.track import TrackKey
from handoffd.errors import NotFound
from handoffd.execute.base import ExitRecord, RunSpec
from handoffd.forecast.snapshot import REFERENCE
from handoffd.journal.dispatches import Grouping
from handoffd.journal.journal import Journal
from handoffd.journal.records import UsageSum
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Status, plain

OTHER = TrackKey("/srv/blog")
HOUR = timedelta(hours=1)


@pytest.fixture
def past(journal: Journal, tmp_path: Path) -> Past:
    """What a daemon answers over two projects."""
    supervision = MemorySupervision(*(project_view(key.project, track_view()) for key in (KEY, OTHER)))
    return Past(supervision, journal, SystemClock(), tmp_path / "runs", daemon=True)


async def worked(
    journal: Journal, story: str, run: str, hour: int, *, key: TrackKey = KEY, step: str = "bdd"
) -> None:
    """Record a run of a story that takes half an hour and costs half a dollar."""
    at = NOW + hour * HOUR
    begun = replace(dispatch(run), story=story, step=step, decided_at=at)
    running = track(step, Status.RUNNING, story=story, dispatch=begun)
    await journal.commit(record(Advanced(dispatch=run, executor="claude"), after=running, at=at, key=key))
    used = Exit(code=0, seconds=1800, usage=USED)
    ended = ExecutorExited(dispatch=run, exit=used, reading=Absent())
    over = track(step, Status.PASS, story=story)
    await journal.commit(record(ended, after=over, at=at + HOUR / 2, key=key))


# --- parts of the history ----------------------------------------------------------------------------
async def test_events_are_asked_for_by_story_step_and_time(journal: Journal, past: Past) -> None:
    """Of all projects or of one; the last ones of that part, or the ones after a number."""
    await worked(journal, "US-1", "d1", 0)
    await worked(journal, "US-2", "d2", 1, step="impl")
    await worked(journal, "US-1", "d3", 2, key=OTHER)

    async def numbers(project: str | None = None, **asked: Any) -> list[int]:
        return [event.seq for event in (await past.events(project, **asked)).events]

    assert [1, 2, 5, 6] == await numbers(story="US-1")
    assert [1, 2] == await numbers("shop", story="US-1")
    assert [6] == await numbers(story="US-1", limit=1)
    assert [5] == await numbers(story="US-1", limit=1, after=2)
    assert [3, 4] == await numbers(step="impl")
    since, until = (NOW + HOUR).isoformat(), (NOW + 1.5 * HOUR).isoformat()
    assert [3, 4, 5, 6] == await numbers(since=since)
    assert [3] == await numbers(since=since, until=until)
    assert [] == await numbers(story="US-9")


async def test_runs_are_asked_for_in_the_same_way(journal: Journal, past: Past) -> None:
    """The time is that of the decision to run."""
    await worked(journal, "US-1", "d1", 0)
    await worked(journal, "US-2", "d2", 1, step="impl")

    async def ids(**asked: Any) -> list[str]:
        return [run.run for run in (await past.runs(**asked)).runs]

    assert ["d2", "d1"] == await ids()
    assert ["d1"] == await ids(story="US-1")
    assert ["d2"] == await ids(step="impl")
    assert ["d2"] == await ids(since=(NOW + HOUR).isoformat())
    assert ["d1"] == await ids(until=(NOW + HOUR).isoformat())


async def test_all_that_is_kept_of_one_attempt(journal: Journal, past: Past, tmp_path: Path) -> None:
    """Its own events only; programs whose records are kept, the executor first, with how they ended."""
    await worked(journal, "US-1", "20260131T221509-00000001", 0)
    await worked(journal, "US-1", "20260131T221509-00000002", 1)
    run = "20260131T221509-00000002"
    for name, code in ((run, 0), (f"{run}.post", None), (f"{run}.tests.2", 1)):
        spec = RunSpec(
            run_id=name, argv=("agent", "x" * 1000), env={"SECRET": "hidden"}, cwd="/srv/shop", stdin=None,
            output="/dev/null", deadline_s=None, ladder=(),
        )  # fmt: skip
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "spec.json").write_text(spec.to_json())
        if code is not None:
            (folder / "exit.json").write_text(ExitRecord(run_id=name, code=code, seconds=1.5).to_json())

    found = await past.run(run)
    assert (run, "US-1", "pass") == (found.run.run, found.run.story, found.run.result)
    assert ["advanced", "executor_exited"] == [event.kind for event in found.events]
    assert [("executor", 0, "itself"), ("tests", 1, "itself"), ("post", None, None)] == [
        (one.what, one.code, one.by) for one in found.commands
    ]
    assert 300 >= max(len(word) for one in found.commands for word in one.argv)
    assert "hidden" not in json.dumps(plain(found))
    assert (None, None, None) == (found.handoff, found.changed, found.before)
    with pytest.raises(NotFound, match="'d9' is not the id of a run"):
        await past.run("d9")


async def test_a_wrong_part_is_refused(past: Past) -> None:
    """With the name of what is wrong."""
    with refused("BAD_ARGUMENT", match="until must be like"):
        await past.events(until="soon")


# --- stories -----------------------------------------------------------------------------------------
async def test_an_open_story_is_where_its_track_is(journal: Journal, past: Past) -> None:
    """Its latest run has passed, and a person is waited for since; one set aside has no other place."""
    await worked(journal, "US-001", "d1", 0)
    await worked(journal, "US-2", "d2", 1)

    found = {one.story: (one.outcome, one.step, one.status) for one in (await past.stories()).stories}

    assert {"US-001": ("open", "review", "needs_human"), "US-2": ("open", "bdd", "pass")} == found


async def test_stories_have_their_outcome_cost_and_commit(journal: Journal, past: Past) -> None:
    """The latest first. A story of which something ran after its end is open again."""
    for number, story in enumerate(("US-1", "US-2", "US-3", "US-4")):
        await worked(journal, story, f"d{number}", number)
    await worked(journal, "US-1", "d8", 4, step="impl")
    landed = Landed(story="US-2", onto="main", commit="c0" * 20)
    await journal.commit(record(landed, after=track("done", Status.PASS), at=NOW + 5 * HOUR))
    await journal.commit(record(Aborted(), after=track("bdd", story="US-3"), at=NOW + 5.5 * HOUR))
    await journal.commit(record(Aborted(), after=track("bdd", story="US-4"), at=NOW + 6 * HOUR))
    await worked(journal, "US-4", "d9", 7)

    found = {one.story: one for one in (await past.stories()).stories}

    assert ["US-4", "US-3", "US-2", "US-1"] == list(found)
    assert ["open", "aborted", "landed", "open"] == [one.outcome for one in found.values()]
    assert ("main", "c0" * 20, None) == (found["US-2"].onto, found["US-2"].commit, found["US-2"].step)
    assert ("impl", "pass", 2, 1.0) == (
        found["US-1"].step, found["US-1"].status, found["US-1"].runs, found["US-1"].cost_usd,
    )  # fmt: skip
    assert NOW + 5 * HOUR == found["US-2"].ended_at
    late = await past.stories(since=(NOW + 5.5 * HOUR).isoformat())
    assert ["US-4", "US-3"] == [one.story for one in late.stories]
    assert ["US-4"] == [one.story for one in (await past.stories(limit=1)).stories]
    assert ["US-1"] == [one.story for one in (await past.stories(until=(NOW + HOUR).isoformat())).stories]


# --- usage -------------------------------------------------------------------------------------------
AT = datetime(2026, 1, 31, 22, 15, tzinfo=UTC)
AGAIN = "handoffd runs --since 7d"
USED = Usage(
    input_tokens=4000, output_tokens=5000, cache_read_tokens=90_000, cache_write_tokens=3000, cost_usd=0.5,
    priced="table",
)  # fmt: skip


def summed(*key: str | None, runs: int = 2, measured: int = 2, usage: Usage = USED) -> UsageSum:
    """Return a sum of two runs."""
    return UsageSum(key=key, runs=runs, measured=measured, unpriced=0, usage=usage)


def row(*key: str | None, by: Grouping, **more: Any) -> dict[str, Any]:
    """Return the row that a sum becomes, as JSON."""
    (only,), _ = usage_report([summed(*key, **more)], by, {"/srv/shop": "corner"})
    return plain(only)


def test_a_row_has_every_number() -> None:
    """Each token once, and the origin of the cost."""
    found = row("claude", by="executor")
    assert {
        "executor": "claude", "runs": 2, "measured": 2, "unpriced": 0, "input_tokens": 4000,
        "output_tokens": 5000, "cache_read_tokens": 90_000, "cache_write_tokens": 3000, "tokens": 102_000,
        "cost_usd": 0.5, "priced": "table",
    } == found  # fmt: skip


def test_steps_are_compared_by_run_and_without_cached_tokens() -> None:
    """Each call of the model reads the same context again; unmeasured runs are not compared."""
    assert REFERENCE.keys() <= shipped_rules().steps.keys()
    assert row("bdd", by="step", measured=0, usage=Usage())["new_tokens"] is None
    found = row("bdd", by="step")
    assert (6000, [2000, 5000], True) == (found["new_tokens"], found["reference"], found["above"])
    assert not row("impl", by="step")["above"]
    own = row("security", by="step")
    assert (6000, None, None) == (own["new_tokens"], own["reference"], own["above"])


def test_stories_are_compared_whole() -> None:
    """A custom task has no reference."""
    found = row("/srv/shop", "US-1", by="story")
    assert ("corner", "US-1", 12_000, [15_000, 40_000], False) == (
        found["name"], found["story"], found["new_tokens"], found["reference"], found["above"],
    )  # fmt: skip
    assert row("/srv/shop", "CUSTOM-1", by="story")["reference"] is None


def test_the_total_is_of_all_rows() -> None:
    """Without rows, no cost."""
    _, whole = usage_report([summed("bdd"), summed("impl", runs=3)], "step", {})
    assert (5, 4, 204_000, 1.0) == (whole.runs, whole.measured, whole.tokens, whole.cost_usd)
    _, nothing = usage_report([], "step", {})
    assert (0, 0, None) == (nothing.runs, nothing.tokens, nothing.cost_usd)


def test_a_grouping_is_asked_for_by_name() -> None:
    """By step without a name."""
    assert "step" == grouping(None)
    assert list(get_args(Grouping)) == [grouping(by) for by in get_args(Grouping)]
    with refused("BAD_ARGUMENT", match="by must be one of step, story"):
        grouping("month")


@pytest.mark.parametrize(("text", "ago"), [("30m", 0.5), ("7d", 7 * 24), ("12h", 12), ("2w", 14 * 24)])
def test_a_span_is_counted_back_from_now(text: str, ago: float) -> None:
    """Minutes, hours, days and weeks."""
    assert AT - timedelta(hours=ago) == moment_of(text, AT, "since", AGAIN)


@pytest.mark.usefixtures("taipei")
def test_a_date_is_its_midnight_here() -> None:
    """Told in UTC, as all times are. A time with a zone is that time."""
    here = moment_of("2026-01-30", AT, "since", AGAIN)
    assert here is not None
    assert "2026-01-29T16:00:00+00:00" == here.isoformat()
    assert datetime(2026, 1, 30, 12, tzinfo=UTC) == moment_of("2026-01-30T20:00:00+08:00", AT, "until", AGAIN)
    assert moment_of(None, AT, "since", AGAIN) is None


@pytest.mark.usefixtures("taipei")
@pytest.mark.parametrize("text", ["2026-01-30T07:00", "2026-01-30 07:00", "20260130T0700"])
def test_a_time_without_a_zone_is_one_of_the_clock_here(text: str) -> None:
    """As a date is its midnight here."""
    assert datetime(2026, 1, 29, 23, tzinfo=UTC) == moment_of(text, AT, "since", AGAIN)


@pytest.mark.usefixtures("taipei")
def test_yesterday_begins_at_midnight_here() -> None:
    """It is the first of February there already."""
    assert datetime(2026, 1, 30, 16, tzinfo=UTC) == moment_of("yesterday", AT, "since", AGAIN)
    assert datetime(2026, 1, 31, 16, tzinfo=UTC) == moment_of("today", AT, "since", AGAIN)


@pytest.mark.parametrize(
    "text",
    [
        "tomorrow",
        "7",
        "0001-01-01T00:00+23:59",
        "0001-01-01",
        "2026-01-31T25:00",
        "99999d",
        "2026-13-01",
        "-3d",
    ],
)
def test_a_wrong_time_is_refused(text: str) -> None:
    """The refusal has examples, and the command that was meant."""
    with refused("BAD_ARGUMENT", AGAIN, match="since must be like 30m, 12h, 7d, 2w, yesterday"):
        moment_of(text, AT, "since", AGAIN)


# --- the end of a night -------------------------------------------------------------------------------
def local(day: int, hour: int, minute: int = 0) -> datetime:
    """Return a time by the machine's clock."""
    return datetime(2026, 3, day, hour, minute).astimezone()


@pytest.mark.parametrize(
    ("text", "now", "until"),
    [
        (None, local(3, 23), local(4, 8)),
        ("", local(3, 7), local(3, 8)),
        ("07:30", local(3, 7, 30), local(4, 7, 30)),
        ("8h", local(3, 23), local(4, 7)),
        ("2d", local(3, 23), local(5, 23)),
        (local(4, 6).isoformat(), local(3, 23), local(4, 6)),
        ("2026-03-04T06:00", local(3, 23), local(4, 6)),
        ("2026-03-04 06:00", local(3, 23), local(4, 6)),
        ("2026-03-05", local(3, 23), local(5, 0)),
    ],
)
def test_a_night_ends_when_the_clock_shows_a_time(text: str | None, now: datetime, until: datetime) -> None:
    """The next time that it does so; or after some hours, or at a moment."""
    assert until == end_of_night(text, now)


@pytest.mark.parametrize(
    "text",
    [
        "8",
        "25:00",
        "08:60",
        "3d",
        "tomorrow",
        "2026-03-03",
        "2026-03-03T22:00",
        "2026-03-06T00:00",
        "0001-01-01",
        local(3, 22).isoformat(),
    ],
)
def test_a_night_that_ends_before_it_begins_or_never_is_refused(text: str) -> None:
    """With the command that works."""
    with refused("BAD_ARGUMENT", "handoffd tonight --until 08:00", match="until must be like 08:00, 8h"):
        end_of_night(text, local(3, 23))


def test_the_midnights_of_a_night_are_where_days_begin_here() -> None:
    """None for a time within one day."""
    assert (local(4, 0), local(5, 0)) == midnights(local(3, 23), local(5, 23))
    assert () == midnights(local(3, 1), local(3, 23))
