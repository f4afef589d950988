from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from handoffd.errors import StoreError
from handoffd.journal.database import open_database, open_reader
from handoffd.journal.schema import VERSION


def pragma(connection: sqlite3.Connection, name: str) -> object:
    """Return the value of a setting of SQLite."""
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_a_new_journal_is_private_and_durable(tmp_path: Path) -> None:
    """Nobody else reads it, and a commit is on the disk when it returns."""
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


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    """A state directory in a shared place must not lock its other users out."""
    tmp_path.chmod(0o755)

    open_database(tmp_path / "journal.db").close()

    assert 0o755 == stat.S_IMODE(tmp_path.stat().st_mode)


def test_an_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    """A crash between creating the file and its tables does no harm."""
    path = tmp_path / "journal.db"
    path.touch()

    open_database(path).close()

    with closing(open_reader(path)) as reader:
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
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = '999'")


def estrange(path: Path) -> None:
    """Put another program's database in its place."""
    path.unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (damage, "CORRUPT_JOURNAL"),
        (truncate, "CORRUPT_JOURNAL"),
        (scribble, "NOT_A_JOURNAL"),
        (estrange, "NOT_A_JOURNAL"),
        (modernise, "NEWER_SCHEMA"),
    ],
)
def test_what_cannot_be_used_is_refused_and_left_alone(tmp_path: Path, spoil: object, code: str) -> None:
    """A file we cannot read is somebody's history: reported with a remedy, never replaced."""
    path = tmp_path / "journal.db"
    open_database(path).close()
    assert callable(spoil)
    spoil(path)
    before = hashlib.sha256(path.read_bytes()).hexdigest()

    with pytest.raises(StoreError) as caught:
        open_database(path)

    assert code == caught.value.code
    assert str(path) in caught.value.message
    assert caught.value.hint
    assert before == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_place_that_cannot_hold_it_is_named(tmp_path: Path) -> None:
    """The error says which path, not only what the kernel said."""
    (tmp_path / "state").write_text("a file where a folder is needed")

    with pytest.raises(StoreError, match="cannot open the journal") as caught:
        open_database(tmp_path / "state" / "journal.db")

    assert str(tmp_path / "state") in caught.value.message
