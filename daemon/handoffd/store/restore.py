"""A backup put in the journal's place: made ready beside it, then exchanged in one step.

The copy goes on with numbers above those of the journal it replaces, because readers and receivers
of notices remember numbers. The replaced journal is kept under a name of its own. A crash at any
moment leaves the old journal or the new one, never none and never a mixture.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

from handoffd.errors import Refused
from handoffd.store.backup import Copy, Progress, copy_journal, discard, inspect, sync_folder
from handoffd.store.database import open_database, open_reader
from handoffd.store.faults import storage_error
from handoffd.store.schema import refuse_newer
from handoffd.store.soundness import RESTORED, restores

_ROUND = 1_000_000
"""Numbers go on at the next multiple of it when nobody can say how far the replaced journal had come."""

_CARRIED_OUT = ("write_checklist", "append_history")
"""Orders that would write over what came later. The life that went on after the backup carried them out.

Notices are sent once more: they have the ids they had, by which a receiver knows them again.
"""


def inspect_backup(file: Path, journal: Path) -> Copy:
    """Return what the backup is. Raises StoreError and Refused when it cannot take the journal's place."""
    if journal.exists() and file.exists() and os.path.samefile(file, journal):
        raise Refused(f"{file} is the journal itself", hint="name a backup")
    found = inspect(file)
    refuse_newer(found.schema, str(file))
    return found


def made_ready(file: Path, journal: Path, at: datetime, progress: Progress = lambda _, __: None) -> Path:
    """Return a copy of the backup beside the journal, of the current schema, to be exchanged with it.

    Raises StoreError when it cannot be made; nothing is left then.
    """
    ready = journal.with_name(f"{journal.name}.restoring")
    discard(ready)  # of a restore that did not end
    try:
        copy_journal(file, ready, progress)
        ahead = _numbers_of(journal)
        with closing(open_database(ready)) as db:
            _go_on_above(db, ahead, at)
    except BaseException as error:
        discard(ready)
        if isinstance(error, sqlite3.Error):
            raise storage_error("make the backup ready", ready, error) from error
        raise
    return ready


def exchange(ready: Path, journal: Path, at: datetime) -> Path | None:
    """Put `ready` in the journal's place, and return where that is now; None when there was none.

    Raises StoreError when the folder cannot be written; the journal is then as it was.
    """
    kept = journal.with_name(f"{journal.name}.before-{at:%Y%m%dT%H%M%SZ}")
    try:
        there = journal.exists()
        if there:
            _keep(journal, kept)
        os.replace(ready, journal)
        sync_folder(journal.parent)
    except OSError as error:
        raise storage_error("replace the journal", journal, error) from error
    return kept if there else None


def _keep(journal: Path, kept: Path) -> None:
    """Keep the journal under a second name, with what SQLite has not folded in yet.

    That goes first: beside a new journal, SQLite would take it for the new one's.
    """
    if _has_log(journal):
        with suppress(sqlite3.Error), closing(sqlite3.connect(journal)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.link(journal, kept)
    with suppress(FileNotFoundError):
        os.rename(f"{journal}-wal", f"{kept}-wal")
    with suppress(FileNotFoundError):
        os.unlink(f"{journal}-shm")


def _has_log(journal: Path) -> bool:
    """Return whether a file says of itself that it has a write-ahead log.

    Of one that does not, SQLite throws the log away, which may be all that is left.
    """
    with journal.open("rb") as file:
        header = file.read(20)
    return header[:16] == b"SQLite format 3\0" and header[18:20] == b"\2\2"


def _numbers_of(journal: Path) -> dict[str, int] | None:
    """Return how far a journal's numbers have come; None when it cannot be read."""
    try:
        with closing(open_reader(journal)) as db:
            return dict(db.execute("SELECT name, seq FROM sqlite_sequence"))
    except (OSError, sqlite3.Error):
        return None


def _go_on_above(db: sqlite3.Connection, ahead: dict[str, int] | None, at: datetime) -> None:
    """Let new numbers begin above those used, and write down which ones are left out."""
    ours: dict[str, int] = dict(db.execute("SELECT name, seq FROM sqlite_sequence"))
    (newest,) = db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
    names = {"events", *ours, *(ahead or {})}
    used = {name: _used(name, ours, ahead) for name in names}
    note = [*restores(db), {"at": at.isoformat(), "after": newest, "next": used["events"] + 1}]
    db.execute("BEGIN IMMEDIATE")
    for name, number in used.items():
        db.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
        db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (name, number))
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (RESTORED, json.dumps(note)))
    _mark_carried_out(db, _CARRIED_OUT)
    db.execute("COMMIT")


def _used(name: str, ours: dict[str, int], ahead: dict[str, int] | None) -> int:
    own = ours.get(name, 0)
    if ahead is None:
        return (own // _ROUND + 1) * _ROUND
    return max(own, ahead.get(name, 0))


def _mark_carried_out(db: sqlite3.Connection, kinds: Sequence[str]) -> None:
    for kind in kinds:
        db.execute(
            "UPDATE effects SET outcome = ? WHERE outcome IS NULL AND json_extract(effect, '$.kind') = ?",
            (RESTORED, kind),
        )
