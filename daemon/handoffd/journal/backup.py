"""What is done to a journal as a whole: back it up, restore a backup, and repair rows of tracks.

**Backup.** A journal is several files that only SQLite can put together, so it makes the copy: of one
instant, page by page, without holding the writer up. The copy is one file, is checked before it
gets its name, and gets it at once or not at all.

**Restore.** A backup is made ready beside the journal, then exchanged with it in one step. The copy goes on
with numbers above the replaced journal's, because readers and receivers of notices remember numbers. The
replaced journal is kept under a name of its own. A crash at any moment leaves the old journal or the new one,
never none and never a mixture.

**Repair.** A track's row that was changed outside handoffd is made again as its last event has left it. What
is written is proved first: no event is missing, each one of the track is decided again as it was recorded,
and the body that this makes has the digest that the last one was recorded with. Another release may have
spelled the same body in another way; there the decisions are the proof. Where nothing is proved, nothing is
written: that takes a backup.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

import handoffd
from handoffd.engine.decide import standing_of
from handoffd.engine.flow.flow import Flow
from handoffd.engine.track import Track, TrackKey
from handoffd.errors import Refused, StoreError
from handoffd.files.atomic import FOLDER_FLAGS, digest_of
from handoffd.files.errors import NOT_A_JOURNAL, damaged, storage_error, unsafe_file
from handoffd.journal.codec import encode
from handoffd.journal.database import RESTORED, integrity, open_database, open_reader, references, restores
from handoffd.journal.flow_queries import flows_held_against
from handoffd.journal.flows import put_again, written
from handoffd.journal.queries import garbled_orders, held_against
from handoffd.journal.schema import refuse_newer, spell_anew, version_of

EXISTS = "EXISTS"

_PAGES = 2048
"""Pages (of 4 KiB) copied between two words of progress."""
_ROUND = 1_000_000
"""Numbers go on at the next multiple of it when the replaced journal cannot be read."""

_CARRIED_OUT = ("write_checklist", "append_history")
"""Orders that would write over what came later. The life that went on after the backup carried them out.

Notices are sent again: they keep their ids, by which a receiver recognises them.
"""

Progress = Callable[[int, int], None]
"""Told how many pages are copied, and of how many."""


class Copy(Struct, frozen=True, kw_only=True):
    """A journal's copy: how large it is, which schema it has, and the number of its newest event.

    `unsound`: the projects whose record was changed outside handoffd, by root; a restore leaves them out.
    """

    file: str
    size: int
    schema: int
    newest: int
    unsound: tuple[str, ...] = ()


def back_up(
    journal: Path, target: Path, *, force: bool = False, progress: Progress = lambda _, __: None
) -> Copy:
    """Copy the journal to `target` (0600), whole, checked and durable, or not at all.

    Raises Refused (EXISTS) when there is something at `target` and not `force`, and StoreError when
    either file fails, or the journal is damaged; `target` then is as it was.
    """
    _refuse_target(journal, target, force)
    temporary = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
    try:
        copy_journal(journal, temporary, progress)
        checked = inspect(temporary)
        _name(temporary, target, force)
    finally:
        discard(temporary)
    return replace(checked, file=str(target))


def copy_journal(source: Path, target: Path, progress: Progress = lambda _, __: None) -> None:
    """Copy a journal as it is at this instant into the new file `target`, and sync it.

    Raises StoreError when `source` cannot be read or `target` cannot be written.
    """
    if not source.is_file():
        raise StoreError(f"there is no journal at {source}", hint="handoffd config show")
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        with closing(open_reader(source)) as reader, closing(sqlite3.connect(target)) as copy:
            # One transaction for all pages: else each commit of the daemon would begin the copy anew.
            reader.execute("BEGIN")
            version_of(reader, str(source))
            reader.backup(copy, pages=_PAGES, progress=lambda _, left, of: progress(of - left, of))
            copy.execute(
                "PRAGMA journal_mode = DELETE"
            )  # one file, that can be read where nothing is written
        _sync(target)
    except (OSError, sqlite3.Error) as error:
        place = source if isinstance(error, sqlite3.DatabaseError) else target
        raise storage_error(f"copy the journal to {target}", place, error) from error


def inspect(path: Path) -> Copy:
    """Return what kind of journal a file is. Reads all of it.

    Raises StoreError when it is missing, no journal (NOT_A_JOURNAL) or damaged (CORRUPT_JOURNAL).
    """
    if not path.is_file():
        raise StoreError(f"there is no file {path}", hint=f"ls -l {path.parent}")
    try:
        with closing(open_reader(path)) as reader:
            schema = version_of(reader, str(path))
            if schema == 0:
                raise StoreError(f"{path} is empty, not a journal", code=NOT_A_JOURNAL)
            for fault in (*integrity(reader), *references(reader)):
                raise damaged(path, fault.message)
            (newest,) = reader.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
            amiss = [row.key.project for row in held_against(reader) if row.unsound is not None]
            amiss += [row.key.project for row in flows_held_against(reader) if row.unsound is not None]
            unsound = tuple(dict.fromkeys([*amiss, *(key.project for key in garbled_orders(reader))]))
            size = path.stat().st_size
            return Copy(file=str(path), size=size, schema=schema, newest=newest, unsound=unsound)
    except (OSError, sqlite3.Error) as error:
        raise storage_error("read the journal", path, error) from error


def discard(path: Path) -> None:
    """Remove a database that is not wanted, with the files SQLite lays beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def sync_folder(folder: Path) -> None:
    """Have what was renamed in a folder survive a power cut."""
    handle = os.open(folder, FOLDER_FLAGS)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refuse_target(journal: Path, target: Path, force: bool) -> None:
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error("look at", target, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise unsafe_file(target, "it is not a regular file")
    if journal.exists() and os.path.samestat(status, os.stat(journal)):
        raise Refused(f"{target} is the journal itself", hint="name another file")
    if not force:
        raise Refused(f"{target} exists", code=EXISTS, hint="name another file, or add --force")


def _name(temporary: Path, target: Path, force: bool) -> None:
    try:
        if force:
            os.replace(temporary, target)
        else:
            _link(temporary, target)
        sync_folder(target.parent)
    except FileExistsError as error:  # between the first look and now
        raise Refused(f"{target} exists", code=EXISTS, hint="name another file, or add --force") from error
    except OSError as error:
        raise storage_error("write", target, error) from error


def _link(temporary: Path, target: Path) -> None:
    """Give a file its name unless it is taken; where there are no hard links, after a look."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(target):
            raise FileExistsError(target) from None
        os.rename(temporary, target)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- restore ------------------------------------------------------------------------------------------
def inspect_backup(file: Path, journal: Path) -> Copy:
    """Return what the backup is. Raises StoreError and Refused when it cannot take the journal's place."""
    if journal.exists() and file.exists() and os.path.samefile(file, journal):
        raise Refused(f"{file} is the journal itself", hint="name a backup")
    try:
        found = inspect(file)
    except StoreError as error:
        if error.code == NOT_A_JOURNAL:
            message = f"{file} is not a backup of a journal; nothing was changed"
            raise StoreError(message, code=error.code, hint="handoffd journal restore FILE") from error
        raise
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
    """Keep the journal under a second name, with its -wal file if SQLite has not folded that in yet.

    That file goes first: beside a new journal, SQLite would take it for the new one's.
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
    """Let new numbers begin above the used ones, and write down which ones are left out."""
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


# --- repair -------------------------------------------------------------------------------------------
class Made(Struct, frozen=True, kw_only=True):
    """A track as its events make it. `seq` is the last of them, by the release `engine`; `digest` that of its
    STATE.json."""

    track: Track
    seq: int
    digest: str | None
    engine: str | None


class MadeFlow(Struct, frozen=True, kw_only=True):
    """A flow as its events make it. `seq` is the last of them, by the release `engine`."""

    flow: Flow
    seq: int
    engine: str | None


class Repaired(Struct, frozen=True, kw_only=True):
    """The tracks and flows that were made again, and the ones that could not be, each with its fault."""

    made: Mapping[TrackKey, str]
    left: Mapping[TrackKey, str]


def repair(
    path: Path,
    made: Mapping[TrackKey, Made],
    root: str | None = None,
    flows: Mapping[TrackKey, MadeFlow] = MappingProxyType({}),
) -> Repaired:
    """Write the rows of the journal at `path` again that are unsound; of one root or of all.

    The caller has the daemon's lock. Raises StoreError when the journal cannot be read or written.
    """
    done, left = dict[TrackKey, str](), dict[TrackKey, str]()
    try:
        with closing(open_database(path)) as db, db:
            db.execute("BEGIN IMMEDIATE")
            for row in tuple(held_against(db, None if root is None else (root,))):
                if row.unsound is not None:
                    one = made.get(row.key)
                    again = one is not None and _write_row(db, row.key, one)
                    (done if again else left)[row.key] = row.unsound
            for found in tuple(flows_held_against(db, None if root is None else (root,))):
                if found.unsound is not None:
                    flow = flows.get(found.key)
                    again = flow is not None and _write_flow(db, found.key, flow)
                    (done if again else left)[found.key] = found.unsound
            left |= garbled_orders(db, None if root is None else (root,))  # no event says them again
    except sqlite3.Error as error:
        raise storage_error("repair the journal", path, error) from error
    return Repaired(made=done, left=left)


def _write_row(db: sqlite3.Connection, key: TrackKey, one: Made) -> bool:
    """Write the row of a track if that is proved to be what its last event has left; return whether it is."""
    body, standing = encode(one.track), standing_of(one.track.state) or (None, None)
    (left,) = db.execute("SELECT track_digest FROM events WHERE seq = ?", (one.seq,)).fetchone()
    if left != digest_of(body):
        if one.engine == handoffd.__version__:
            return False
        spell_anew(db, one.seq, digest_of(body))
    db.execute(
        "INSERT OR REPLACE INTO tracks VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*key, one.seq, body, one.digest, *standing),
    )
    return True


def _write_flow(db: sqlite3.Connection, key: TrackKey, one: MadeFlow) -> bool:
    """Write the rows of a flow, as `_write_row` does that of a track."""
    text = written(one.flow)
    (left,) = db.execute("SELECT track_digest FROM events WHERE seq = ?", (one.seq,)).fetchone()
    if left != text.digest:
        if one.engine == handoffd.__version__:
            return False
        spell_anew(db, one.seq, text.digest)
    return put_again(db, key, one.seq, one.flow, text)
