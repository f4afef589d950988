from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from handoffd.errors import StoreError
from handoffd.journal.schema import STEPS, VERSION, Step, migrate, version_of


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """An empty database in autocommit mode."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def test_an_empty_database_gets_the_current_schema(db: sqlite3.Connection) -> None:
    """Version 0 is the empty file."""
    assert 0 == version_of(db, "journal.db")

    migrate(db, "journal.db")

    assert VERSION == version_of(db, "journal.db")


def test_migrating_again_changes_nothing(db: sqlite3.Connection) -> None:
    """Every start migrates; only the first has work to do."""
    migrate(db, "journal.db")
    before = list(db.iterdump())

    migrate(db, "journal.db")

    assert before == list(db.iterdump())


def test_a_later_step_goes_on_from_where_the_file_is(db: sqlite3.Connection) -> None:
    """An old journal keeps its rows and gets what is new."""
    migrate(db, "journal.db")
    db.execute("INSERT INTO projects (root, name, added_at) VALUES ('/srv/shop', 'shop', '2026-01-31')")

    migrate(db, "journal.db", (*STEPS, ("ALTER TABLE projects ADD COLUMN colour TEXT",)))

    assert VERSION + 1 == version_of(db, "journal.db")
    assert [("shop", None)] == db.execute("SELECT name, colour FROM projects").fetchall()


def test_a_step_that_fails_leaves_the_file_as_it_was(db: sqlite3.Connection) -> None:
    """Half a migration does not exist."""
    migrate(db, "journal.db")
    before = list(db.iterdump())
    broken: Step = ("CREATE TABLE half (x) STRICT", "CREATE TABLE whole (x INTEGER) STRICT")

    with pytest.raises(sqlite3.OperationalError):
        migrate(db, "journal.db", (*STEPS, tuple(reversed(broken))))

    assert before == list(db.iterdump())
    assert not db.in_transaction


def test_a_newer_schema_is_refused(db: sqlite3.Connection) -> None:
    """What we do not know we do not touch."""
    migrate(db, "journal.db", (*STEPS, ("CREATE TABLE later (x INTEGER) STRICT",)))

    with pytest.raises(StoreError, match="newer handoffd") as caught:
        migrate(db, "journal.db")

    assert "NEWER_SCHEMA" == caught.value.code
    assert caught.value.hint is not None


@pytest.mark.parametrize("statement", ["CREATE TABLE moz_places (url)", "CREATE TABLE meta (key, value)"])
def test_a_foreign_database_is_refused(db: sqlite3.Connection, statement: str) -> None:
    """Somebody else's tables are not mixed with ours."""
    db.execute(statement)

    with pytest.raises(StoreError, match=r"no journal of handoffd") as caught:
        migrate(db, "places.sqlite")

    assert "NOT_A_JOURNAL" == caught.value.code


@pytest.mark.parametrize("statement", ["UPDATE events SET why = 'forged'", "DELETE FROM events"])
def test_events_can_only_be_added(db: sqlite3.Connection, statement: str) -> None:
    """History is not rewritten, not even by our own mistakes."""
    migrate(db, "journal.db")
    db.execute(
        "INSERT INTO events (at, project, track, kind, event, result, why)"
        " VALUES ('t', 'p', 'main', 'k', '{}', '{}', 'w')"
    )

    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute(statement)
