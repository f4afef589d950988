from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually
from tests.unit.journal.making import NOW, opened

from handoffd.errors import StoreError
from handoffd.journal.connections import Readers


def count(db: sqlite3.Connection) -> int:
    """Return how many projects there are."""
    return int(db.execute("SELECT count(*) FROM projects").fetchone()[0])


async def test_a_slow_reader_neither_waits_nor_blocks(tmp_path: Path) -> None:
    """A reader in the middle of a question sees the past; the writer goes on."""
    entered, go_on, seen = threading.Event(), threading.Event(), list[int]()

    def slowly(db: sqlite3.Connection) -> None:
        db.execute("BEGIN")
        seen.append(count(db))
        entered.set()
        assert go_on.wait(60)
        seen.append(count(db))
        db.execute("COMMIT")

    async with opened(tmp_path / "journal.db") as journal, anyio.create_task_group() as group:
        readers = Readers(tmp_path / "journal.db")
        group.start_soon(readers.run, "count", slowly)
        await eventually(entered.is_set)
        await journal.add_project("/srv/shop", "shop", NOW)
        assert 1 == await readers.run("count", count)
        go_on.set()
        await eventually(lambda: len(seen) == 2)
        readers.close()

    assert [0, 0] == seen


async def test_a_question_that_fails_is_explained(tmp_path: Path) -> None:
    """Errors of reading name the file and what was asked."""
    async with opened(tmp_path / "journal.db"):
        readers = Readers(tmp_path / "journal.db")
        with pytest.raises(StoreError, match=r"cannot read the weather: .*journal\.db: no such table"):
            await readers.run("read the weather", lambda db: db.execute("SELECT * FROM weather"))
        assert 0 == await readers.run("count", count)
        readers.close()


async def test_a_journal_that_is_gone_is_not_created_by_reading(tmp_path: Path) -> None:
    """A question to nothing is an error, and leaves nothing behind."""
    readers = Readers(tmp_path / "journal.db")

    with pytest.raises(StoreError, match="unable to open"):
        await readers.run("count", count)

    assert [] == os.listdir(tmp_path)


async def test_closed_readers_answer_no_more(tmp_path: Path) -> None:
    """After closing, a question is an error and not a leaked connection."""
    readers = Readers(tmp_path / "journal.db")
    readers.close()

    with pytest.raises(StoreError, match="closed"):
        await readers.run("count", count)
