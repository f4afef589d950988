"""A short look at a journal."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from handoffd.errors import StoreError
from handoffd.journal.database import glance
from handoffd.journal.journal import Journal
from handoffd.journal.schema import VERSION


async def test_what_a_journal_holds(tmp_path: Path) -> None:
    """Its schema and the roots, while somebody has it open for writing."""
    journal = await Journal.open(tmp_path / "journal.db")
    try:
        await journal.add_project("/srv/shop", "shop", datetime(2026, 1, 2, tzinfo=UTC))
        found = glance(tmp_path / "journal.db")
    finally:
        await journal.close()

    assert found is not None
    assert (VERSION, ("/srv/shop",)) == (found.schema, found.roots)


def test_no_journal_is_none_and_an_empty_one_is_empty(tmp_path: Path) -> None:
    """Nothing is made by looking."""
    assert glance(tmp_path / "journal.db") is None
    assert [] == list(tmp_path.iterdir())
    (tmp_path / "journal.db").touch()
    found = glance(tmp_path / "journal.db")
    assert found is not None
    assert (0, ()) == (found.schema, found.roots)


def test_what_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    """With the codes of the journal itself."""
    path = tmp_path / "journal.db"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(StoreError) as foreign:
        glance(path)
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
        db.execute("INSERT INTO meta VALUES ('schema_version', '99')")
        db.commit()
    with pytest.raises(StoreError) as newer:
        glance(path)

    assert ["NOT_A_JOURNAL", "NEWER_SCHEMA"] == [foreign.value.code, newer.value.code]
