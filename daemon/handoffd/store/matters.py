"""What waits for a person, so that they can be told again: written with the notice that says so.

All of this runs inside a transaction, or a question, of the outbox. A track waits for one thing at a time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from handoffd.engine.track import TrackKey
from handoffd.store import tables
from handoffd.store.queries import tracks
from handoffd.store.records import MatterNow, Outgoing, StoredMatter


def open_matter(db: sqlite3.Connection, notice: Outgoing, key: TrackKey, reached_min: float) -> StoredMatter:
    """Note that what a notice tells of waits for a person, instead of what waited under its key before."""
    db.execute(
        """INSERT OR REPLACE INTO matters (project, track, notice, since, reached_min)
        SELECT ?, ?, number, ?, ? FROM notices WHERE id = ?""",
        (*key, tables.moment(notice.at), reached_min, notice.id),
    )
    return StoredMatter(key=key, notice=notice.id, since=notice.at, reached_min=reached_min)


def climb(db: sqlite3.Connection, notice: str, reached_min: float) -> None:
    """Note how far the ladder of a matter is climbed."""
    db.execute(
        "UPDATE matters SET reached_min = ? WHERE notice = (SELECT number FROM notices WHERE id = ?)",
        (reached_min, notice),
    )


def settle(db: sqlite3.Connection, notices: Sequence[str]) -> None:
    """Forget matters that are over, by the ids of their notices."""
    for notice in notices:
        db.execute("DELETE FROM matters WHERE notice = (SELECT number FROM notices WHERE id = ?)", (notice,))


def matters(db: sqlite3.Connection) -> tuple[StoredMatter, ...]:
    """Return all that waits."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'matters'").fetchone() is None:
        return ()  # looked at before a daemon has brought an older journal up to date
    rows = db.execute(
        """SELECT matters.project, matters.track, id, since, reached_min
        FROM matters JOIN notices ON notices.number = notice ORDER BY since, notice"""
    )
    return tuple(
        StoredMatter(
            key=TrackKey(project, track),
            notice=notice,
            since=datetime.fromisoformat(since),
            reached_min=reached_min,
        )
        for project, track, notice, since, reached_min in rows
    )


def matter_now(db: sqlite3.Connection, notice: str) -> MatterNow | None:
    """Return how a matter stands; None when it is none any more."""
    row = db.execute(
        """SELECT notices.body, matters.project, matters.track, root IS NOT NULL AND removed_at IS NULL
        FROM matters JOIN notices ON notices.number = notice
        LEFT JOIN projects ON root = matters.project WHERE id = ?""",
        (notice,),
    ).fetchone()
    if row is None:
        return None
    body, project, name, supervised = row
    stored = next((one for one in tracks(db, [project]) if one.key.track == name), None)
    unsound = stored is not None and stored.unsound is not None
    track = None if stored is None or unsound else stored.track
    return MatterNow(body=body, track=track, supervised=bool(supervised), unsound=unsound)
