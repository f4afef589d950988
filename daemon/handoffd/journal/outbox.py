"""Notices in the journal: recorded before they are sent, a row for each sink that gets one.

Rows stay when they are over, as the record of what each sink got. How old a notice is, is
measured by `lived_s`, the seconds that daemons have lived on this journal (kept in `meta`), because
the wall clock may jump and machines are switched off.

A delivery may be held back (for the night, for a digest), until one notice takes the place of many. A
matter is something that waits for a person. It is written with its notice, so that people can be reminded; a
track waits for one thing at a time.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import structlog

from handoffd.engine.decision import still_waits
from handoffd.engine.flow.flow import FLOWS
from handoffd.engine.notice import (
    Expired,
    Held,
    Lane,
    Lot,
    Matter,
    Notice,
    Opened,
    Opening,
    Parcel,
    Reason,
    Waiting,
)
from handoffd.engine.track import TrackKey
from handoffd.journal.codec import moment
from handoffd.journal.commit import finish_effect
from handoffd.journal.connections import Run
from handoffd.journal.flow_queries import asks, waits_for_person
from handoffd.journal.queries import tracks
from handoffd.journal.records import Backlog

log = structlog.get_logger(__name__)

_CLOCK = "outbox_lived_s"
_MOST_TEXT = 500
"""Characters kept of why a delivery failed."""


class Outbox:
    """Notices for people, and their deliveries: the notifier's `Box`.

    All methods raise StoreError like `Journal`.
    """

    def __init__(self, read: Run, write: Run) -> None:
        self._read = read
        self._write = write

    async def open(self, sinks: Collection[str]) -> Opened:
        """Drop notices that wait for other sinks; return the clock, and how many each sink lost."""
        return await self._write("open the outbox", partial(_open, sinks=tuple(sinks)))

    async def keep(self, parcels: Sequence[Parcel], lived_s: float) -> tuple[Matter, ...]:
        """Record notices, each for its sinks, and mark their orders done, all or nothing.

        One whose id is there already is left as it is. Returns the matters that are new.
        """
        return await self._write("record notices", partial(_keep, parcels=tuple(parcels), lived_s=lived_s))

    async def waiting(self, sink: str, after: int, limit: int) -> tuple[Waiting, ...]:
        """Return at most `limit` undelivered notices of a sink with a number above `after`, in order."""
        return await self._read("read the outbox", partial(_waiting, sink=sink, after=after, limit=limit))

    async def read(self, number: int) -> Notice | None:
        """Return a notice by the number of one of its deliveries; None if it is gone or cannot be read."""
        return await self._read("read a notice", partial(_read, number=number))

    async def delivered(self, number: int, lived_s: float) -> None:
        """Mark a delivery as done."""
        await self._write("mark a notice delivered", partial(_delivered, number=number, lived_s=lived_s))

    async def failed(self, number: int, why: str, lived_s: float) -> None:
        """Count a try that failed."""
        await self._write("count a try", partial(_failed, number=number, why=why, lived_s=lived_s))

    async def give_up(self, number: int, why: str, lived_s: float) -> Expired:
        """End a delivery that will not succeed."""
        return await self._write(
            "give up a notice", partial(_give_up, number=number, why=why, lived_s=lived_s)
        )

    async def expire(self, sink: str, age_s: float, lived_s: float) -> tuple[Expired, ...]:
        """End the deliveries of a sink that have waited for `age_s` or longer; return them by track."""
        work = partial(_expire, sink=sink, age_s=age_s, lived_s=lived_s)
        return await self._write("give up notices", work)

    async def held(self) -> tuple[Held, ...]:
        """Return what is held back, by sink and reason; a later release may have had further reasons."""
        return await self._read("read what is held back", _held)

    async def lot(self, sink: str, reason: Reason, limit: int) -> Lot | None:
        """Return what is held back from a sink for a reason, with the first `limit` that can be read."""
        return await self._read(
            "read what is held back", partial(_lot, sink=sink, reason=reason, limit=limit)
        )

    async def fold(self, sink: str, reason: Reason, upto: int, instead: Notice, lived_s: float) -> None:
        """Have one notice take the place of all that is held back up to a number."""
        work = partial(_fold, sink=sink, reason=reason, upto=upto, instead=instead, lived_s=lived_s)
        await self._write("fold notices into one", work)

    async def matters(self) -> tuple[Matter, ...]:
        """Return the open matters."""
        return await self._read("read the matters", _matters)

    async def outlook(self, notice: str) -> Notice | None:
        """Return the notice of a matter that still waits; None when that is over."""
        return await self._read("read a matter", partial(_outlook, notice=notice))

    async def settle(self, notices: Sequence[str]) -> None:
        """Forget matters that are over, by the ids of their notices."""
        await self._write("forget what waited", partial(_settle, notices=tuple(notices)))

    async def backlog(self, lately_s: float) -> tuple[Backlog, ...]:
        """Return what each sink has not taken: waiting notices, and ones given up in the last `lately_s`."""
        return await self._read("read the outbox", partial(_backlog, lately_s=lately_s))


# --- inside a transaction, or a question: notices and deliveries --------------------------------------
def _open(db: sqlite3.Connection, sinks: tuple[str, ...]) -> Opened:
    lived_s = _clock(db)
    foreign = f"outcome IS NULL AND sink NOT IN ({', '.join('?' * len(sinks))})"
    counts = db.execute(f"SELECT sink, count(*) FROM deliveries WHERE {foreign} GROUP BY sink", sinks)  # noqa: S608
    dropped = {str(sink): int(count) for sink, count in counts}
    db.execute(
        f"UPDATE deliveries SET outcome = 'dropped', ended_s = ? WHERE {foreign}",  # noqa: S608  (marks only)
        (lived_s, *sinks),
    )
    return Opened(lived_s=lived_s, dropped=dropped)


def _keep(db: sqlite3.Connection, parcels: tuple[Parcel, ...], lived_s: float) -> tuple[Matter, ...]:
    opened = []
    for parcel in parcels:
        if _write(db, parcel, lived_s) and parcel.opens is not None:
            opened.append(_open_matter(db, parcel.notice, parcel.opens))
        if parcel.climbed is not None:
            _climb(db, *parcel.climbed)
        if parcel.order is not None:
            finish_effect(db, parcel.notice.project, parcel.order, "done")
    _set_clock(db, lived_s)
    return tuple(opened)


def _waiting(db: sqlite3.Connection, sink: str, after: int, limit: int) -> tuple[Waiting, ...]:
    rows = db.execute(
        """SELECT deliveries.number, project, track, tries
        FROM deliveries JOIN notices ON notices.number = notice
        WHERE sink = ? AND outcome IS NULL AND held IS NULL AND deliveries.number > ?
        ORDER BY deliveries.number LIMIT ?""",
        (sink, after, limit),
    )
    return tuple(
        Waiting(number=number, lane=(project, track), tries=tries) for number, project, track, tries in rows
    )


def _read(db: sqlite3.Connection, number: int) -> Notice | None:
    row = db.execute(
        """SELECT body FROM deliveries JOIN notices ON notices.number = notice
        WHERE deliveries.number = ?""",
        (number,),
    ).fetchone()
    return None if row is None else _notice(row[0])


def _notice(body: str) -> Notice | None:
    try:
        return Notice.from_json(body)
    except ValueError as error:
        log.warning("a recorded notice cannot be read", error=str(error))
        return None


def _delivered(db: sqlite3.Connection, number: int, lived_s: float) -> None:
    _end(db, "delivered", lived_s, "number = ?", (number,))
    _set_clock(db, lived_s)


def _failed(db: sqlite3.Connection, number: int, why: str, lived_s: float) -> None:
    _note(db, number, why, lived_s)
    _set_clock(db, lived_s)


def _give_up(db: sqlite3.Connection, number: int, why: str, lived_s: float) -> Expired:
    _note(db, number, why, lived_s)
    (expired,) = _lapse(db, "deliveries.number = ?", (number,), lived_s)
    return expired


def _expire(db: sqlite3.Connection, sink: str, age_s: float, lived_s: float) -> tuple[Expired, ...]:
    which = "outcome IS NULL AND held IS NULL AND sink = ? AND born_s <= ?"
    return _lapse(db, which, (sink, lived_s - age_s), lived_s)


def _lapse(
    db: sqlite3.Connection, which: str, values: tuple[Any, ...], lived_s: float
) -> tuple[Expired, ...]:
    rows = db.execute(
        f"""SELECT deliveries.number, project, track, id FROM deliveries JOIN notices
        ON notices.number = notice WHERE {which} ORDER BY deliveries.number""",  # noqa: S608  (fixed texts)
        values,
    )
    numbers: defaultdict[Lane, list[int]] = defaultdict(list)
    first: dict[Lane, str] = {}
    for number, project, track, name in rows:
        lane = (project, track)
        numbers[lane].append(number)
        first.setdefault(lane, name)
    _end(db, "given_up", lived_s, which, values)
    _set_clock(db, lived_s)
    return tuple(
        Expired(lane=lane, numbers=tuple(found), first=first[lane]) for lane, found in numbers.items()
    )


def _note(db: sqlite3.Connection, number: int, why: str, lived_s: float) -> None:
    text = why.encode("utf-8", "replace").decode()[:_MOST_TEXT]
    db.execute(
        "UPDATE deliveries SET tries = tries + 1, error = ?, failed_s = ? WHERE number = ?",
        (text, lived_s, number),
    )


def _end(db: sqlite3.Connection, outcome: str, lived_s: float, which: str, values: tuple[Any, ...]) -> None:
    db.execute(
        f"UPDATE deliveries SET outcome = ?, ended_s = ? WHERE {which} AND outcome IS NULL",  # noqa: S608
        (outcome, lived_s, *values),
    )


def _backlog(db: sqlite3.Connection, lately_s: float) -> tuple[Backlog, ...]:
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'deliveries'").fetchone() is None:
        return ()  # looked at before a daemon has brought an older journal up to date
    since_s = _clock(db) - lately_s
    due = "outcome IS NULL AND held IS NULL" if _can_hold(db) else "outcome IS NULL"
    sinks = db.execute(
        f"""SELECT DISTINCT sink FROM deliveries WHERE {due}
        UNION SELECT DISTINCT sink FROM deliveries WHERE outcome = 'given_up' AND ended_s > ? ORDER BY 1""",  # noqa: S608
        (since_s,),
    )
    return tuple(_backlog_of(db, sink, since_s, due) for (sink,) in sinks.fetchall())


def _backlog_of(db: sqlite3.Connection, sink: str, since_s: float, due: str) -> Backlog:
    waits = f"sink = ? AND {due}"
    count, tries, oldest = db.execute(
        f"SELECT count(*), coalesce(sum(tries), 0), min(notice) FROM deliveries WHERE {waits}",  # noqa: S608
        (sink,),
    ).fetchone()
    at = db.execute("SELECT at FROM notices WHERE number = ?", (oldest,)).fetchone()
    error = db.execute(
        """SELECT error FROM deliveries WHERE sink = ? AND failed_s IS NOT NULL
        AND outcome IS NOT 'delivered' AND (outcome IS NULL OR ended_s > ?)
        ORDER BY failed_s DESC LIMIT 1""",
        (sink, since_s),
    ).fetchone()
    (given_up,) = db.execute(
        "SELECT count(*) FROM deliveries WHERE sink = ? AND outcome = 'given_up' AND ended_s > ?",
        (sink, since_s),
    ).fetchone()
    return Backlog(
        sink=sink,
        undelivered=count,
        tries=tries,
        oldest=None if at is None else datetime.fromisoformat(at[0]),
        last_error=None if error is None else error[0],
        given_up=given_up,
    )


def _clock(db: sqlite3.Connection) -> float:
    row = db.execute("SELECT value FROM meta WHERE key = ?", (_CLOCK,)).fetchone()
    return 0.0 if row is None else float(row[0])


def _set_clock(db: sqlite3.Connection, lived_s: float) -> None:
    if lived_s > _clock(db):
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_CLOCK, repr(lived_s)))


# --- the same for what is held back -------------------------------------------------------------------
def _write(db: sqlite3.Connection, parcel: Parcel, lived_s: float) -> bool:
    """Record a notice for its sinks; return whether it is new. One whose id is there stays as it is."""
    if not parcel.sinks and parcel.opens is None:
        return False
    notice = parcel.notice
    body = notice.as_json().encode("utf-8", "replace").decode()
    added = db.execute(
        "INSERT OR IGNORE INTO notices (id, project, track, at, body) VALUES (?, ?, ?, ?, ?)",
        (notice.id, notice.project, notice.track, moment(notice.at), body),
    )
    for sink in parcel.sinks:
        db.execute(
            """INSERT OR IGNORE INTO deliveries (notice, sink, born_s, held)
            SELECT number, ?, ?, ? FROM notices WHERE id = ?""",
            (sink, lived_s, parcel.held.get(sink), notice.id),
        )
    return added.rowcount > 0


def _held(db: sqlite3.Connection) -> tuple[Held, ...]:
    """Return what is held back, by sink and reason."""
    if not _can_hold(db):
        return ()
    rows = db.execute(
        """SELECT sink, held, count(*), min(at) FROM deliveries JOIN notices ON notices.number = notice
        WHERE outcome IS NULL AND held IS NOT NULL GROUP BY sink, held ORDER BY sink, held"""
    )
    return tuple(
        Held(sink=sink, reason=reason, count=count, since=datetime.fromisoformat(oldest))
        for sink, reason, count, oldest in rows
    )


def _lot(db: sqlite3.Connection, sink: str, reason: Reason, limit: int) -> Lot | None:
    """Return what is held back from a sink for a reason, with the first `limit`; None: nothing."""
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
    notices = tuple(filter(None, (_notice(body) for (body,) in rows)))
    return Lot(upto=upto, count=count, notices=notices)


def _fold(
    db: sqlite3.Connection, sink: str, reason: Reason, upto: int, instead: Notice, lived_s: float
) -> None:
    """Have one notice take the place of all that is held back up to a number."""
    db.execute(
        """UPDATE deliveries SET outcome = 'folded', ended_s = ?
        WHERE sink = ? AND held = ? AND outcome IS NULL AND number <= ?""",
        (lived_s, sink, reason, upto),
    )
    _write(db, Parcel(notice=instead, sinks=(sink,)), lived_s)


def _can_hold(db: sqlite3.Connection) -> bool:
    """Return whether this journal can hold anything back: an older one, looked at offline, cannot."""
    return any(row[1] == "held" for row in db.execute("PRAGMA table_info(deliveries)"))


# --- and for matters ----------------------------------------------------------------------------------
def _open_matter(db: sqlite3.Connection, notice: Notice, opens: Opening) -> Matter:
    """Note that a notice's subject waits for a person; it replaces the matter its lane had before."""
    db.execute(
        """INSERT OR REPLACE INTO matters (project, track, notice, since, reached_min)
        SELECT ?, ?, number, ?, ? FROM notices WHERE id = ?""",
        (*opens.lane, moment(notice.at), opens.reached_min, notice.id),
    )
    return Matter(notice=notice.id, lane=opens.lane, since=notice.at, reached_min=opens.reached_min)


def _climb(db: sqlite3.Connection, notice: str, reached_min: float) -> None:
    """Note how far the ladder of a matter is climbed."""
    db.execute(
        "UPDATE matters SET reached_min = ? WHERE notice = (SELECT number FROM notices WHERE id = ?)",
        (reached_min, notice),
    )


def _settle(db: sqlite3.Connection, notices: Sequence[str]) -> None:
    """Forget matters that are over, by the ids of their notices."""
    for notice in notices:
        db.execute("DELETE FROM matters WHERE notice = (SELECT number FROM notices WHERE id = ?)", (notice,))


def _matters(db: sqlite3.Connection) -> tuple[Matter, ...]:
    """Return all that waits."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'matters'").fetchone() is None:
        return ()  # looked at before a daemon has brought an older journal up to date
    rows = db.execute(
        """SELECT matters.project, matters.track, id, since, reached_min
        FROM matters JOIN notices ON notices.number = notice ORDER BY since, notice"""
    )
    return tuple(
        Matter(
            notice=notice,
            lane=(project, track),
            since=datetime.fromisoformat(since),
            reached_min=reached_min,
        )
        for project, track, notice, since, reached_min in rows
    )


def _outlook(db: sqlite3.Connection, notice: str) -> Notice | None:
    """Return the notice of a matter that still waits; None when that is over, or cannot be read."""
    row = db.execute(
        """SELECT notices.body, matters.project, matters.track, root IS NOT NULL AND removed_at IS NULL
        FROM matters JOIN notices ON notices.number = notice
        LEFT JOIN projects ON root = matters.project WHERE id = ?""",
        (notice,),
    ).fetchone()
    if row is None:
        return None
    body, project, name, supervised = row
    told = _notice(body)
    if told is None or not supervised:
        return None
    if name.startswith(FLOWS) and not told.track:  # a question: the lane is of its flow and its node
        flow_id, _, node = name.partition("/")
        return told if asks(db, TrackKey(project, flow_id), node) else None
    if not told.track:
        return told  # about the project as a whole: until it is settled
    if told.track.startswith(FLOWS):
        return told if waits_for_person(db, TrackKey(project, name)) else None
    stored = next((one for one in tracks(db, [project]) if one.key.track == name), None)
    if stored is None:
        return None
    # Nothing is decided on an unsound track before it is repaired.
    waits = stored.unsound is not None or still_waits(stored.track, told.story, told.step)
    return told if waits else None
