"""A copy of the journal, taken while somebody writes to it.

The journal lies in several files that only SQLite can put together, so it makes the copy: of one
instant, page by page, without holding the writer up. The copy is one file, is checked before it
gets its name, and gets it at once or not at all.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from handoffd.errors import Refused, StoreError
from handoffd.store.atomic import FOLDER_FLAGS
from handoffd.store.database import open_reader
from handoffd.store.faults import NOT_A_JOURNAL, damaged, storage_error, unsafe_file
from handoffd.store.queries import garbled_orders, held_against
from handoffd.store.schema import version_of
from handoffd.store.soundness import integrity, references

EXISTS = "EXISTS"

_PAGES = 2048
"""Pages (of 4 KiB) copied between two words of progress."""

Progress = Callable[[int, int], None]
"""Told how many pages are copied, and of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
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

    Raises StoreError when either cannot be had.
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
                raise StoreError(f"{path} is empty: it is no journal", code=NOT_A_JOURNAL)
            for fault in (*integrity(reader), *references(reader)):
                raise damaged(path, fault.message)
            (newest,) = reader.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
            amiss = [row.key.project for row in held_against(reader) if row.unsound is not None]
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
        raise unsafe_file(target, "it is no regular file")
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
