"""A row that was changed by hand, made again: what is proved is written, and nothing else."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.recorded import SHOP, spoil, story, write
from tests.unit.journal.making import GOLDEN

import handoffd
from handoffd.engine.track import Ledger
from handoffd.errors import StoreError
from handoffd.journal import queries
from handoffd.journal.backup import Made, repair
from handoffd.journal.database import open_database, open_reader
from handoffd.journal.records import StoredTrack


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The journal of one project."""
    path = tmp_path / "journal.db"
    write(path, story())
    return path


def track_in(path: Path) -> StoredTrack:
    """Return the first track of a journal."""
    with closing(open_reader(path)) as db:
        return next(iter(queries.tracks(db)))


def made_of(stored: StoredTrack) -> Made:
    """Return what the events of a track make of it."""
    return Made(track=stored.track, seq=stored.seq, digest=stored.digest, engine=handoffd.__version__)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE tracks SET body = '{}', step = 'done'",
        "UPDATE tracks SET seq = 1, digest = 'x'",
        "DELETE FROM tracks",
    ],
)
def test_what_its_events_make_of_it_is_written(path: Path, change: str) -> None:
    """Every column of the row is as it was."""
    before = track_in(path)
    spoil(path, change)

    done = repair(path, {SHOP: made_of(before)})

    assert ([SHOP], {}) == ([*done.made], done.left)
    assert before == track_in(path)
    assert {} == repair(path, {SHOP: made_of(before)}).made


def test_what_has_another_digest_is_not_written(path: Path) -> None:
    """Then only a backup tells; but another release may have spelled the same in another way."""
    before = track_in(path)
    spoil(path, "UPDATE tracks SET body = '{}'")
    other = replace(made_of(before), track=replace(before.track, ledger=Ledger()))

    assert [SHOP] == [*repair(path, {SHOP: other}).left] == [*repair(path, {}).left]
    assert track_in(path).unsound is not None

    assert [SHOP] == [*repair(path, {SHOP: replace(other, engine="0.1")}).made]
    assert (other.track, None) == (track_in(path).track, track_in(path).unsound)
    with closing(open_database(path)) as db, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute("UPDATE events SET why = ''")


@pytest.mark.parametrize("version", [1, 3, 4, 5, 6, 7, 8, 9, 10])
def test_an_older_journal_is_taken_as_it_is_when_it_is_migrated(tmp_path: Path, version: int) -> None:
    """What is changed after that is found, and can be put back."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / f"schema-{version}.db", path)
    assert track_in(path).unsound is None  # looked at before it was migrated
    open_database(path).close()
    before = track_in(path)
    assert before.unsound is None

    spoil(path, f"UPDATE tracks SET body = '{{}}' WHERE project = '{before.key.project}'")

    assert (
        f"its body is not the one that event {before.seq}, its last one, has left" == track_in(path).unsound
    )
    repair(path, {before.key: replace(made_of(before), engine=None)})
    assert before == track_in(path)


def test_a_journal_that_is_none_is_refused(tmp_path: Path) -> None:
    """And left alone."""
    (tmp_path / "journal.db").write_text("no database " * 100)

    with pytest.raises(StoreError):
        repair(tmp_path / "journal.db", {})
