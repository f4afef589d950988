"""Deliveries that are held back, and the one notice that takes the place of many.

All of this runs inside a transaction, or a question, of the outbox.
"""

from __future__ import annotations

import sqlite3
from datetime import datetime

from handoffd.store import tables
from handoffd.store.records import HeldBack, HeldLot, Outgoing


def held_back(db: sqlite3.Connection) -> tuple[HeldBack, ...]:
    """Return what is held back, by sink and reason."""
    if not is_known(db):
        return ()
    rows = db.execute(
        """SELECT sink, held, count(*), min(at) FROM deliveries JOIN notices ON notices.number = notice
        WHERE outcome IS NULL AND held IS NOT NULL GROUP BY sink, held ORDER BY sink, held"""
    )
    return tuple(
        HeldBack(sink=sink, reason=reason, count=count, oldest=datetime.fromisoformat(oldest))
        for sink, reason, count, oldest in rows
    )


def lot(db: sqlite3.Connection, sink: str, reason: str, limit: int) -> HeldLot | None:
    """Return what a sink is not told for a reason, with the texts of the first `limit`; None: nothing."""
    which = "sink = ? AND held = ? AND outcome IS NULL"
    count, upto = db.execute(
        f"SELECT count(*), max(number) FROM deliveries WHERE {which}",  # noqa: S608  (a fixed text)
        (sink, reason),
    ).fetchone()
    if not count:
        return None
    rows = db.execute(
        f"""SELECT body FROM deliveries JOIN notices ON notices.number = notice
        WHERE {which} ORDER BY deliveries.number LIMIT ?""",  # noqa: S608
        (sink, reason, limit),
    )
    return HeldLot(upto=upto, count=count, bodies=tuple(body for (body,) in rows))


def fold(
    db: sqlite3.Connection, sink: str, reason: str, upto: int, instead: Outgoing, lived_s: float
) -> None:
    """Have one notice take the place of all that is held back up to a number."""
    db.execute(
        """UPDATE deliveries SET outcome = 'folded', ended_s = ?
        WHERE sink = ? AND held = ? AND outcome IS NULL AND number <= ?""",
        (lived_s, sink, reason, upto),
    )
    write(db, instead, lived_s)


def write(db: sqlite3.Connection, notice: Outgoing, lived_s: float) -> bool:
    """Record a notice for its sinks; return whether it is new. One whose id is there stays as it is."""
    if not notice.sinks and notice.opens is None:
        return False
    added = db.execute(
        "INSERT OR IGNORE INTO notices (id, project, track, at, body) VALUES (?, ?, ?, ?, ?)",
        (notice.id, *notice.key, tables.moment(notice.at), notice.body),
    )
    for sink in notice.sinks:
        db.execute(
            """INSERT OR IGNORE INTO deliveries (notice, sink, born_s, held)
            SELECT number, ?, ?, ? FROM notices WHERE id = ?""",
            (sink, lived_s, notice.held.get(sink), notice.id),
        )
    return added.rowcount > 0


def is_known(db: sqlite3.Connection) -> bool:
    """Return whether this journal can hold anything back: an older one, looked at offline, cannot."""
    return any(row[1] == "held" for row in db.execute("PRAGMA table_info(deliveries)"))
