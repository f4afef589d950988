"""How much of everything the journal holds: a few sums for whoever watches the daemon."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Sums over what is supervised now, sizes in bytes.

    `tracks` is by step and status; `deliveries` by sink and outcome; those without one are `held` while they
    are not to be told yet, else `waiting`.
    """

    tracks: Mapping[tuple[str, str], int]
    waiting_for_people: int
    """Tracks that go on when a person does something."""
    waiting_since: datetime | None
    """Since when the one of them that waits longest has done so without a break."""
    blocked: int
    """Tracks that were told of as blocked, whether a person or another story is waited for."""
    deliveries: Mapping[tuple[str, str], int]
    backlog: int
    """Stories that wait for their turn."""
    orders_pending: int
    newest_event: int
    database_bytes: int
    wal_bytes: int


_SUPERVISED: Final = (
    "FROM tracks JOIN projects ON root = project WHERE removed_at IS NULL AND json_valid(body)"
)
_OPEN: Final = "step IS NOT 'done' AND NOT json_extract(body, '$.ledger.closed')"
_STUCK: Final = """(json_extract(body, '$.ledger.capped') IS NOT NULL OR
    json_extract(body, '$.ledger.paused_by') IS NOT NULL
    AND json_extract(body, '$.ledger.remedy') IS NOT NULL)"""
_FOR_PEOPLE: Final = f"""{_OPEN} AND (status IN ('needs_human', 'timeout')
    OR json_extract(body, '$.ledger.held_edit') IS NOT NULL OR status = 'pending' AND {_STUCK})"""
"""As `engine.waiting` has it, but for what goes on by itself when another story is done."""
_BLOCKED: Final = f"""{_OPEN} AND status = 'pending' AND ({_STUCK}
    OR json_extract(body, '$.ledger.told') IS NOT NULL AND json_array_length(body, '$.ledger.limited') = 0)"""
"""What is set aside for a usage limit is counted by its account."""

_ARRIVED: Final = """(SELECT at FROM events AS e WHERE e.project = tracks.project AND e.track = tracks.track
    AND (step_before, status_before) IS NOT (step, status) ORDER BY e.seq DESC LIMIT 1)"""
"""When a track came to where it stands. Later events changed something else: a note, a notice given up."""
_TOLD: Final = """coalesce(
    (SELECT since FROM matters AS m WHERE m.project = tracks.project AND m.track = tracks.track),
    (SELECT at FROM events AS e WHERE e.seq = tracks.seq))"""
"""When people were told of what waits; that is recorded a moment after its event."""
_WAITS_SINCE: Final = f"iif(status IN ('needs_human', 'timeout'), {_ARRIVED}, max({_ARRIVED}, {_TOLD}))"
"""A track that is pending, or whose edit is held, may have stood there before it waited for anybody."""


class Gates(NamedTuple):
    """How many tracks wait for a person, and the journal's latest event and projects at the count."""

    tracks: int
    event: int
    projects: int


NO_GATES: Final = Gates(0, 0, 0)


def counts(db: sqlite3.Connection, path: Path) -> Counts:
    """Return the sums of the journal at `path`, which `db` has open."""
    tracks = db.execute(
        f"SELECT coalesce(step, ''), coalesce(status, ''), count(*) {_SUPERVISED} GROUP BY 1, 2"
    )
    standing = {(step, status): count for step, status, count in tracks}
    deliveries = db.execute(
        """SELECT sink, coalesce(outcome, iif(held IS NULL, 'waiting', 'held')), count(*)
        FROM deliveries GROUP BY 1, 2"""
    )
    return Counts(
        tracks=standing,
        waiting_for_people=_number(db, f"SELECT count(*) {_SUPERVISED} AND {_FOR_PEOPLE}"),
        waiting_since=_longest(db),
        blocked=_number(db, f"SELECT count(*) {_SUPERVISED} AND {_BLOCKED}"),
        deliveries={(sink, outcome): count for sink, outcome, count in deliveries},
        backlog=_number(
            db,
            f"SELECT coalesce(sum(json_array_length(body, '$.ledger.backlog')), 0) {_SUPERVISED}",
        ),
        orders_pending=_number(db, "SELECT count(*) FROM effects WHERE outcome IS NULL"),
        newest_event=_newest(db),
        database_bytes=_size(path),
        wal_bytes=_size(path.with_name(f"{path.name}-wal")),
    )


def gates(db: sqlite3.Connection, known: Gates = NO_GATES) -> Gates:
    """Return how many supervised tracks wait for a person: what is `known`, if nothing has happened."""
    event, projects = _newest(db), _number(db, "SELECT count(*) FROM projects WHERE removed_at IS NULL")
    if (event, projects) == (known.event, known.projects):
        return known
    count = _number(db, f"SELECT count(*) {_SUPERVISED} AND {_FOR_PEOPLE}")
    return Gates(count, event, projects)


def _longest(db: sqlite3.Connection) -> datetime | None:
    (at,) = db.execute(f"SELECT min({_WAITS_SINCE}) {_SUPERVISED} AND {_FOR_PEOPLE}").fetchone()
    return None if at is None else datetime.fromisoformat(at)


def _newest(db: sqlite3.Connection) -> int:
    return _number(db, "SELECT coalesce(max(seq), 0) FROM events")


def _number(db: sqlite3.Connection, query: str) -> int:
    (number,) = db.execute(query).fetchone()
    return int(number)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # SQLite makes and removes the second file
        return 0
