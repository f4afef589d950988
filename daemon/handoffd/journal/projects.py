"""The projects that are looked after, and what is kept for them: texts that a person trusts, baselines.

A project that is removed keeps its row and its history. One that the settings brought may be brought back by
them, one that a person has removed may not: `brought_by` tells them apart.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from handoffd.engine.track import TrackKey
from handoffd.errors import NotFound, StoreError
from handoffd.journal.codec import moment
from handoffd.journal.queries import among
from handoffd.journal.records import Newcomer, Origins, StoredProject


def put_projects(
    db: sqlite3.Connection, newcomers: Sequence[Newcomer], at: datetime, untrusted: Sequence[str] = ()
) -> None:
    """Add projects, or rename those that are there; what was removed earlier counts from `at` again.

    `untrusted` files of theirs that nobody has trusted yet count as trusted while they are empty.
    """
    db.executemany(
        """INSERT INTO projects (root, name, added_at, brought_by) VALUES (?, ?, ?, ?)
        ON CONFLICT (root) DO UPDATE SET name = excluded.name, removed_at = NULL,
        brought_by = excluded.brought_by,
        added_at = iif(removed_at IS NULL, added_at, excluded.added_at)""",
        [(one.root, one.name, moment(at), one.brought_by) for one in newcomers],
    )
    db.executemany(
        "INSERT OR IGNORE INTO trusted VALUES (?, ?, '', ?)",
        [(one.root, file, moment(at)) for one in newcomers for file in untrusted],
    )


def let_go(db: sqlite3.Connection, roots: Sequence[str], at: datetime) -> None:
    """Mark projects removed that the settings name no more: they may bring them back."""
    db.executemany(
        """UPDATE projects SET removed_at = ?
        WHERE root = ? AND removed_at IS NULL AND brought_by IS NOT NULL""",
        [(moment(at), root) for root in roots],
    )


def retire_project(db: sqlite3.Connection, root: str, at: datetime) -> None:
    """Mark a project removed by a person; its history stays. NotFound when it is not looked after."""
    changed = db.execute(
        "UPDATE projects SET removed_at = ?, brought_by = NULL WHERE root = ? AND removed_at IS NULL",
        (moment(at), root),
    ).rowcount
    if changed == 0:
        raise NotFound(f"no project at {root}", hint="handoffd projects")


def put_trusted(db: sqlite3.Connection, root: str, file: str, text: str, at: datetime) -> None:
    """Keep the text of a project's own file that a person has trusted, replacing the earlier one."""
    db.execute("INSERT OR REPLACE INTO trusted VALUES (?, ?, ?, ?)", (root, file, text, moment(at)))


def checked_path(path: str) -> None:
    """Raise StoreError when `path` is not UTF-8, which the journal cannot hold."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError as error:
        raise StoreError(
            f"{path!a}: the path is not UTF-8", hint="rename the folder, then add it again"
        ) from error


def projects(db: sqlite3.Connection) -> tuple[StoredProject, ...]:
    """Return the projects that are looked after, by root."""
    rows = db.execute("SELECT root, name, added_at FROM projects WHERE removed_at IS NULL ORDER BY root")
    return tuple(
        StoredProject(root=root, name=name, added_at=datetime.fromisoformat(at)) for root, name, at in rows
    )


def origins(db: sqlite3.Connection) -> Origins:
    """Return how the projects came that are looked after, and which ones a person has removed."""
    columns = {name for _, name, *_ in db.execute("PRAGMA table_info(projects)")}
    if "brought_by" not in columns:  # looked at before a daemon has brought an older journal up to date
        return Origins(brought_by={}, kept_out=frozenset())
    brought = db.execute(
        "SELECT root, brought_by FROM projects WHERE removed_at IS NULL AND brought_by IS NOT NULL"
    )
    kept_out = db.execute("SELECT root FROM projects WHERE removed_at IS NOT NULL AND brought_by IS NULL")
    return Origins(brought_by=dict(brought), kept_out=frozenset(root for (root,) in kept_out))


def trusted(db: sqlite3.Connection, roots: Sequence[str] | None) -> dict[str, dict[str, str]]:
    """Return the texts that a person has trusted last, by root and file; of these roots or of all."""
    query = f"SELECT root, file, text FROM trusted {among('root', roots)}"  # noqa: S608  (see `tracks`)
    rows = db.execute(query, roots or ())
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for owner, file, text in rows:
        found[owner][file] = text
    return found


def put_baseline(db: sqlite3.Connection, key: TrackKey, story: str, body: bytes) -> None:
    """Keep the results of a story's baseline run, replacing earlier ones."""
    db.execute("INSERT OR REPLACE INTO baselines VALUES (?, ?, ?, ?)", (*key, story, body))


def baseline(db: sqlite3.Connection, key: TrackKey, story: str) -> bytes | None:
    """Return the results kept for a story, or None."""
    row = db.execute(
        "SELECT body FROM baselines WHERE project = ? AND track = ? AND story = ?", (*key, story)
    ).fetchone()
    return None if row is None else bytes(row[0])
