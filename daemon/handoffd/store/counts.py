"""How much of everything the journal holds: a few sums for whoever watches the daemon."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Sums over what is supervised now, sizes in bytes.

    `tracks` is by step and status; `deliveries` by sink and outcome, `waiting` where there is none yet.
    """

    tracks: Mapping[tuple[str, str], int]
    deliveries: Mapping[tuple[str, str], int]
    backlog: int
    """Stories that wait for their turn."""
    orders_pending: int
    newest_event: int
    database_bytes: int
    wal_bytes: int


def counts(db: sqlite3.Connection, path: Path) -> Counts:
    """Return the sums of the journal at `path`, which `db` has open."""
    tracks = db.execute(
        """SELECT coalesce(step, ''), coalesce(status, ''), count(*)
        FROM tracks JOIN projects ON root = project WHERE removed_at IS NULL GROUP BY 1, 2"""
    )
    standing = {(step, status): count for step, status, count in tracks}
    deliveries = db.execute(
        "SELECT sink, coalesce(outcome, 'waiting'), count(*) FROM deliveries GROUP BY 1, 2"
    )
    return Counts(
        tracks=standing,
        deliveries={(sink, outcome): count for sink, outcome, count in deliveries},
        backlog=_number(
            db,
            """SELECT coalesce(sum(json_array_length(body, '$.ledger.backlog')), 0)
            FROM tracks JOIN projects ON root = project WHERE removed_at IS NULL""",
        ),
        orders_pending=_number(db, "SELECT count(*) FROM effects WHERE outcome IS NULL"),
        newest_event=_number(db, "SELECT coalesce(max(seq), 0) FROM events"),
        database_bytes=_size(path),
        wal_bytes=_size(path.with_name(f"{path.name}-wal")),
    )


def gates(db: sqlite3.Connection) -> int:
    """Return how many tracks of supervised projects wait for a person."""
    return _number(
        db,
        """SELECT count(*) FROM tracks JOIN projects ON root = project
        WHERE removed_at IS NULL AND status = 'needs_human'""",
    )


def _number(db: sqlite3.Connection, query: str) -> int:
    (number,) = db.execute(query).fetchone()
    return int(number)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # SQLite makes and removes the second file
        return 0
