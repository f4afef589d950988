"""Requests with a key, in the journal."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.unit.journal.making import GOLDEN, opened, record

from handoffd.journal.commit import KEPT
from handoffd.journal.journal import Journal

NOW = datetime(2026, 1, 31, 22, tzinfo=UTC)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    """An empty journal."""
    async with opened(tmp_path / "journal.db") as lent:
        yield lent


async def test_a_key_is_claimed_once(journal: Journal) -> None:
    """Whoever comes then hears whose it was."""
    assert None is await journal.requests.claim("k", "one", NOW)

    known = await journal.requests.claim("k", "two", NOW)

    assert known is not None
    assert ("one", None, None, None) == (known.fingerprint, known.seq, known.status, known.body)


async def test_an_event_is_committed_with_its_key(journal: Journal) -> None:
    """In one transaction; the first one counts, and a key that nobody claimed is none."""
    await journal.requests.claim("k", "one", NOW)
    first = await journal.commit(replace(record(), request="k"))
    await journal.commit(replace(record(), request="k"))
    await journal.commit(replace(record(), request="unknown"))

    known = await journal.requests.claim("k", "one", NOW)

    assert known is not None
    assert first.seq == known.seq


async def test_an_answer_is_kept_for_a_day(journal: Journal) -> None:
    """Then the key is anybody's."""
    await journal.requests.claim("k", "one", NOW)
    await journal.requests.answer("k", 409, '{"type": "error"}')

    kept = await journal.requests.claim("k", "one", NOW + KEPT)
    gone = await journal.requests.claim("k", "one", NOW + KEPT + timedelta(microseconds=1))

    assert kept is not None
    assert (409, '{"type": "error"}', None) == (kept.status, kept.body, gone)


async def test_only_a_claim_that_nothing_came_of_is_released(journal: Journal) -> None:
    """What became an event, or has an answer, stays."""
    for key in ("nothing", "event", "answer"):
        await journal.requests.claim(key, "one", NOW)
    await journal.commit(replace(record(), request="event"))
    await journal.requests.answer("answer", 200, "{}")

    for key in ("nothing", "event", "answer"):
        await journal.requests.release(key)

    again = [await journal.requests.claim(key, "one", NOW) for key in ("nothing", "event", "answer")]
    assert [True, False, False] == [known is None for known in again]


async def test_an_event_that_is_not_committed_leaves_its_key_without_one(tmp_path: Path) -> None:
    """All or nothing, also after the file was opened again."""
    path = tmp_path / "journal.db"
    async with opened(path) as journal:
        await journal.requests.claim("k", "one", NOW)
    async with opened(path) as journal:
        known = await journal.requests.claim("k", "one", NOW)

    assert known is not None
    assert None is known.seq


@pytest.mark.parametrize("schema", ["schema-1.db", "schema-3.db", "schema-4.db"])
async def test_an_older_journal_takes_keys(tmp_path: Path, schema: str) -> None:
    """After its migration."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / schema, path)

    async with opened(path) as journal:
        assert None is await journal.requests.claim("k", "one", NOW)


async def test_a_journal_of_schema_5_opens_with_its_keys(tmp_path: Path) -> None:
    """One became an event, the other has an answer."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / "schema-5.db", path)

    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT key, seq, status, body FROM requests ORDER BY key").fetchall()
    db.close()

    assert [("key-1", 1, None, None), ("key-2", None, 200, '{"type": "reloaded"}')] == rows
    async with opened(path) as journal:
        assert 1 <= journal.newest
