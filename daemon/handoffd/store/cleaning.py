"""What the journal knows of runs that may go, and what it drops itself of what was told to people.

Nothing waits for these: they are done in small transactions, between those that somebody waits for.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from handoffd.store import tables
from handoffd.store.requests import Run

BATCH = 500
"""Rows in one transaction; as many as SQLite drops in a few milliseconds."""

_CLEANED = "cleaned_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What is known of a dispatch: its project, whether it was judged, and when it ended."""

    project: str
    judged: bool
    ended_at: datetime | None


class Cleaning:
    """Questions and work of the housekeeping. All methods raise StoreError like `Journal`."""

    def __init__(self, read: Run, write: Run) -> None:
        self._read = read
        self._write = write

    async def ends(self, ids: Sequence[str]) -> Mapping[str, End]:
        """Return what is known of dispatches, by id; what the journal does not know is left out."""
        found: dict[str, End] = {}
        for begin in range(0, len(ids), BATCH):
            some = tuple(ids[begin : begin + BATCH])
            found.update(await self._read("read how runs ended", partial(_ends, ids=some)))
        return found

    async def last(self) -> datetime | None:
        """Return when it was cleaned up last."""
        return await self._read("read when it was cleaned up", _last)

    async def note(self, at: datetime) -> None:
        """Remember that it was cleaned up."""
        await self._write("note that it was cleaned up", partial(_note, at=at))

    async def notices(self, before: datetime) -> tuple[int, int]:
        """Return how many notices from before that time nobody has to get any more, and their bytes."""
        return await self._read("count the notices", partial(_notices, before=before))

    async def drop_notices(self, before: datetime) -> int:
        """Drop some of them; return how many, 0 when there are none left."""
        return await self._write("drop old notices", partial(_drop_notices, before=before))


def _ends(db: sqlite3.Connection, ids: tuple[str, ...]) -> dict[str, End]:
    marks = ", ".join("?" * len(ids))
    rows = db.execute(
        f"SELECT id, project, result IS NOT NULL, ended_at FROM dispatches WHERE id IN ({marks})",  # noqa: S608
        ids,
    )
    return {
        one: End(
            project=project,
            judged=bool(judged),
            ended_at=None if ended_at is None else datetime.fromisoformat(ended_at),
        )
        for one, project, judged, ended_at in rows
    }


def _last(db: sqlite3.Connection) -> datetime | None:
    row = db.execute("SELECT value FROM meta WHERE key = ?", (_CLEANED,)).fetchone()
    return None if row is None else datetime.fromisoformat(row[0])


def _note(db: sqlite3.Connection, at: datetime) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_CLEANED, tables.moment(at)))


# One on its way to somebody stays, and so does one of a matter that still waits for a person.
_OLD = """notices.at < ?
    AND NOT EXISTS (SELECT 1 FROM deliveries WHERE notice = notices.number AND outcome IS NULL)
    AND NOT EXISTS (SELECT 1 FROM matters WHERE notice = notices.number)"""


def _notices(db: sqlite3.Connection, before: datetime) -> tuple[int, int]:
    query = f"SELECT count(*), coalesce(sum(length(body)), 0) FROM notices WHERE {_OLD}"  # noqa: S608
    count, weight = db.execute(query, (tables.moment(before),)).fetchone()
    return int(count), int(weight)


def _drop_notices(db: sqlite3.Connection, before: datetime) -> int:
    query = f"SELECT number FROM notices WHERE {_OLD} ORDER BY number LIMIT ?"  # noqa: S608
    numbers = db.execute(query, (tables.moment(before), BATCH)).fetchall()
    db.executemany("DELETE FROM deliveries WHERE notice = ?", numbers)
    db.executemany("DELETE FROM notices WHERE number = ?", numbers)
    return len(numbers)
