"""A backup put in the journal's place."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.recorded import BLOG, story, write
from tests.unit.journal.making import GOLDEN, opened, record

from handoffd.engine.decision import AppendHistory, Notify, Spawn
from handoffd.errors import Refused, StoreError
from handoffd.journal.backup import back_up, exchange, inspect, inspect_backup, made_ready
from handoffd.journal.database import gaps, restores
from handoffd.journal.schema import VERSION

AT = datetime(2026, 2, 1, 7, 30, tzinfo=UTC)
SPAWN = Spawn(dispatch="d1", executor="claude", story="US-1", step="bdd", attempt=1, timeout_min=5)
TELL = Notify(notice="done", story="US-1", step="done", text="done")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal that has gone on since its backup."""
    path = tmp_path / "state/journal.db"
    write(path, story())
    back_up(path, tmp_path / "monday.db")
    write(path, story(BLOG))
    return path


@pytest.fixture
def monday(journal: Path, tmp_path: Path) -> Path:
    """That backup."""
    return tmp_path / "monday.db"


def rows(path: Path, query: str) -> list[Any]:
    """Return what a query finds."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def test_the_replaced_journal_is_kept_and_the_backup_is_in_its_place(journal: Path, monday: Path) -> None:
    """Both whole; nothing else is left in the folder."""
    newest = inspect(journal).newest

    kept = exchange(made_ready(monday, journal, AT), journal, AT)

    assert journal.with_name("journal.db.before-20260201T073000Z") == kept
    assert {"journal.db", kept.name} == set(os.listdir(journal.parent))
    assert (newest, inspect(monday).newest) == (inspect(kept).newest, inspect(journal).newest)
    assert 0o600 == journal.stat().st_mode & 0o777


def test_numbers_go_on_above_those_that_were_used(journal: Path, monday: Path) -> None:
    """Readers and receivers remember them; what is left out is written down, and is no gap."""
    used, newest = inspect(journal).newest, inspect(monday).newest

    exchange(made_ready(monday, journal, AT), journal, AT)

    with closing(sqlite3.connect(journal)) as db:
        assert ({"at": AT.isoformat(), "after": newest, "next": used + 1},) == restores(db)
        assert [] == list(gaps(db))
    write(journal, story(BLOG))
    assert [(used + 1,)] == rows(journal, f"SELECT min(seq) FROM events WHERE project = '{BLOG.project}'")
    with closing(sqlite3.connect(journal)) as db:
        assert [] == list(gaps(db))


def test_numbers_jump_when_nobody_knows_how_far_they_had_come(journal: Path, monday: Path) -> None:
    """The replaced journal cannot be read: that is why it is replaced."""
    journal.write_bytes(b"no database any more" * 500)

    kept = exchange(made_ready(monday, journal, AT), journal, AT)

    assert kept is not None
    assert kept.read_bytes().startswith(b"no database any more")
    assert {(1_000_000,)} == set(rows(journal, "SELECT seq FROM sqlite_sequence"))


def test_a_damaged_journal_takes_its_write_ahead_log_along(journal: Path, monday: Path) -> None:
    """It could not be folded in, and belongs to what it was written for."""
    journal.write_bytes(b"no database any more" * 500)
    log = Path(f"{journal}-wal")
    log.write_bytes(b"what was committed last")

    kept = exchange(made_ready(monday, journal, AT), journal, AT)

    assert b"what was committed last" == Path(f"{kept}-wal").read_bytes()
    assert not log.exists()


def test_a_journal_that_is_gone_is_replaced_by_nothing(journal: Path, monday: Path) -> None:
    """There is nothing to keep then."""
    journal.unlink()

    assert None is exchange(made_ready(monday, journal, AT), journal, AT)
    assert inspect(monday).newest == inspect(journal).newest


async def test_what_the_other_life_has_written_is_not_written_over(tmp_path: Path) -> None:
    """Entries of the history are done; a start is judged by its records, a notice has its old id."""
    path, copy = tmp_path / "journal.db", tmp_path / "monday.db"
    async with opened(path) as journal:
        await journal.commit(record(effects=(TELL, AppendHistory(text="### Reopen"), SPAWN)))
    back_up(path, copy)

    ready = made_ready(copy, path, AT)

    assert [(None,), ("restored",), (None,)] == rows(ready, "SELECT outcome FROM effects ORDER BY id")


def test_an_older_backup_is_migrated_and_a_newer_one_refused(journal: Path, monday: Path) -> None:
    """A backup of years ago is a backup; one of a later release is left alone."""
    old = monday.with_name("old.db")
    shutil.copy(GOLDEN / "schema-1.db", old)
    assert 1 == inspect_backup(old, journal).schema
    assert VERSION == inspect(made_ready(old, journal, AT)).schema
    assert 1 == inspect(old).schema

    with closing(sqlite3.connect(monday)) as db:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
        db.commit()
    with pytest.raises(StoreError) as caught:
        inspect_backup(monday, journal)
    assert "NEWER_SCHEMA" == caught.value.code


def test_what_is_no_backup_is_refused(journal: Path, tmp_path: Path) -> None:
    """The journal itself, a file that is missing, damaged or something else."""
    text = tmp_path / "text.db"
    text.write_text("not a database, whatever it is called" * 100, encoding="utf-8")

    with pytest.raises(Refused):
        inspect_backup(journal, journal)
    for file in (text, tmp_path / "none.db"):
        with pytest.raises(StoreError):
            inspect_backup(file, journal)


def test_an_exchange_that_fails_leaves_the_journal(journal: Path, monday: Path) -> None:
    """What is in the way is not written over."""
    newest, ready = inspect(journal).newest, made_ready(monday, journal, AT)
    journal.with_name("journal.db.before-20260201T073000Z").mkdir()

    with pytest.raises(StoreError, match="cannot replace the journal"):
        exchange(ready, journal, AT)

    assert newest == inspect(journal).newest


def test_what_a_broken_restore_left_is_cleared_away(journal: Path, monday: Path) -> None:
    """A crash may have left a copy that was not ready."""
    journal.with_name("journal.db.restoring").write_text("half", encoding="utf-8")

    assert inspect(monday).newest == inspect(made_ready(monday, journal, AT)).newest


def test_a_write_ahead_log_does_not_meet_the_wrong_journal(journal: Path, monday: Path) -> None:
    """A process that was killed leaves one; SQLite would take it for the new journal's."""
    with closing(sqlite3.connect(journal)) as db:
        db.execute("INSERT INTO projects (root, name, added_at) VALUES ('/srv/late', 'late', '2026-01-31')")
        db.commit()
        leftovers = {suffix: Path(f"{journal}{suffix}").read_bytes() for suffix in ("-wal", "-shm")}
    for suffix, content in leftovers.items():
        Path(f"{journal}{suffix}").write_bytes(content)

    kept = exchange(made_ready(monday, journal, AT), journal, AT)

    assert kept is not None
    late = "SELECT name FROM projects WHERE name = 'late'"
    assert ([], [("late",)]) == (rows(journal, late), rows(kept, late))
