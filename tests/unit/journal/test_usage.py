"""Sums of what runs used: by group, by day, and never of what is not known."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.unit.journal.making import GOLDEN, KEY, NOW, dispatch, opened, record, track

from handoffd.engine.events import ExecutorExited
from handoffd.engine.run import Exit, Usage
from handoffd.engine.track import TrackKey
from handoffd.journal.dispatches import Grouping
from handoffd.journal.journal import Journal
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import Status

BLOG = TrackKey("/srv/blog")
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
async def journal(tmp_path: Path) -> Any:
    """A journal in which two projects have spent something."""
    async with opened(tmp_path / "journal.db") as opened_journal:
        await ran(opened_journal, "a1", ONE, model="claude-x")
        await ran(opened_journal, "a2", PAID)
        await ran(opened_journal, "a3", None)
        await ran(opened_journal, "b1", RECKONED, key=BLOG, at=NOW + timedelta(days=1))
        await opened_journal.commit(record(after=track(status=Status.RUNNING, dispatch=dispatch("a4"))))
        yield opened_journal


@pytest.fixture
def taipei() -> Iterator[None]:
    """A machine eight hours ahead."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Taipei"
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


async def test_runs_are_summed_by_project(journal: Journal) -> None:
    """Those that have ended; what is not known of one is no zero of all."""
    blog, shop = await journal.usage("project")
    assert (("/srv/blog",), 1, 1, 0, RECKONED) == (
        blog.key, blog.runs, blog.measured, blog.unpriced, blog.usage,
    )  # fmt: skip
    assert (("/srv/shop",), 3, 2, 1, ONE + PAID) == (
        shop.key, shop.runs, shop.measured, shop.unpriced, shop.usage,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("step", [("bdd",)]),
        ("story", [("/srv/blog", "US-1"), ("/srv/shop", "US-1")]),
        ("executor", [("claude",)]),
        ("project", [("/srv/blog",), ("/srv/shop",)]),
    ],
)
async def test_every_grouping_has_its_columns(journal: Journal, by: Grouping, keys: list[Any]) -> None:
    """Stories of two projects may have the same name."""
    assert keys == [one.key for one in await journal.usage(by)]


async def test_sums_of_all_say_that_costs_come_from_two_places(journal: Journal) -> None:
    """One was reported, one reckoned."""
    (found,) = await journal.usage("step")
    assert ONE + PAID + RECKONED == found.usage
    assert "mixed" == found.usage.priced


@pytest.mark.usefixtures("taipei")
async def test_a_day_is_that_of_the_machine(journal: Journal) -> None:
    """22:15 UTC is the next morning in Taipei."""
    assert [("2026-02-01",), ("2026-02-02",)] == [one.key for one in await journal.usage("day")]


async def test_only_what_ended_since_then_counts(journal: Journal) -> None:
    """And only of the project that was named."""
    late = NOW + timedelta(hours=1)
    assert [("/srv/blog",)] == [one.key for one in await journal.usage("project", since=late)]
    assert () == await journal.usage("project", since=late, project="/srv/shop")


async def test_a_number_that_no_run_can_have_does_not_break_the_sums(journal: Journal) -> None:
    """It is an agent's word."""
    for run in range(12):
        await ran(journal, f"h{run}", Usage(input_tokens=2**80))
    assert 12 * 10**12 <= (await journal.usage("executor"))[0].usage.input_tokens < 2**63


async def test_an_end_that_is_told_twice_is_booked_once(journal: Journal) -> None:
    """The first word stays."""
    await ran(journal, "a2", ONE)
    shop = (await journal.usage("project"))[1]
    assert ONE + PAID == shop.usage


async def test_a_journal_of_before_has_used_nothing_that_is_known(tmp_path: Path) -> None:
    """Its runs are counted all the same."""
    shutil.copy(GOLDEN / "schema-3.db", tmp_path / "journal.db")
    async with opened(tmp_path / "journal.db") as old:
        (shop,) = await old.usage("project")
    assert (1, 0, Usage()) == (shop.runs, shop.measured, shop.usage)


async def test_a_journal_of_schema_4_has_its_usage(tmp_path: Path) -> None:
    """In its rows, and in the exits that they come from."""
    shutil.copy(GOLDEN / "schema-4.db", tmp_path / "journal.db")
    async with opened(tmp_path / "journal.db") as golden:
        (shop,) = await golden.usage("project")
        ended = next(run for run in await golden.runs() if run.exit is not None)
    assert ended.exit is not None
    assert "claude-sonnet-4-5" == ended.exit.model
    assert shop.usage == ended.usage
    assert 0.25 == shop.usage.cost_usd


def test_every_grouping_is_known() -> None:
    """One that somebody adds is tried above, or this fails."""
    assert {"step", "story", "project", "day", "executor"} == set(get_args(Grouping))
