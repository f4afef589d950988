"""The journal's file: who may read it, how SQLite treats it, when to refuse it, what can be wrong with it.

The file is created 0600 (SQLite gives the same mode to the -wal and -shm beside it). Nothing is
changed, not even the journal mode, before the file has proved to be ours.

What can be found wrong without deciding anything (the file, its rows, the order of its events) is asked in
one statement each, so SQLite does the walking and nothing is held in memory.

Light to import: `doctor` and `add` look at journals by this module alone, without the engine and its codec.
"""

from __future__ import annotations

import json
import os
import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

import structlog
from msgspec import Struct

from handoffd.files.errors import damaged, storage_error
from handoffd.files.locks import DAEMON_LOCK, Holder, described, holder_of, state_dir_of
from handoffd.journal.schema import migrate, refuse_newer, version_of

log = structlog.get_logger(__name__)


# --- opening it ---------------------------------------------------------------------------------------
_BUSY_S = 5.0
"""How long SQLite waits for a lock another connection holds."""

_CHECKED_BYTES = 16 * 1024 * 1024
"""Files up to this size are checked whole when opened (about 0.1 s); larger ones only where read."""

_WAL_BYTES = 16 * 1024 * 1024
"""The -wal file is cut back to this size after a checkpoint."""


def open_database(path: Path) -> sqlite3.Connection:
    """Return the writer's connection, in autocommit mode, to a journal of the current schema.

    Creates the file and its folder when missing. Raises StoreError, with the file untouched, when it
    is not a journal, damaged (CORRUPT_JOURNAL) or of a newer release (NEWER_SCHEMA).
    """
    try:
        _prepare_file(path)
        connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise storage_error("open the journal", path, error) from error
    try:
        _adopt(connection, path)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error | OSError):
            raise storage_error("open the journal", path, error) from error
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Return a connection that can only read; sqlite3.Error when the file cannot be opened."""
    address = f"file:{quote(os.fspath(path))}?mode=ro"
    reader = sqlite3.connect(
        address, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
    )
    reader.execute("PRAGMA query_only = ON")
    return reader


def _prepare_file(path: Path) -> None:
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif path.parent.stat().st_mode & 0o077:
        # Not tightened: a folder that was there before us may be shared with others on purpose.
        log.warning("journal folder is open to others", folder=str(path.parent), remedy="chmod 700")
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    os.close(file)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _adopt(connection: sqlite3.Connection, path: Path) -> None:
    place = os.fspath(path)
    refuse_newer(version_of(connection, place), place)
    _check(connection, path)
    path.chmod(0o600)
    if not path.stat().st_size:  # SQLite takes this only for an empty file
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
    migrate(connection, place)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if path.stat().st_size > _CHECKED_BYTES:
        return
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise damaged(path, verdict.replace("\n", " "))


# --- looks from outside: in the calling thread, without the daemon's lock -----------------------------
# Not `projects.projects`: its rows need the engine and its codec, a quarter of a second of imports.
_ROOTS: Final = "SELECT root FROM projects WHERE removed_at IS NULL ORDER BY root"


class Glance(Struct, frozen=True, kw_only=True):
    """The version of a journal's schema (0: it is still empty), and the roots of the projects in it."""

    schema: int
    roots: tuple[str, ...]


def is_begun(path: Path) -> bool:
    """Return whether there is a journal with tables; a daemon that is starting may be about to make them.

    Raises StoreError like `glance`.
    """
    if not path.exists():
        return False
    try:
        with closing(open_reader(path)) as db:
            return version_of(db, str(path)) > 0
    except (OSError, sqlite3.Error) as error:
        raise storage_error("open the journal", path, error) from error


def glance(path: Path) -> Glance | None:
    """Return what the journal at `path` holds; None when there is none.

    Raises StoreError like `Journal.open`: NOT_A_JOURNAL, CORRUPT_JOURNAL, NEWER_SCHEMA, or unreadable.
    """
    if not path.exists():
        return None
    try:
        with closing(open_reader(path)) as db:
            version = version_of(db, str(path))
            refuse_newer(version, str(path))
            roots = tuple(root for (root,) in db.execute(_ROOTS)) if version else ()
    except (OSError, sqlite3.Error) as error:
        raise storage_error("open the journal", path, error) from error
    return Glance(schema=version, roots=roots)


def trusted_of(path: Path, root: str) -> Mapping[str, str] | None:
    """Return the texts of a project's own files that a person has trusted last; None: not supervised here.

    Raises StoreError like `glance`.
    """
    if not is_begun(path):
        return None
    try:
        with closing(open_reader(path)) as db:
            known = db.execute("SELECT 1 FROM projects WHERE root = ? AND removed_at IS NULL", (root,))
            if known.fetchone() is None:
                return None
            return dict(db.execute("SELECT file, text FROM trusted WHERE root = ?", (root,)).fetchall())
    except (OSError, sqlite3.Error) as error:
        raise storage_error("read what is trusted", path, error) from error


def supervised_elsewhere(journal: Path) -> Mapping[str, Holder]:
    """Return the projects of other daemons on this machine, by root; `journal` is that of this one.

    A project at rest has no lock, so their journals are read, as far as this account may.
    """
    found: dict[str, Holder] = {}
    for state_dir, pid in _other_daemons(journal.parent.resolve()).items():
        with suppress(OSError, sqlite3.Error), closing(open_reader(state_dir / journal.name)) as db:
            rows = db.execute(_ROOTS).fetchall()
            found |= dict.fromkeys((str(root) for (root,) in rows), described(pid))
    return found


def _other_daemons(own: Path) -> Mapping[Path, int]:
    """Return the process of each daemon on this machine, by state directory, without the one of `own`."""
    found: dict[Path, int] = {}
    for name in os.listdir("/proc"):
        state_dir = state_dir_of(int(name)) if name.isdigit() and int(name) != os.getpid() else None
        if state_dir is None or state_dir == own or state_dir in found:
            continue
        # A child of a daemon has its descriptors until it begins its own program: the lock names the daemon.
        signer = holder_of(state_dir / DAEMON_LOCK)
        found[state_dir] = int(name) if signer is None else signer.pid
    return found


# --- what can be wrong with it ------------------------------------------------------------------------
_MOST_FAULTS = 100
"""A file that is damaged throughout need not be described row by row."""

RESTORED = "restored"
"""The key of `meta` under which restores are kept: a list of `{at, after, next}`."""


class Fault(Struct, frozen=True, kw_only=True):
    """One thing wrong. `seq` is the number of the event it is about, where it is about one."""

    kind: str
    message: str
    seq: int | None = None


def integrity(db: sqlite3.Connection) -> Iterator[Fault]:
    """Yield what SQLite finds damaged in the file. Reads all of it."""
    try:
        for (finding,) in db.execute(f"PRAGMA integrity_check({_MOST_FAULTS})"):
            if finding != "ok":
                yield Fault(kind="damaged", message=str(finding).replace("\n", " "))
    except sqlite3.DatabaseError as error:
        yield Fault(kind="damaged", message=str(error))


def references(db: sqlite3.Connection) -> Iterator[Fault]:
    """Yield the rows that belong to something which is not there."""
    for table, row, parent, _ in islice(db.execute("PRAGMA foreign_key_check"), _MOST_FAULTS):
        yield Fault(
            kind="reference", message=f"row {row} of {table} points to a row of {parent} that is gone"
        )


def gaps(db: sqlite3.Connection) -> Iterator[Fault]:
    """Yield the numbers that no event has, but for numbers left out by a restore or pruned."""
    return islice(_unexplained(db), _MOST_FAULTS)


def _unexplained(db: sqlite3.Connection) -> Iterator[Fault]:
    explained = not_kept(db)
    query = """SELECT before + 1, seq - 1 FROM
        (SELECT seq, lag(seq, 1, 0) OVER (ORDER BY seq) AS before FROM events
        UNION ALL SELECT s.seq + 1, (SELECT coalesce(max(seq), 0) FROM events)
        FROM sqlite_sequence AS s WHERE s.name = 'events')
        WHERE seq <> before + 1 ORDER BY seq"""
    for first, last in db.execute(query):
        # The range that begins last, but not after the gap.
        place = bisect_right(explained, first, key=lambda one: one[0]) - 1
        if place < 0 or explained[place][1] < last:
            missing = f"event {first} is" if first == last else f"events {first} to {last} are"
            yield Fault(kind="missing", message=f"{missing} missing", seq=first)


def projections(db: sqlite3.Connection) -> Iterator[Fault]:
    """Yield remembered texts of STATE.json that no event made, and latest ones not remembered."""
    query = """SELECT p.project, p.track, p.seq FROM projections AS p LEFT JOIN events AS e ON e.seq = p.seq
        WHERE e.digest IS NOT p.digest OR e.project IS NOT p.project OR e.track IS NOT p.track LIMIT ?"""
    for project, track, seq in db.execute(query, (_MOST_FAULTS,)):
        message = f"a text of STATE.json of {project} ({track}) is remembered that event {seq} did not make"
        yield Fault(kind="projection", message=message, seq=seq)
    latest = """SELECT t.project, t.track FROM tracks AS t WHERE t.digest IS NOT NULL AND NOT EXISTS
        (SELECT 1 FROM projections AS p WHERE p.project = t.project AND p.track = t.track
        AND p.digest = t.digest) LIMIT ?"""
    for project, track in db.execute(latest, (_MOST_FAULTS,)):
        message = f"the latest text of STATE.json of {project} ({track}) is not among the remembered ones"
        yield Fault(kind="projection", message=message)


def projects(db: sqlite3.Connection) -> Iterator[Fault]:
    """Yield the projects with a track, flow, events or dispatches that are not in the list of projects.

    One that is not looked after any more stays in it.
    """
    query = """SELECT project FROM
        (SELECT project FROM tracks UNION SELECT project FROM events UNION SELECT project FROM dispatches
        UNION SELECT project FROM flows)
        WHERE NOT EXISTS (SELECT 1 FROM projects WHERE root = project) ORDER BY project LIMIT ?"""
    for (project,) in db.execute(query, (_MOST_FAULTS,)):
        message = f"{project} has a history, but is not in the list of projects"
        yield Fault(kind="project", message=message)


def not_kept(db: sqlite3.Connection) -> list[tuple[int, int]]:
    """Return the first and last numbers of events that are not kept, in order; neighbours are one range."""
    ranges = [(int(one["after"]) + 1, int(one["next"]) - 1) for one in restores(db)]
    return merged([*ranges, *pruned(db)])


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges of numbers in order, ranges that touch each other as one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(one for one in ranges if one[0] <= one[1]):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found


def pruned(db: sqlite3.Connection) -> list[tuple[int, int]]:
    """Return the first and last numbers of events that were old enough to go."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'pruned'").fetchone() is None:
        return []  # looked at before a daemon has brought an older journal up to date
    return db.execute("SELECT first, last FROM pruned ORDER BY first").fetchall()


def restores(db: sqlite3.Connection) -> tuple[dict[str, int | str], ...]:
    """Return the restores of the journal: each with the time, and the numbers around what it left out."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (RESTORED,)).fetchone()
    return () if row is None else tuple(json.loads(row[0]))
