"""The table of dispatches, written again from what was recorded."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.recorded import BLOG, SHOP, RecordedPlay, spoil, story, write
from tests.unit.journal.making import KEY, NOW, dispatch

from handoffd.engine.events import Initialised
from handoffd.engine.run import Exit
from handoffd.journal.dispatches import DerivedDispatches, DispatchRow, row, rows


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
    for seq, record in enumerate((one for play in plays for one in play.records), start=1):
        derived.write(seq, record)

    made = {one.id: one for one in derived.rows(None)}
    assert kept(path) == made
    assert {None, "pass", "failing"} <= {one.values["result"] for one in made.values()}


def test_rows_are_found_by_project_and_by_id(path: Path) -> None:
    """As they are written."""
    assert {"/srv/blog"} == {one.key.project for one in kept(path, BLOG.project).values()}
    with closing(sqlite3.connect(path)) as db:
        found = row(db, "blog-1")
        assert None is row(db, "nobody")
    assert found is not None
    assert ("blog-1", BLOG, "rehearsal") == (found.id, found.key, found.values["executor"])


def test_a_run_that_was_in_flight_before_is_begun(derived: DerivedDispatches) -> None:
    """With what its track knows of it."""
    derived.begin(KEY, 7, dispatch("d7"))

    found = derived.row("d7")
    assert found is not None
    assert (7, KEY, "bdd", 1, "claude", None) == (
        found.seq, found.key, found.values["step"], found.values["attempt"], found.values["executor"],
        found.value("exit"),
    )  # fmt: skip
    assert found.values["decided_at"] == NOW.isoformat()


def test_what_an_earlier_release_wrote_with_fewer_fields_means_the_same(path: Path) -> None:
    """Text that cannot be read means nothing but itself."""
    before = kept(path)["shop-1"]
    shorter = {"code": before.values["exit"] and json.loads(before.values["exit"])["code"]}

    spoil(path, "UPDATE dispatches SET exit = :exit", values={"exit": json.dumps(shorter)})
    assert Exit(code=0) == replace(kept(path)["shop-1"].value("exit"), seconds=0)  # type: ignore[type-var]

    spoil(path, "UPDATE dispatches SET exit = '{'")
    assert "{" == kept(path)["shop-1"].value("exit")
