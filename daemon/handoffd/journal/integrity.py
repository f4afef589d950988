"""What can be found wrong with a journal without deciding anything: the file, its rows, its order.

Each question is one statement, so SQLite does the walking and nothing is held in memory.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Iterator
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
    """Yield the numbers that no event has, but for those that a restore has left out or that were pruned."""
    return islice(_unexplained(db), _MOST_FAULTS)


def _unexplained(db: sqlite3.Connection) -> Iterator[Fault]:
    explained = not_kept(db)
    query = """SELECT before + 1, seq - 1 FROM
        (SELECT seq, lag(seq, 1, 0) OVER (ORDER BY seq) AS before FROM events
        UNION ALL SELECT s.seq + 1, (SELECT coalesce(max(seq), 0) FROM events)
        FROM sqlite_sequence AS s WHERE s.name = 'events')
        WHERE seq <> before + 1 ORDER BY seq"""
    for first, last in db.execute(query):
        # The range that begins last, but not after the gap.
        place = bisect_right(explained, first, key=lambda one: one[0]) - 1
        if place < 0 or explained[place][1] < last:
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


def not_kept(db: sqlite3.Connection) -> list[tuple[int, int]]:
    """Return the first and last numbers of events that are not kept, in order; neighbours are one range."""
    ranges = [(int(one["after"]) + 1, int(one["next"]) - 1) for one in restores(db)]
    return merged([*ranges, *pruned(db)])


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges of numbers in order, with those that touch each other as one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(one for one in ranges if one[0] <= one[1]):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found


def pruned(db: sqlite3.Connection) -> list[tuple[int, int]]:
    """Return the first and last numbers of events that were old enough to go."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'pruned'").fetchone() is None:
        return []  # looked at before a daemon has brought an older journal up to date
    return db.execute("SELECT first, last FROM pruned ORDER BY first").fetchall()


def restores(db: sqlite3.Connection) -> tuple[dict[str, int | str], ...]:
    """Return the restores of the journal: each with the time, and the numbers around what it left out."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (RESTORED,)).fetchone()
    return () if row is None else tuple(json.loads(row[0]))
