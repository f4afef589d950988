"""A copy of the journal, whole and checked, or none."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.recorded import spoil, story, write
from tests.unit.journal.making import opened, record

from handoffd.errors import Refused, StoreError
from handoffd.journal.backup import back_up, discard, inspect
from handoffd.journal.schema import VERSION


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """The journal of one story."""
    path = tmp_path / "state/journal.db"
    write(path, story())
    return path


def dump(path: Path) -> list[str]:
    """Return everything that is in a journal."""
    with closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


def test_the_copy_is_one_private_file_with_everything_in_it(journal: Path, tmp_path: Path) -> None:
    """Nothing beside it, nobody else may read it, and it says what it is."""
    folder = tmp_path / "backups"
    folder.mkdir()

    copy = back_up(journal, folder / "monday.db")

    assert ["monday.db"] == os.listdir(folder)
    assert 0o600 == stat.S_IMODE((folder / "monday.db").stat().st_mode)
    assert dump(journal) == dump(folder / "monday.db")
    assert (VERSION, len(story().records)) == (copy.schema, copy.newest)
    assert (folder / "monday.db").stat().st_size == copy.size


def test_the_copy_can_be_read_where_nothing_can_be_written(journal: Path, tmp_path: Path) -> None:
    """A backup medium need not be writable."""
    copy = tmp_path / "monday.db"
    back_up(journal, copy)

    with closing(sqlite3.connect(f"file:{copy}?mode=ro&immutable=1", uri=True)) as db:
        assert ("delete",) == db.execute("PRAGMA journal_mode").fetchone()


async def test_a_copy_is_taken_while_the_journal_is_written(tmp_path: Path) -> None:
    """It holds what was committed when it began, and the writer goes on."""
    async with opened(tmp_path / "journal.db") as journal:
        await journal.commit(record())
        copy = back_up(tmp_path / "journal.db", tmp_path / "monday.db")
        assert 2 == (await journal.commit(record())).seq

    assert (1, 1) == (copy.newest, inspect(tmp_path / "monday.db").newest)


def test_the_copy_is_of_one_instant_however_long_it_takes(journal: Path, tmp_path: Path) -> None:
    """What is committed between two of its pages is not in it, and does not make it begin anew."""
    with closing(sqlite3.connect(journal)) as writer:
        writer.execute("INSERT INTO baselines VALUES ('p', 'main', 'US-1', zeroblob(20000000))")
        writer.commit()
        told: list[int] = []

        def commit(done: int, _: int) -> None:
            told.append(done)
            writer.execute(
                "INSERT INTO projects (root, name, added_at) VALUES (?, 'late', '2026-01-31')",
                (f"/srv/{done}",),
            )
            writer.commit()

        back_up(journal, tmp_path / "monday.db", progress=commit)

    assert len(told) > 1
    assert sorted(set(told)) == told
    with closing(sqlite3.connect(tmp_path / "monday.db")) as db:
        assert (0,) == db.execute("SELECT count(*) FROM projects WHERE name = 'late'").fetchone()


def test_a_file_that_is_there_is_replaced_only_by_force(journal: Path, tmp_path: Path) -> None:
    """A refused backup leaves it as it was, and nothing beside it."""
    target = tmp_path / "monday.db"
    target.write_text("last week's", encoding="utf-8")

    with pytest.raises(Refused) as caught:
        back_up(journal, target)
    assert "EXISTS" == caught.value.code
    assert "last week's" == target.read_text(encoding="utf-8")

    back_up(journal, target, force=True)
    assert dump(journal) == dump(target)
    assert {"monday.db", "state"} == set(os.listdir(tmp_path))


def test_the_journal_is_never_its_own_backup(journal: Path, tmp_path: Path) -> None:
    """Not by force, nor under another name."""
    other = tmp_path / "other.db"
    os.link(journal, other)

    for target in (journal, other):
        with pytest.raises(Refused, match="the journal itself"):
            back_up(journal, target, force=True)


def test_only_plain_files_are_replaced(journal: Path, tmp_path: Path) -> None:
    """No link is followed, no folder and no device written over."""
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "elsewhere.db")

    for target in (link, tmp_path, Path("/dev/null")):
        with pytest.raises(StoreError) as caught:
            back_up(journal, target, force=True)
        assert "UNSAFE_FILE" == caught.value.code


def test_a_damaged_journal_makes_no_backup(journal: Path, tmp_path: Path) -> None:
    """What cannot be restored is no backup; the old one stays."""
    target = tmp_path / "monday.db"
    back_up(journal, target)
    before = dump(target)
    spoil(journal, "DELETE FROM events WHERE seq = 3")

    with pytest.raises(StoreError) as caught:
        back_up(journal, target, force=True)

    assert "CORRUPT_JOURNAL" == caught.value.code
    assert (before, {"monday.db", "state"}) == (dump(target), set(os.listdir(tmp_path)))


def test_what_cannot_be_written_or_read_is_named(journal: Path, tmp_path: Path) -> None:
    """The path and the cause; and nothing is left."""
    with pytest.raises(StoreError, match="No such file"):
        back_up(journal, tmp_path / "missing/monday.db")
    with pytest.raises(StoreError, match="there is no journal"):
        back_up(tmp_path / "none.db", tmp_path / "monday.db")
    (tmp_path / "text.db").write_text("not a database, whatever it is called" * 100, encoding="utf-8")
    with pytest.raises(StoreError) as caught:
        back_up(tmp_path / "text.db", tmp_path / "monday.db")
    assert "NOT_A_JOURNAL" == caught.value.code
    assert {"state", "text.db"} == set(os.listdir(tmp_path))


def test_progress_is_told_in_pages(journal: Path, tmp_path: Path) -> None:
    """Up to the last one."""
    told: list[tuple[int, int]] = []

    back_up(journal, tmp_path / "monday.db", progress=lambda done, of: told.append((done, of)))

    assert told
    assert told[-1][0] == told[-1][1] > 0


def test_a_database_is_discarded_with_what_lies_beside_it(tmp_path: Path) -> None:
    """Also when some of it is not there."""
    for suffix in ("", "-wal"):
        (tmp_path / f"x.db{suffix}").touch()

    discard(tmp_path / "x.db")

    assert [] == os.listdir(tmp_path)
