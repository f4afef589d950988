"""A short look at a journal, for whoever wants to know whether it can be used at all.

On a connection that cannot write, in the calling thread, and without the daemon's lock.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from handoffd.store.database import open_reader
from handoffd.store.faults import storage_error
from handoffd.store.schema import refuse_newer, version_of

# Not `queries.projects`: its rows need the engine and its codec, a quarter of a second of imports.
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
