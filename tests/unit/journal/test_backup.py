"""A journal as a whole: backed up, restored, repaired."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.recorded import BLOG, SHOP, spoil, story, write
from tests.unit.journal.conftest import Golden
from tests.unit.journal.making import GOLDEN, record

import handoffd
from handoffd.engine.decision import AppendHistory, Notify, Spawn
from handoffd.engine.track import Ledger
from handoffd.errors import Refused, StoreError
from handoffd.journal import queries
from handoffd.journal.backup import (
    Made,
    back_up,
    discard,
    exchange,
    inspect,
    inspect_backup,
    made_ready,
    repair,
)
from handoffd.journal.database import gaps, open_database, open_reader, restores
from handoffd.journal.journal import Journal
from handoffd.journal.records import StoredTrack
from handoffd.journal.schema import VERSION

AT = datetime(2026, 2, 1, 7, 30, tzinfo=UTC)
KEPT = "journal.db.before-20260201T073000Z"
FOREIGN = "not a database, although it is called one" * 100
SPAWN = Spawn(dispatch="d1", executor="claude", story="US-1", step="bdd", attempt=1, timeout_min=5)
TELL = Notify(notice="done", story="US-1", step="done", text="done")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where the backup is made: a folder of its own."""
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups/monday.db"


@pytest.fixture
def current(recorded: Path, target: Path) -> Path:
    """A journal that has gone on since its backup at `target`."""
    back_up(recorded, target)
    write(recorded, story(BLOG))
    return recorded


def rows(path: Path, query: str) -> list[Any]:
    """Return what a query finds."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def dump(path: Path) -> list[str]:
    """Return everything that is in a journal."""
    with closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


def restore(backup: Path, journal: Path) -> Path | None:
    """Put a backup in the journal's place; return where the journal is kept."""
    return exchange(made_ready(backup, journal, AT), journal, AT)


# --- backup -------------------------------------------------------------------------------------------
def test_the_copy_is_one_private_file_with_everything_in_it(recorded: Path, target: Path) -> None:
    """No other file is beside it, only its owner may read it, and a read-only medium will do."""
    pages: list[tuple[int, int]] = []

    copy = back_up(recorded, target, progress=lambda done, of: pages.append((done, of)))

    assert ["monday.db"] == os.listdir(target.parent)
    assert 0o600 == stat.S_IMODE(target.stat().st_mode)
    assert dump(recorded) == dump(target)
    assert (VERSION, len(story().records), target.stat().st_size) == (copy.schema, copy.newest, copy.size)
    assert pages[-1][0] == pages[-1][1] > 0
    with closing(sqlite3.connect(f"file:{target}?mode=ro&immutable=1", uri=True)) as db:
        assert ("delete",) == db.execute("PRAGMA journal_mode").fetchone()


async def test_a_copy_is_taken_while_the_journal_is_written(
    journal: Journal, place: Path, target: Path
) -> None:
    """It holds what was committed when it began, and the writer goes on."""
    await journal.commit(record())
    copy = back_up(place, target)
    assert 2 == (await journal.commit(record())).seq

    assert (1, 1) == (copy.newest, inspect(target).newest)


def test_the_copy_is_of_one_instant_however_long_it_takes(recorded: Path, target: Path) -> None:
    """What is committed between two of its pages is not in it, and does not make it begin anew."""
    with closing(sqlite3.connect(recorded)) as writer:
        writer.execute("INSERT INTO baselines VALUES ('p', 'main', 'US-1', zeroblob(20000000))")
        writer.commit()
        pages: list[int] = []

        def commit(done: int, _: int) -> None:
            pages.append(done)
            writer.execute(
                "INSERT INTO projects (root, name, added_at) VALUES (?, 'late', '2026-01-31')",
                (f"/srv/{done}",),
            )
            writer.commit()

        back_up(recorded, target, progress=commit)

    assert len(pages) > 1
    assert sorted(set(pages)) == pages
    assert [(0,)] == rows(target, "SELECT count(*) FROM projects WHERE name = 'late'")


def test_a_file_that_is_there_is_replaced_only_by_force(recorded: Path, target: Path) -> None:
    """A refused backup leaves it as it was, and nothing beside it."""
    target.write_text("last week's", encoding="utf-8")

    with pytest.raises(Refused) as caught:
        back_up(recorded, target)
    assert "EXISTS" == caught.value.code
    assert "last week's" == target.read_text(encoding="utf-8")

    back_up(recorded, target, force=True)
    assert dump(recorded) == dump(target)
    assert ["monday.db"] == os.listdir(target.parent)


def test_the_journal_is_never_its_own_backup(recorded: Path, tmp_path: Path) -> None:
    """Not by force, nor under another name."""
    other = tmp_path / "other.db"
    os.link(recorded, other)

    for place in (recorded, other):
        with pytest.raises(Refused, match="the journal itself"):
            back_up(recorded, place, force=True)


def test_only_plain_files_are_replaced(recorded: Path, tmp_path: Path) -> None:
    """No link is followed, no folder and no device written over."""
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "elsewhere.db")

    for place in (link, tmp_path, Path("/dev/null")):
        with pytest.raises(StoreError) as caught:
            back_up(recorded, place, force=True)
        assert "UNSAFE_FILE" == caught.value.code


def test_a_damaged_journal_makes_no_backup(current: Path, target: Path) -> None:
    """A backup must be restorable; the old one stays."""
    before = dump(target)
    spoil(current, "DELETE FROM events WHERE seq = 3")

    with pytest.raises(StoreError) as caught:
        back_up(current, target, force=True)

    assert "CORRUPT_JOURNAL" == caught.value.code
    assert (before, ["monday.db"]) == (dump(target), os.listdir(target.parent))


def test_what_cannot_be_written_or_read_is_named(recorded: Path, target: Path) -> None:
    """The path and the cause; and nothing is left."""
    with pytest.raises(StoreError, match="No such file"):
        back_up(recorded, target.parent / "missing/monday.db")
    with pytest.raises(StoreError, match="there is no journal"):
        back_up(target.with_name("none.db"), target)
    foreign = target.with_name("text.db")
    foreign.write_text(FOREIGN, encoding="utf-8")
    with pytest.raises(StoreError) as caught:
        back_up(foreign, target)
    assert "NOT_A_JOURNAL" == caught.value.code
    assert ["text.db"] == os.listdir(target.parent)


def test_a_database_is_discarded_with_the_files_beside_it(tmp_path: Path) -> None:
    """Also when one of them is missing."""
    for suffix in ("", "-wal"):
        (tmp_path / f"x.db{suffix}").touch()

    discard(tmp_path / "x.db")

    assert [] == os.listdir(tmp_path)


# --- restore ------------------------------------------------------------------------------------------
def test_the_replaced_journal_is_kept_and_the_backup_is_in_its_place(current: Path, target: Path) -> None:
    """Both whole; neither has a file of SQLite's left beside it."""
    newest = inspect(current).newest

    kept = restore(target, current)

    assert kept == current.with_name(KEPT)
    assert {"journal.db", KEPT, "backups"} == set(os.listdir(current.parent))
    assert (newest, inspect(target).newest) == (inspect(kept).newest, inspect(current).newest)
    assert 0o600 == current.stat().st_mode & 0o777


def test_numbers_go_on_above_those_that_were_used(current: Path, target: Path) -> None:
    """Readers and receivers remember them; the numbers left out are recorded, so they are not a gap."""
    used, newest = inspect(current).newest, inspect(target).newest

    restore(target, current)

    with closing(sqlite3.connect(current)) as db:
        assert ({"at": AT.isoformat(), "after": newest, "next": used + 1},) == restores(db)
        assert [] == list(gaps(db))
    write(current, story(BLOG))
    assert [(used + 1,)] == rows(current, f"SELECT min(seq) FROM events WHERE project = '{BLOG.project}'")
    with closing(sqlite3.connect(current)) as db:
        assert [] == list(gaps(db))


def test_numbers_jump_when_the_replaced_journal_cannot_be_read(current: Path, target: Path) -> None:
    """Its write-ahead log could not be folded in, and is kept with it."""
    log = Path(f"{current}-wal")
    current.write_text(FOREIGN, encoding="utf-8")
    log.write_bytes(b"what was committed last")

    kept = restore(target, current)

    assert kept is not None
    assert FOREIGN == kept.read_text(encoding="utf-8")
    assert b"what was committed last" == Path(f"{kept}-wal").read_bytes()
    assert not log.exists()
    assert {(1_000_000,)} == set(rows(current, "SELECT seq FROM sqlite_sequence"))


def test_a_journal_that_is_gone_leaves_nothing_to_keep(current: Path, target: Path) -> None:
    """The backup takes its place all the same."""
    current.unlink()

    assert None is restore(target, current)
    assert inspect(target).newest == inspect(current).newest


async def test_a_restore_repeats_no_order_that_was_carried_out(
    journal: Journal, place: Path, target: Path
) -> None:
    """Entries of the history are done; a start is judged by its records, a notice has its old id."""
    await journal.commit(record(effects=(TELL, AppendHistory(text="### Reopen"), SPAWN)))
    back_up(place, target)

    ready = made_ready(target, place, AT)

    assert [(None,), ("restored",), (None,)] == rows(ready, "SELECT outcome FROM effects ORDER BY id")


def test_an_older_backup_is_migrated_and_a_newer_one_refused(current: Path, target: Path) -> None:
    """A backup of years ago is a backup; one of a later release is left alone."""
    old = Path(shutil.copy(GOLDEN / "schema-1.db", target.with_name("old.db")))
    assert 1 == inspect_backup(old, current).schema
    assert VERSION == inspect(made_ready(old, current, AT)).schema
    assert 1 == inspect(old).schema

    spoil(target, "UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    with pytest.raises(StoreError) as caught:
        inspect_backup(target, current)
    assert "NEWER_SCHEMA" == caught.value.code


def test_only_a_backup_is_restored(recorded: Path, tmp_path: Path) -> None:
    """Not the journal itself, nor a file that is missing, damaged or foreign."""
    text = tmp_path / "text.db"
    text.write_text(FOREIGN, encoding="utf-8")

    with pytest.raises(Refused):
        inspect_backup(recorded, recorded)
    with pytest.raises(
        StoreError, match=r"text\.db is not a backup of a journal; nothing was changed"
    ) as foreign:
        inspect_backup(text, recorded)
    assert "handoffd journal restore FILE" == foreign.value.hint
    with pytest.raises(StoreError):
        inspect_backup(tmp_path / "none.db", recorded)


def test_an_exchange_that_fails_leaves_the_journal(current: Path, target: Path) -> None:
    """What is in the way is not written over."""
    newest = inspect(current).newest
    current.with_name(KEPT).mkdir()

    with pytest.raises(StoreError, match="cannot replace the journal"):
        restore(target, current)

    assert newest == inspect(current).newest


def test_what_a_broken_restore_left_is_cleared_away(current: Path, target: Path) -> None:
    """A crash may have left a copy that was not ready."""
    current.with_name("journal.db.restoring").write_text("half", encoding="utf-8")

    assert inspect(target).newest == inspect(made_ready(target, current, AT)).newest


def test_a_write_ahead_log_does_not_meet_the_wrong_journal(current: Path, target: Path) -> None:
    """A process that was killed leaves one; SQLite would take it for the new journal's."""
    with closing(sqlite3.connect(current)) as db:
        db.execute("INSERT INTO projects (root, name, added_at) VALUES ('/srv/late', 'late', '2026-01-31')")
        db.commit()
        leftovers = {suffix: Path(f"{current}{suffix}").read_bytes() for suffix in ("-wal", "-shm")}
    for suffix, content in leftovers.items():
        Path(f"{current}{suffix}").write_bytes(content)

    kept = restore(target, current)

    assert kept is not None
    late = "SELECT name FROM projects WHERE name = 'late'"
    assert ([], [("late",)]) == (rows(current, late), rows(kept, late))


# --- repair -------------------------------------------------------------------------------------------
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
def test_a_track_is_written_as_its_events_make_it(recorded: Path, change: str) -> None:
    """Every column of the row is as it was."""
    before = track_in(recorded)
    spoil(recorded, change)

    done = repair(recorded, {SHOP: made_of(before)})

    assert ([SHOP], {}) == ([*done.made], done.left)
    assert before == track_in(recorded)
    assert {} == repair(recorded, {SHOP: made_of(before)}).made


def test_a_track_with_another_digest_is_not_written(recorded: Path) -> None:
    """Then only a backup helps; but another release may have spelled the same in another way."""
    before = track_in(recorded)
    spoil(recorded, "UPDATE tracks SET body = '{}'")
    other = replace(made_of(before), track=replace(before.track, ledger=Ledger()))

    assert [SHOP] == [*repair(recorded, {SHOP: other}).left] == [*repair(recorded, {}).left]
    assert track_in(recorded).unsound is not None

    assert [SHOP] == [*repair(recorded, {SHOP: replace(other, engine="0.1")}).made]
    assert (other.track, None) == (track_in(recorded).track, track_in(recorded).unsound)
    with closing(open_database(recorded)) as db, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute("UPDATE events SET why = ''")


@pytest.mark.parametrize("version", [1, 3, 4, 5, 6, 7, 8, 9, 10])
def test_an_older_journal_is_taken_as_it_is_when_it_is_migrated(golden: Golden, version: int) -> None:
    """What is changed after that is found, and can be put back."""
    path = golden(version)
    assert track_in(path).unsound is None  # before it was migrated
    open_database(path).close()
    before = track_in(path)
    assert before.unsound is None

    spoil(path, f"UPDATE tracks SET body = '{{}}' WHERE project = '{before.key.project}'")

    why = f"its body is not the one that event {before.seq}, its last one, has left"
    assert why == track_in(path).unsound
    repair(path, {before.key: replace(made_of(before), engine=None)})
    assert before == track_in(path)


def test_only_a_journal_is_repaired(place: Path) -> None:
    """Any other file is an error."""
    place.write_text(FOREIGN, encoding="utf-8")

    with pytest.raises(StoreError):
        repair(place, {})
