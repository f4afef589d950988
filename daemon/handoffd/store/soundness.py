"""What can be found wrong with a journal without deciding anything: the file, its rows, its order.

Each question is one statement, so SQLite does the walking and nothing is held in memory.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

_MOST_FAULTS = 100
"""A file that is damaged throughout need not be described row by row."""

RESTORED = "restored"
"""The key of `meta` under which restores are kept: a list of `{at, after, next}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing wrong. `seq` is the number of the event it is about, where it is about one."""

    kind: str
    message: str
    seq: int | None = None


def integrity(db: sqlite3.Connection) -> Iterator[Fault]:
    """Yield what SQLite finds damaged in the file. Reads all of it."""
    try:
        for (finding,) in db.execute(f"PRAGMA integrity_check({_MOST_FAULTS})"):
            if finding != "ok":
                yield Fault(kind="damaged", message=str(finding).replace("\n", " "))
    except sqlite3.DatabaseError as error:
        yield Fault(kind="damaged", message=str(error))


def references(db: sqlite3.Connection) -> Iterator[Fault]:
    """Yield the rows that belong to something which is not there."""
    for table, row, parent, _ in islice(db.execute("PRAGMA foreign_key_check"), _MOST_FAULTS):
        yield Fault(
            kind="reference", message=f"row {row} of {table} points to a row of {parent} that is gone"
        )


def gaps(db: sqlite3.Connection) -> Iterator[Fault]:
    """Yield the numbers that no event has, but for those that a restore has left out."""
    left_out = {(one["after"], one["next"]) for one in restores(db)}
    query = """SELECT before, seq FROM
        (SELECT seq, lag(seq, 1, 0) OVER (ORDER BY seq) AS before FROM events
        UNION ALL SELECT s.seq + 1, (SELECT coalesce(max(seq), 0) FROM events)
        FROM sqlite_sequence AS s WHERE s.name = 'events')
        WHERE seq <> before + 1 ORDER BY seq LIMIT ?"""
    for before, seq in db.execute(query, (_MOST_FAULTS,)):
        if (before, seq) not in left_out:
            first, last = before + 1, seq - 1
            missing = f"event {first} is" if first == last else f"events {first} to {last} are"
            yield Fault(kind="missing", message=f"{missing} missing", seq=first)


def projections(db: sqlite3.Connection) -> Iterator[Fault]:
    """Yield remembered texts of STATE.json that no event made, and latest ones not remembered."""
    query = """SELECT p.project, p.track, p.seq FROM projections AS p LEFT JOIN events AS e ON e.seq = p.seq
        WHERE e.digest IS NOT p.digest OR e.project IS NOT p.project OR e.track IS NOT p.track LIMIT ?"""
    for project, track, seq in db.execute(query, (_MOST_FAULTS,)):
        message = f"a text of STATE.json of {project} ({track}) is remembered that event {seq} did not make"
        yield Fault(kind="projection", message=message, seq=seq)
    latest = """SELECT t.project, t.track FROM tracks AS t WHERE t.digest IS NOT NULL AND NOT EXISTS
        (SELECT 1 FROM projections AS p WHERE p.project = t.project AND p.track = t.track
        AND p.digest = t.digest) LIMIT ?"""
    for project, track in db.execute(latest, (_MOST_FAULTS,)):
        message = f"the latest text of STATE.json of {project} ({track}) is not among those remembered"
        yield Fault(kind="projection", message=message)


def projects(db: sqlite3.Connection) -> Iterator[Fault]:
    """Yield the projects with a track, events or dispatches that are not in the list of projects.

    One that is not looked after any more stays in it.
    """
    query = """SELECT project FROM
        (SELECT project FROM tracks UNION SELECT project FROM events UNION SELECT project FROM dispatches)
        WHERE NOT EXISTS (SELECT 1 FROM projects WHERE root = project) ORDER BY project LIMIT ?"""
    for (project,) in db.execute(query, (_MOST_FAULTS,)):
        message = f"{project} has a history, but is not in the list of projects"
        yield Fault(kind="project", message=message)


def restores(db: sqlite3.Connection) -> tuple[dict[str, int | str], ...]:
    """Return the restores of the journal: each with the time, and the numbers around what it left out."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (RESTORED,)).fetchone()
    return () if row is None else tuple(json.loads(row[0]))
