"""The journal's file: opened, looked at from outside, migrated, checked."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.support.children import ending
from tests.support.recorded import SHOP, spoil
from tests.unit.journal.making import NOW

from handoffd.errors import StoreError
from handoffd.journal.database import (
    Fault,
    gaps,
    glance,
    integrity,
    open_database,
    open_reader,
    projections,
    projects,
    references,
    restores,
    supervised_elsewhere,
    trusted_of,
)
from handoffd.journal.journal import Journal
from handoffd.journal.schema import STEPS, VERSION, Step, migrate, version_of

Question = Callable[[sqlite3.Connection], Iterable[Fault]]


# --- opening it ---------------------------------------------------------------------------------------
def pragma(connection: sqlite3.Connection, name: str) -> object:
    """Return the value of a setting of SQLite."""
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_a_new_journal_is_private_and_durable(tmp_path: Path) -> None:
    """Only its owner reads it, and a commit is on the disk when it returns."""
    path = tmp_path / "handoffd" / "journal.db"

    with closing(open_database(path)) as connection:
        assert ("wal", 2, 1) == tuple(
            pragma(connection, n) for n in ("journal_mode", "synchronous", "foreign_keys")
        )
        assert 1000 <= int(str(pragma(connection, "busy_timeout")))

        files = sorted(path.parent.iterdir())
        assert ["journal.db", "journal.db-shm", "journal.db-wal"] == [file.name for file in files]
        assert {0o600} == {stat.S_IMODE(file.stat().st_mode) for file in files}
        assert 0o700 == stat.S_IMODE(path.parent.stat().st_mode)


def test_an_empty_file_in_a_shared_folder_becomes_a_journal(place: Path) -> None:
    """As a crash before the tables leaves it; the folder keeps its mode for its other users."""
    place.touch()
    place.parent.chmod(0o755)

    open_database(place).close()

    assert 0o755 == stat.S_IMODE(place.parent.stat().st_mode)
    with closing(open_reader(place)) as reader:
        assert [(str(VERSION),)] == reader.execute("SELECT value FROM meta").fetchall()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    """Questions change nothing."""
    path = tmp_path / "journal #1?.db"
    open_database(path).close()

    with closing(open_reader(path)) as reader, pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM projects")


def damage(path: Path) -> None:
    """Overwrite the second half of a database."""
    with path.open("r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        file.write(b"\x5a" * (os.path.getsize(path) // 2))


def truncate(path: Path) -> None:
    """Cut a database in half."""
    os.truncate(path, os.path.getsize(path) // 2)


def scribble(path: Path) -> None:
    """Put something else in the place of a database."""
    path.write_bytes(b"STATE of the nation\n" * 500)


def modernise(path: Path) -> None:
    """Pretend that a later release wrote it."""
    spoil(path, "UPDATE meta SET value = '999'")


def estrange(path: Path) -> None:
    """Put another program's database in its place."""
    path.unlink()
    spoil(path, "CREATE TABLE bookmarks (url)")


@pytest.mark.parametrize(
    ("ruin", "code", "use"),
    [
        (damage, "CORRUPT_JOURNAL", open_database),
        (truncate, "CORRUPT_JOURNAL", open_database),
        (scribble, "NOT_A_JOURNAL", open_database),
        (estrange, "NOT_A_JOURNAL", open_database),
        (modernise, "NEWER_SCHEMA", open_database),
        (scribble, "NOT_A_JOURNAL", glance),
        (modernise, "NEWER_SCHEMA", glance),
    ],
)
def test_an_unusable_journal_is_refused_and_left_alone(
    place: Path, ruin: Callable[[Path], None], code: str, use: Callable[[Path], object]
) -> None:
    """It may hold a user's history: the error names a remedy, and the file is never replaced."""
    open_database(place).close()
    ruin(place)
    before = hashlib.sha256(place.read_bytes()).hexdigest()

    with pytest.raises(StoreError) as caught:
        use(place)

    assert code == caught.value.code
    assert str(place) in caught.value.message
    assert caught.value.hint
    assert before == hashlib.sha256(place.read_bytes()).hexdigest()


def test_a_place_that_cannot_hold_it_is_named(tmp_path: Path) -> None:
    """The error says which path, not only what the kernel said."""
    (tmp_path / "state").write_text("a file where a folder is needed")

    with pytest.raises(StoreError, match="cannot open the journal") as caught:
        open_database(tmp_path / "state" / "journal.db")

    assert str(tmp_path / "state") in caught.value.message


# --- a look from outside ------------------------------------------------------------------------------
async def test_a_glance_shows_schema_and_roots(journal: Journal, place: Path) -> None:
    """While a daemon has the journal open for writing."""
    await journal.add_project("/srv/shop", "shop", NOW)
    found = glance(place)

    assert found is not None
    assert (VERSION, ("/srv/shop",)) == (found.schema, found.roots)


async def test_what_a_person_trusts_is_read_from_outside(journal: Journal, place: Path) -> None:
    """Of a supervised project; of another one nothing is known."""
    await journal.trust("/srv/shop", ".ai/handoffd.yaml", "language: en\n", NOW)
    assert trusted_of(place, "/srv/shop") is None

    await journal.add_project("/srv/shop", "shop", NOW)

    assert {".ai/handoffd.yaml": "language: en\n"} == trusted_of(place, "/srv/shop")
    assert trusted_of(place, "/srv/other") is None
    assert trusted_of(place.with_name("none.db"), "/srv/shop") is None


def test_no_journal_is_none_and_an_empty_one_is_empty(place: Path) -> None:
    """Nothing is made by looking."""
    assert glance(place) is None
    assert not place.exists()
    place.touch()
    found = glance(place)
    assert found is not None
    assert (0, ()) == (found.schema, found.roots)


_A_DAEMON_AND_ITS_CHILD = """
import os, subprocess, sys
from pathlib import Path
from handoffd.files.locks import acquire
lock = acquire(Path(sys.argv[1]), "it")
(handle,) = [n for n in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{n}") == sys.argv[1]]
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[int(handle)])
print(os.getpid(), flush=True)
sys.stdin.read()
child.communicate()
"""


@contextmanager
def locking(lock: Path) -> Iterator[int]:
    """Yield the pid of a process that has a lock, whose child has the lock's descriptor as well."""
    process = subprocess.Popen(
        [sys.executable, "-c", _A_DAEMON_AND_ITS_CHILD, str(lock)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with ending(process):
        assert process.stdout
        yield int(process.stdout.readline())
        assert process.stdin
        process.stdin.close()


async def test_a_project_elsewhere_belongs_to_the_daemon_that_signed(journal: Journal, place: Path) -> None:
    """Not to a child of it, which has its descriptors until it begins its own program."""
    await journal.add_project("/srv/shop", "shop", NOW)
    with locking(place.parent / "daemon.lock") as daemon:
        found = supervised_elsewhere(place.parent / "another" / place.name)

    assert (daemon, place.parent) == (found["/srv/shop"].pid, found["/srv/shop"].state_dir)


# --- the schema ---------------------------------------------------------------------------------------
@pytest.fixture
def empty() -> Iterator[sqlite3.Connection]:
    """An empty database in autocommit mode."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


@pytest.fixture
def migrated(empty: sqlite3.Connection) -> sqlite3.Connection:
    """A database of the current schema."""
    migrate(empty, "journal.db")
    return empty


def test_only_the_first_migration_has_work_to_do(empty: sqlite3.Connection) -> None:
    """Version 0 is the empty file; every start migrates."""
    assert 0 == version_of(empty, "journal.db")

    migrate(empty, "journal.db")
    assert VERSION == version_of(empty, "journal.db")

    before = list(empty.iterdump())
    migrate(empty, "journal.db")
    assert before == list(empty.iterdump())


def test_a_later_step_goes_on_from_where_the_file_is(migrated: sqlite3.Connection) -> None:
    """An old journal keeps its rows and gets what is new."""
    migrated.execute("INSERT INTO projects (root, name, added_at) VALUES ('/srv/shop', 'shop', '2026-01-31')")

    migrate(migrated, "journal.db", (*STEPS, ("ALTER TABLE projects ADD COLUMN colour TEXT",)))

    assert VERSION + 1 == version_of(migrated, "journal.db")
    assert [("shop", None)] == migrated.execute("SELECT name, colour FROM projects").fetchall()


def test_a_step_that_fails_leaves_the_file_as_it_was(migrated: sqlite3.Connection) -> None:
    """Half a migration does not exist."""
    before = list(migrated.iterdump())
    broken: Step = ("CREATE TABLE whole (x INTEGER) STRICT", "CREATE TABLE half (x) STRICT")

    with pytest.raises(sqlite3.OperationalError):
        migrate(migrated, "journal.db", (*STEPS, broken))

    assert before == list(migrated.iterdump())
    assert not migrated.in_transaction


def test_a_newer_schema_is_refused(empty: sqlite3.Connection) -> None:
    """What we do not know we do not touch."""
    migrate(empty, "journal.db", (*STEPS, ("CREATE TABLE later (x INTEGER) STRICT",)))

    with pytest.raises(StoreError, match="newer handoffd") as caught:
        migrate(empty, "journal.db")

    assert "NEWER_SCHEMA" == caught.value.code
    assert caught.value.hint is not None


@pytest.mark.parametrize("statement", ["CREATE TABLE moz_places (url)", "CREATE TABLE meta (key, value)"])
def test_a_foreign_database_is_refused(empty: sqlite3.Connection, statement: str) -> None:
    """Another program's tables are not mixed with ours."""
    empty.execute(statement)

    with pytest.raises(StoreError, match=r"no journal of handoffd") as caught:
        migrate(empty, "places.sqlite")

    assert "NOT_A_JOURNAL" == caught.value.code


@pytest.mark.parametrize("statement", ["UPDATE events SET why = 'forged'", "DELETE FROM events"])
def test_events_can_only_be_added(migrated: sqlite3.Connection, statement: str) -> None:
    """History is not rewritten, not even by our own mistakes."""
    migrated.execute(
        "INSERT INTO events (at, project, track, kind, event, result, why)"
        " VALUES ('t', 'p', 'main', 'k', '{}', '{}', 'w')"
    )

    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        migrated.execute(statement)


# --- what can be wrong with it ------------------------------------------------------------------------
def ask(path: Path, question: Question) -> list[tuple[str, int | None]]:
    """Return kinds and numbers of the faults that are found."""
    with closing(sqlite3.connect(path)) as db:
        return [(fault.kind, fault.seq) for fault in question(db)]


def messages(path: Path, question: Question) -> list[str]:
    """Return the faults in words."""
    with closing(sqlite3.connect(path)) as db:
        return [fault.message for fault in question(db)]


def newest(path: Path) -> int:
    """Return the highest number."""
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT max(seq) FROM events").fetchone()[0])


def test_a_sound_journal_has_no_fault(recorded: Path) -> None:
    """As the daemon leaves it."""
    for question in (integrity, references, gaps, projections, projects):
        assert [] == ask(recorded, question), question.__name__


def test_missing_events_are_found_wherever_they_are_missing(recorded: Path) -> None:
    """At the beginning, in the middle, several in a row, and at the end."""
    last = newest(recorded)

    spoil(recorded, f"DELETE FROM events WHERE seq IN (1, 5, 6, {last})")

    assert [("missing", 1), ("missing", 5), ("missing", last)] == ask(recorded, gaps)
    assert "events 5 to 6 are missing" in messages(recorded, gaps)


def test_numbers_that_a_restore_left_out_are_not_missing(recorded: Path) -> None:
    """They go on above the numbers of the journal that was replaced."""
    last = newest(recorded)
    note = json.dumps([{"at": "2026-01-31T22:15:09+00:00", "after": last, "next": last + 10}])

    spoil(recorded, f"UPDATE sqlite_sequence SET seq = {last + 9} WHERE name = 'events'")
    assert [("missing", last + 1)] == ask(recorded, gaps)

    spoil(recorded, "INSERT INTO meta VALUES ('restored', :note)", values={"note": note})
    assert [] == ask(recorded, gaps)
    with closing(sqlite3.connect(recorded)) as db:
        assert [last] == [one["after"] for one in restores(db)]


def test_rows_that_belong_to_nothing_are_found(recorded: Path) -> None:
    """Effects, tracks and dispatches of an event that is gone."""
    spoil(recorded, "DELETE FROM events WHERE seq = 3")

    assert {"reference"} == {kind for kind, _ in ask(recorded, references)}


def test_texts_of_state_that_no_event_made_are_found(recorded: Path) -> None:
    """They could make a user's edit look like ours."""
    spoil(recorded, f"INSERT INTO projections VALUES ('{SHOP.project}', 'main', 'forged', 2)")
    assert [("projection", 2)] == ask(recorded, projections)

    spoil(recorded, "DELETE FROM projections")
    assert [("projection", None)] == ask(recorded, projections)


def test_projects_that_are_not_in_the_list_are_found(recorded: Path) -> None:
    """By a track, an event or a dispatch of theirs; one that was removed is in the list."""
    spoil(recorded, "UPDATE projects SET removed_at = '2026-02-01'")
    assert [] == ask(recorded, projects)

    newest_run = "SELECT max(seq) FROM dispatches"
    spoil(recorded, f"UPDATE dispatches SET project = '/srv/forged' WHERE seq = ({newest_run})")
    assert ["/srv/forged has a history, but is not in the list of projects"] == messages(recorded, projects)

    spoil(recorded, "DELETE FROM projects", "DELETE FROM tracks")
    assert [("project", None)] * 2 == ask(recorded, projects)


def test_a_damaged_file_is_described(recorded: Path) -> None:
    """In SQLite's words, without a traceback."""
    content = bytearray(recorded.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    recorded.write_bytes(content)

    assert {"damaged"} == {kind for kind, _ in ask(recorded, integrity)}
