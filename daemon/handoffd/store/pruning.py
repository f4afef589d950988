"""Dropping old events, so that what is left is a journal as good as one that began later.

A story that ended long ago goes whole. First its track gets a snapshot of how it stood after it, which is
where a replay begins from then on; that alone loses nothing. Then the events before the snapshot go, in
small transactions, each with their orders and with a note of their numbers, so that a reader is told of a
gap and a verification does not take it for a loss. Events that a row still points to stay.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from handoffd.engine.track import Track, TrackKey
from handoffd.store import tables
from handoffd.store.codec import encode
from handoffd.store.requests import KEPT, Run
from handoffd.store.soundness import merged

BATCH = 200
"""Events that go in one transaction."""

_VACUUMED_PAGES = 2000
_INCREMENTAL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Old:
    """The events of one track that may go: up to which number, how many, and what their rows take.

    `covered`: whether a snapshot stands for them already.
    """

    key: TrackKey
    until: int
    count: int
    bytes: int
    covered: bool


class Pruning:
    """Questions and work on old events. All methods raise StoreError like `Journal`."""

    def __init__(self, read: Run, write: Run) -> None:
        self._read = read
        self._write = write

    async def old(self, before: datetime) -> tuple[Old, ...]:
        """Return what may go of each track: stories that ended before that time, all their orders done."""
        return await self._read("look for old events", partial(_old, before=before))

    async def cover(self, key: TrackKey, until: int, standing: Track) -> None:
        """Let a replay of a track begin after event `until`, which left it as `standing`."""
        body = encode(standing)
        await self._write("write a snapshot", partial(_cover, key=key, until=until, body=body))

    async def drop(self, key: TrackKey, until: int, now: datetime, limit: int = BATCH) -> int:
        """Drop at most `limit` events of a track before `until`; return how many, 0 when none is left."""
        work = partial(_drop, key=key, until=until, now=now, limit=limit)
        return await self._write("drop old events", work)

    async def tidy(self) -> None:
        """Drop the step tables that no event was decided by, and give room back to the disk."""
        await self._write("drop old step tables", _drop_rulebooks)
        while await self._write("give room back", _shrink):
            continue


# Whatever a row points to stays, and so does the event that a track stands at.
_FREE = """FROM events AS e WHERE e.project = :project AND e.track = :track AND e.seq < :until
    AND NOT EXISTS (SELECT 1 FROM tracks AS t WHERE t.seq = e.seq)
    AND NOT EXISTS (SELECT 1 FROM snapshots AS s WHERE s.seq = e.seq)
    AND NOT EXISTS (SELECT 1 FROM requests AS r WHERE r.seq = e.seq)
    AND NOT EXISTS (SELECT 1 FROM schedules AS c WHERE c.seq = e.seq)
    AND e.seq IS NOT
        (SELECT max(p.seq) FROM projections AS p WHERE p.project = :project AND p.track = :track)"""

_ENDED = """SELECT e.project, e.track, max(e.seq) FROM events AS e
    WHERE e.step_after = 'done' AND e.at < :before
    AND NOT EXISTS (SELECT 1 FROM effects AS f WHERE f.outcome IS NULL
        AND f.project = e.project AND f.track = e.track AND f.seq <= e.seq)
    GROUP BY e.project, e.track ORDER BY e.project, e.track"""


def _old(db: sqlite3.Connection, before: datetime) -> tuple[Old, ...]:
    found = []
    for project, name, until in db.execute(_ENDED, {"before": tables.moment(before)}).fetchall():
        wanted = {"project": project, "track": name, "until": until}
        count, weight = db.execute(
            f"""SELECT count(*), coalesce(sum(length(event) + length(result) + length(why)
            + length(coalesce(grounds, ''))), 0) {_FREE}""",
            wanted,
        ).fetchone()
        covered = db.execute(
            "SELECT 1 FROM snapshots WHERE project = :project AND track = :track AND seq >= :until", wanted
        ).fetchone()
        if count:
            key = TrackKey(project, name)
            found.append(Old(key=key, until=until, count=count, bytes=weight, covered=covered is not None))
    return tuple(found)


def _cover(db: sqlite3.Connection, key: TrackKey, until: int, body: str) -> None:
    db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", (*key, until, body))


def _drop(db: sqlite3.Connection, key: TrackKey, until: int, now: datetime, limit: int) -> int:
    db.execute("DELETE FROM requests WHERE at < ?", (tables.moment(now - KEPT),))
    wanted = {"project": key.project, "track": key.track, "until": until, "limit": limit}
    numbers = db.execute(f"SELECT e.seq {_FREE} ORDER BY e.seq LIMIT :limit", wanted).fetchall()
    db.executemany("DELETE FROM effects WHERE seq = ?", numbers)
    db.executemany("DELETE FROM projections WHERE seq = ?", numbers)
    db.executemany("DELETE FROM events WHERE seq = ?", numbers)
    _note(db, [seq for (seq,) in numbers])
    return len(numbers)


def _note(db: sqlite3.Connection, numbers: list[int]) -> None:
    """Add numbers to those that are not kept; ranges that come to touch each other become one."""
    for first, last in merged((number, number) for number in numbers):
        around = {"before": first - 1, "after": last + 1}
        touching = db.execute(
            "SELECT first, last FROM pruned WHERE last = :before OR first = :after", around
        ).fetchall()
        db.executemany("DELETE FROM pruned WHERE first = ?", [(begin,) for begin, _ in touching])
        ((begin, end),) = merged([*touching, (first, last)])
        db.execute("INSERT INTO pruned VALUES (?, ?)", (begin, end))


def _drop_rulebooks(db: sqlite3.Connection) -> None:
    db.execute(
        "DELETE FROM rulebooks WHERE id NOT IN (SELECT rulebook FROM events WHERE rulebook IS NOT NULL)"
    )


def _shrink(db: sqlite3.Connection) -> bool:
    """Give some free pages back; tell whether there are more. Older files keep theirs for new rows."""
    db.execute(f"PRAGMA incremental_vacuum({_VACUUMED_PAGES})").fetchall()
    (mode,) = db.execute("PRAGMA auto_vacuum").fetchone()
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    return bool(mode == _INCREMENTAL and free > 0)
