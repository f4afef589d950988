"""The table of dispatches: what a record says about runs, the rows, and sums of what runs used."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace
from tests.support.recorded import BLOG, SHOP, RecordedPlay, spoil, story, write
from tests.unit.journal.conftest import Golden
from tests.unit.journal.making import KEY, NOW, dispatch, opened, record, track

from handoffd.engine.decision import Refusal
from handoffd.engine.events import (
    Aborted,
    Advanced,
    BaselineMeasured,
    ChecksFinished,
    Event,
    ExecutorExited,
    ExecutorStarted,
    HandoffArrived,
    Initialised,
    Noted,
    SpawnRefused,
    TestEvidence,
)
from handoffd.engine.run import Exit, Usage
from handoffd.engine.track import TrackKey
from handoffd.journal.dispatches import (
    DerivedDispatches,
    DispatchRow,
    Grouping,
    Learned,
    begun,
    learned,
    row,
    rows,
    verdict,
)
from handoffd.journal.journal import Journal
from handoffd.journal.records import UsageSum
from handoffd.protocol.handoff import Absent, HandoffMark
from handoffd.protocol.state import Status

# --- what a record says ------------------------------------------------------------------------------
EARLIER = NOW - timedelta(hours=1)

DATED = Exit(code=3, seconds=120, at=EARLIER)

EXITED = ExecutorExited(dispatch="d1", exit=Exit(code=3), reading=Absent())

MEASURED = TestEvidence(collected=4)
REFUSAL = Refusal(code="STALE_FACT", message="too late", caller_instruction="nothing to do")


def test_a_dispatch_in_flight_begins_a_row() -> None:
    """From the decision on, before anything runs; an id that was offered and not used is not a run."""
    flying = track(status=Status.RUNNING, dispatch=dispatch())

    assert dispatch() == begun(record(Advanced(dispatch="d1", executor="claude"), after=flying))
    assert begun(record(Advanced(dispatch="d1", executor="claude"))) is None


def test_an_external_dispatch_begins_a_row_when_it_is_judged() -> None:
    """Level 1: a hand-off that is judged at once was never in flight here."""
    event = HandoffArrived(dispatch="d7", reading=Absent(), mark=HandoffMark())

    row = begun(record(event, after=track(status=Status.PASS)))

    assert row is not None
    assert ("d7", "external", "bdd", NOW) == (row.id, row.executor, row.step, row.decided_at)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (ExecutorStarted(dispatch="d1", pid=7), Learned(id="d1", started_at=NOW)),
        (ExecutorStarted(dispatch="d1", pid=7, at=EARLIER), Learned(id="d1", started_at=EARLIER)),
        (EXITED, Learned(id="d1", ended_at=NOW, exit=Exit(code=3))),
        (
            ExecutorExited(dispatch="d1", exit=DATED, reading=Absent()),
            Learned(id="d1", started_at=EARLIER - timedelta(minutes=2), ended_at=EARLIER, exit=DATED),
        ),
        (ChecksFinished(dispatch="d1", tests=MEASURED), Learned(id="d1", tests=MEASURED)),
        (Noted(text="x"), None),
    ],
)
def test_events_tell_their_part_of_a_run(event: Event, expected: Learned | None) -> None:
    """Start, end and measurements come from the events that report them."""
    assert expected == learned(record(event))


def test_a_refused_fact_tells_nothing() -> None:
    """An event that changed nothing changes no row."""
    arrived = HandoffArrived(dispatch="d7", reading=Absent(), mark=HandoffMark())
    assert learned(record(EXITED, result=REFUSAL)) is None
    assert begun(record(arrived, result=REFUSAL)) is None


@pytest.mark.parametrize(
    ("event", "status", "expected"),
    [
        (EXITED, Status.PASS, "pass"),
        (EXITED, Status.FAILING, "failing"),
        (EXITED, Status.PENDING, "interrupted"),
        (SpawnRefused(dispatch="d1", error="no such program"), Status.PENDING, "not_started"),
        (BaselineMeasured(dispatch="d1", fault="no runner"), Status.PENDING, "not_started"),
        (Aborted(), Status.NEEDS_HUMAN, "needs_human"),
    ],
)
def test_a_dispatch_that_is_gone_got_the_status_of_its_track(
    event: Event, status: Status, expected: str
) -> None:
    """Whatever ended a dispatch, its row says how; while checks run it is in flight."""
    checking = track(status=Status.RUNNING, dispatch=dispatch())
    assert "d1" == verdict(record(event, after=checking)).in_flight
    found = verdict(record(event, after=track(status=status), why="because"))

    assert (None, expected, "because") == (found.in_flight, found.result, found.why)


# --- rows made again ---------------------------------------------------------------------------------
@pytest.fixture
def plays() -> tuple[RecordedPlay, ...]:
    """The stories of two projects; in one a run is in flight."""
    flying = RecordedPlay(BLOG)
    flying.given(Initialised(project="blog")).started().step_passes().turn().runs()
    return story(SHOP), flying


@pytest.fixture
def path(tmp_path: Path, plays: tuple[RecordedPlay, ...]) -> Path:
    """Their journal."""
    path = tmp_path / "journal.db"
    write(path, *plays)
    return path


@pytest.fixture
def derived() -> Iterator[DerivedDispatches]:
    """A table that nothing was written to."""
    with closing(DerivedDispatches()) as lent:
        yield lent


def kept(path: Path, project: str | None = None) -> dict[str, DispatchRow]:
    """Return the rows of a journal, by id."""
    with closing(sqlite3.connect(path)) as db:
        return {one.id: one for one in rows(db, project)}


def test_the_records_make_the_rows_that_the_journal_has(
    path: Path, plays: tuple[RecordedPlay, ...], derived: DerivedDispatches
) -> None:
    """Every column of every row, of runs that are over and of one in flight."""
    for seq, written in enumerate((one for play in plays for one in play.records), start=1):
        derived.write(seq, written)

    made = {one.id: one for one in derived.rows(None)}
    assert kept(path) == made
    assert {None, "pass", "failing"} <= {one.values["result"] for one in made.values()}


def test_rows_are_found_by_project_and_by_id(path: Path) -> None:
    """As they are written."""
    assert {"/srv/blog"} == {one.key.project for one in kept(path, BLOG.project).values()}
    with closing(sqlite3.connect(path)) as db:
        found = row(db, "blog-1")
        assert None is row(db, "unknown")
    assert found is not None
    assert ("blog-1", BLOG, "rehearsal") == (found.id, found.key, found.values["executor"])


def test_a_run_that_was_in_flight_before_is_begun(derived: DerivedDispatches) -> None:
    """From what its track holds."""
    derived.begin(KEY, 7, dispatch("d7"))

    found = derived.row("d7")
    assert found is not None
    assert (7, KEY, None) == (found.seq, found.key, found.value("exit"))
    begun = {"step": "bdd", "attempt": 1, "executor": "claude", "decided_at": NOW.isoformat()}
    assert begun == {column: found.values[column] for column in begun}


def test_what_an_earlier_release_wrote_with_fewer_fields_means_the_same(path: Path) -> None:
    """Text that cannot be read means nothing but itself."""
    before = kept(path)["shop-1"]
    shorter = {"code": before.values["exit"] and json.loads(before.values["exit"])["code"]}

    spoil(path, "UPDATE dispatches SET exit = :exit", values={"exit": json.dumps(shorter)})
    assert Exit(code=0) == replace(kept(path)["shop-1"].value("exit"), seconds=0)  # type: ignore[type-var]

    spoil(path, "UPDATE dispatches SET exit = '{'")
    assert "{" == kept(path)["shop-1"].value("exit")


# --- sums --------------------------------------------------------------------------------------------
ONE = Usage(input_tokens=10, output_tokens=20, cache_read_tokens=30, cache_write_tokens=40)
PAID = Usage(input_tokens=1, cost_usd=0.25, priced="provider")
RECKONED = Usage(output_tokens=1, cost_usd=0.5, priced="table")


async def ran(
    journal: Journal, run: str, usage: Usage | None, *, key: TrackKey = KEY, at: datetime = NOW, **exit_: Any
) -> None:
    """Record a run from its beginning to its end."""
    flying = track(status=Status.RUNNING, dispatch=dispatch(run))
    await journal.commit(record(key=key, at=at, after=flying))
    event = ExecutorExited(dispatch=run, exit=Exit(code=0, usage=usage, **exit_), reading=Absent())
    await journal.commit(record(event, key=key, at=at, after=track(status=Status.PASS)))


@pytest.fixture
async def spent(journal: Journal) -> Journal:
    """A journal in which two projects have spent something."""
    await ran(journal, "a1", ONE, model="claude-x")
    await ran(journal, "a2", PAID)
    await ran(journal, "a3", None)
    await ran(journal, "b1", RECKONED, key=BLOG, at=NOW + timedelta(days=1))
    await journal.commit(record(after=track(status=Status.RUNNING, dispatch=dispatch("a4"))))
    return journal


async def test_runs_are_summed_by_project(spent: Journal) -> None:
    """Those that have ended; an unknown number is not a zero."""
    blog = UsageSum(key=("/srv/blog",), runs=1, measured=1, unpriced=0, usage=RECKONED)
    shop = UsageSum(key=("/srv/shop",), runs=3, measured=2, unpriced=1, usage=ONE + PAID)
    assert (blog, shop) == await spent.usage("project")


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("step", [("bdd",)]),
        ("story", [("/srv/blog", "US-1"), ("/srv/shop", "US-1")]),
        ("executor", [("claude",)]),
        ("project", [("/srv/blog",), ("/srv/shop",)]),
    ],
)
async def test_every_grouping_has_its_columns(spent: Journal, by: Grouping, keys: list[Any]) -> None:
    """Stories of two projects may have the same name."""
    assert keys == [one.key for one in await spent.usage(by)]


async def test_sums_of_costs_from_two_places_are_marked(spent: Journal) -> None:
    """One was reported, one reckoned."""
    (found,) = await spent.usage("step")
    assert ONE + PAID + RECKONED == found.usage
    assert "mixed" == found.usage.priced


@pytest.mark.usefixtures("taipei")
async def test_a_day_is_that_of_the_machine(spent: Journal) -> None:
    """22:15 UTC is the next morning in Taipei."""
    assert [("2026-02-01",), ("2026-02-02",)] == [one.key for one in await spent.usage("day")]


async def test_only_what_ended_since_then_counts(spent: Journal) -> None:
    """And only of the project that was named."""
    late = NOW + timedelta(hours=1)
    assert [("/srv/blog",)] == [one.key for one in await spent.usage("project", since=late)]
    assert () == await spent.usage("project", since=late, project="/srv/shop")


async def test_a_number_that_no_run_can_have_does_not_break_the_sums(spent: Journal) -> None:
    """An agent may report any."""
    for run in range(12):
        await ran(spent, f"h{run}", Usage(input_tokens=2**80))
    assert 12 * 10**12 <= (await spent.usage("executor"))[0].usage.input_tokens < 2**63


async def test_an_end_that_is_reported_twice_is_booked_once(spent: Journal) -> None:
    """The first report stays."""
    await ran(spent, "a2", ONE)
    shop = (await spent.usage("project"))[1]
    assert ONE + PAID == shop.usage


async def test_the_usage_of_a_journal_of_schema_3_is_unknown(golden: Golden) -> None:
    """Its runs are counted all the same."""
    async with opened(golden(3)) as journal:
        (shop,) = await journal.usage("project")
    assert (1, 0, Usage()) == (shop.runs, shop.measured, shop.usage)


async def test_a_journal_of_schema_4_has_its_usage(golden: Golden) -> None:
    """In its rows, and in the exits that they come from."""
    async with opened(golden(4)) as journal:
        (shop,) = await journal.usage("project")
        ended = next(run for run in await journal.runs() if run.exit is not None)
    assert ended.exit is not None
    assert "claude-sonnet-4-5" == ended.exit.model
    assert shop.usage == ended.usage
    assert 0.25 == shop.usage.cost_usd


def test_every_grouping_is_known() -> None:
    """A new one is tried above, or this fails."""
    assert {"step", "story", "project", "day", "executor"} == set(get_args(Grouping))
