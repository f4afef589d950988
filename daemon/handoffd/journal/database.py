"""Opening the journal's file: who may read it, how SQLite treats it, and when to refuse it.

The file is created 0600 (SQLite gives the same mode to the -wal and -shm beside it). Nothing is
changed, not even the journal mode, before the file has proved to be ours.

Light to import: `doctor` and `add` look at journals by this module alone, without the engine and its codec.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import structlog

from handoffd.files.errors import damaged, storage_error
from handoffd.files.locks import Holder, described, state_dir_of
from handoffd.journal.schema import migrate, refuse_newer, version_of

log = structlog.get_logger(__name__)

_BUSY_S = 5.0
"""How long SQLite waits for a lock another connection holds."""
_CHECKED_BYTES = 16 * 1024 * 1024
"""Files up to this size are checked whole when opened (about 0.1 s); larger ones only where read."""
_WAL_BYTES = 16 * 1024 * 1024
"""The -wal file is cut back to this size after a checkpoint."""


def open_database(path: Path) -> sqlite3.Connection:
    """Return the writer's connection, in autocommit mode, to a journal of the current schema.

    Creates the file and its folder when missing. Raises StoreError, with the file untouched, when it
    is no journal, damaged (CORRUPT_JOURNAL) or of a newer release (NEWER_SCHEMA).
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
    if not path.stat().st_size:  # only an empty one can be told
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


# --- looks from outside: in the calling thread, without the daemon's lock -------------------------------
# Not `projects.projects`: its rows need the engine and its codec, a quarter of a second of imports.
_ROOTS: Final = "SELECT root FROM projects WHERE removed_at IS NULL ORDER BY root"


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """The version of a journal's schema (0: it is still empty), and the roots of the projects in it."""

    schema: int
    roots: tuple[str, ...]


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


def supervised_elsewhere(journal: Path) -> Mapping[str, Holder]:
    """Return the projects of other daemons on this machine, by root; `journal` is that of this one.

    A project at rest has no lock, so their journals are read, as far as this account may.
    """
    found: dict[str, Holder] = {}
    for name in os.listdir("/proc"):
        state_dir = state_dir_of(int(name)) if name.isdigit() and int(name) != os.getpid() else None
        if state_dir is None or state_dir == journal.parent.resolve():
            continue
        with suppress(OSError, sqlite3.Error), closing(open_reader(state_dir / journal.name)) as db:
            rows = db.execute(_ROOTS).fetchall()
            found |= dict.fromkeys((str(root) for (root,) in rows), described(int(name)))
    return found
