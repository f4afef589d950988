"""What is read from the journal's tables: rows into values.

Each function is one question asked through `readers.py`. A row that cannot be read is a damaged
journal: it is named and reported, never skipped, because a track that silently went missing would
be started afresh.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from handoffd.engine.effects import Effect
from handoffd.engine.track import Ledger, Track, TrackKey
from handoffd.errors import StoreError
from handoffd.protocol.state import State, Status
from handoffd.store.codec import (
    decode_effect,
    decode_exit,
    decode_grounds,
    decode_tests,
    decode_track,
    readable,
)
from handoffd.store.digest import digest_of
from handoffd.store.faults import CORRUPT_JOURNAL
from handoffd.store.records import (
    Origins,
    PendingEffect,
    Standing,
    StoredEvent,
    StoredProject,
    StoredRun,
    StoredTrack,
)

_T = TypeVar("_T")

_MOST_ROWS = 10_000
"""Answers are held in memory whole: more than this is read in several questions."""


def newest(db: sqlite3.Connection) -> int:
    """Return the highest sequence number; 0 while nothing has happened."""
    (seq,) = db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
    return int(seq)


class Row(NamedTuple):
    """A row of the tracks. `unsound`: in what it is not as its last event has left it.

    `vouched`: the body is the one that its last event has left, whatever the rest of the row says.
    """

    key: TrackKey
    body: str
    seq: int
    digest: str | None
    at: str | None
    unsound: str | None
    vouched: bool


def tracks(db: sqlite3.Connection, roots: Sequence[str] | None = None) -> Iterator[StoredTrack]:
    """Yield every track as committed last, by project and name; of these roots or of all.

    One that does not fit its last event is yielded as `unsound`, and not left out: a track that went missing
    without a word would be started afresh. So is one with an order that cannot be read.
    """
    garbled = garbled_orders(db, roots)
    for key, body, seq, digest, at, amiss, vouched in held_against(db, roots):
        unsound = amiss or garbled.get(key)
        yield StoredTrack(
            key=key,
            track=_read(decode_track, body, *key) if unsound is None else _shown(db, key, body, vouched),
            seq=seq,
            digest=digest,
            at=_moment(at) if at else None,
            unsound=unsound,
        )


def held_against(db: sqlite3.Connection, roots: Sequence[str] | None = None) -> Iterator[Row]:
    """Yield the rows of the tracks, each held against its last event, and those that are gone."""
    # A journal that was put back is older than the files: they are not overtaken by its last decision.
    rows = db.execute(
        f"""SELECT t.project, t.track, t.body, t.seq, t.digest, iif(e.kind = 'restored', NULL, e.at),
        e.project IS t.project AND e.track IS t.track,
        EXISTS (SELECT 1 FROM events WHERE project = t.project AND seq > t.seq AND track = t.track),
        {_left(db)}, t.digest IS NOT coalesce(e.digest, t.digest),
        (t.step, t.status) IS NOT (e.step_after, e.status_after)
        FROM tracks AS t LEFT JOIN events AS e ON e.seq = t.seq {_among("t.project", roots)}
        ORDER BY t.project, t.track""",  # noqa: S608  (fixed texts, and a question mark for each root)
        roots or (),
    )
    for project, track, body, seq, digest, at, *last in rows:
        mine, later, left = last[:3]
        unsound = _unsound(seq, body, *last)
        vouched = bool(mine and not later) and (unsound is None or left == digest_of(body))
        yield Row(TrackKey(project, track), body, seq, digest, at, unsound, vouched)
    gone = db.execute(
        f"""SELECT root, (SELECT max(seq) FROM events WHERE project = root) AS seq FROM projects
        {_among("root", roots)} {"WHERE" if roots is None else "AND"} removed_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM tracks WHERE project = root) AND seq IS NOT NULL ORDER BY root""",  # noqa: S608  (as above)
        roots or (),
    )
    for root, seq in gone:
        yield Row(TrackKey(root), "", seq, None, None, f"it is gone, and event {seq} is there", vouched=False)


def _left(db: sqlite3.Connection) -> str:
    """Return what gives the digest of the body that event `e` has left; NULL in journals of before that."""
    columns = {row[1] for row in db.execute("PRAGMA table_info(events)")}
    return "coalesce(e.track_digest, '')" if "track_digest" in columns else "NULL"


def _unsound(
    seq: int, body: str, mine: int, later: int, left: str | None, other_text: int, moved: int
) -> str | None:
    """Return in what a track is not as its last event has left it."""
    if not mine:
        return f"event {seq}, which it names as its last one, is not one of its events"
    if later:
        return f"it was put back to event {seq}, and there are later ones"
    if left is not None and left != digest_of(body):
        return f"its body is not the one that event {seq}, its last one, has left"
    if other_text:
        return f"it expects another STATE.json than event {seq}, its last one, has made"
    return f"event {seq}, its last one, has left it at another step or status" if moved else None


def _shown(db: sqlite3.Connection, key: TrackKey, body: str, vouched: bool) -> Track:
    """Return what may be shown of a track that does not fit its events: what these can vouch for.

    That is the body, if its last event has left it; else no more than the step and the status of that event.
    Nothing follows from the rest: an attempt in flight would take a slot, a limit would hold up others.
    """
    try:
        track = decode_track(body)
    except (ValueError, KeyError, TypeError, RecursionError):
        track = Track()
    state = track.state if vouched else _left_at(db, key)
    return Track(state=state, ledger=Ledger(automatic=track.ledger.automatic))


def _left_at(db: sqlite3.Connection, key: TrackKey) -> State | None:
    """Return the step and the status at which a track's last event has left it."""
    row = db.execute(
        """SELECT step_after, status_after FROM events WHERE project = ? AND track = ?
        ORDER BY seq DESC LIMIT 1""",
        key,
    ).fetchone()
    if row is None or row[0] is None or row[1] not in set(Status):
        return None
    return State(project=Path(key.project).name or key.project, step=row[0], status=Status(row[1]))


def garbled_orders(db: sqlite3.Connection, roots: Sequence[str] | None = None) -> dict[TrackKey, str]:
    """Return the tracks with an order that is not done and cannot be read, and which it is."""
    orders = db.execute(
        f"""SELECT project, track, id, seq, effect FROM effects {_among("project", roots)}
        {"WHERE" if roots is None else "AND"} outcome IS NULL ORDER BY id DESC""",  # noqa: S608  (fixed texts)
        roots or (),
    )
    return {
        TrackKey(project, track): f"order {number}, of event {seq}, cannot be read"
        for project, track, number, seq, effect in orders
        if _order(effect) is None
    }


def _order(effect: str) -> Effect | None:
    try:
        return decode_effect(effect)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def pending_effects(db: sqlite3.Connection, root: str | None = None) -> tuple[PendingEffect, ...]:
    """Return the effects that are not done, oldest first; of one root or of all.

    One that cannot be read is left out: its track is unsound, and nothing is carried out there.
    """
    only = "" if root is None else "AND effects.project = :root"
    rows = db.execute(
        f"""SELECT id, effects.project, effects.track, seq, at, effect FROM effects JOIN events USING (seq)
        WHERE outcome IS NULL {only} ORDER BY id""",  # noqa: S608  (two fixed texts)
        {"root": root},
    )
    return tuple(
        PendingEffect(
            id=number,
            key=TrackKey(project, track),
            seq=seq,
            at=_moment(at),
            effect=order,
        )
        for number, project, track, seq, at, effect in rows
        if (order := _order(effect)) is not None
    )


def projected(db: sqlite3.Connection, key: TrackKey, digest: str) -> bool:
    """Return whether a text with this digest was ever our projection of the track."""
    row = db.execute(
        "SELECT 1 FROM projections WHERE project = ? AND track = ? AND digest = ?", (*key, digest)
    ).fetchone()
    return row is not None


def projects(db: sqlite3.Connection) -> tuple[StoredProject, ...]:
    """Return the projects that are looked after, by root."""
    rows = db.execute("SELECT root, name, added_at FROM projects WHERE removed_at IS NULL ORDER BY root")
    return tuple(StoredProject(root=root, name=name, added_at=_moment(at)) for root, name, at in rows)


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


def events(db: sqlite3.Connection, after: int, project: str | None, limit: int) -> tuple[StoredEvent, ...]:
    """Return at most `limit` events with a number above `after`, in order."""
    rows = db.execute(
        f"""SELECT seq, at, project, track, kind, event, result, why,
        grounds, step_before, status_before, step_after, status_after FROM events
        WHERE seq > :after {_only(project)} ORDER BY seq LIMIT :limit""",  # noqa: S608  (two fixed texts)
        {"after": after, "project": project, "limit": min(limit, _MOST_ROWS)},
    ).fetchall()
    orders = _orders(db, rows[0][0], rows[-1][0]) if rows else {}
    return tuple(_event(row, orders.get(row[0], [])) for row in rows)


def _orders(db: sqlite3.Connection, first: int, last: int) -> dict[int, list[str]]:
    """Return the orders of these events, each in its written form."""
    found: dict[int, list[str]] = defaultdict(list)
    query = "SELECT seq, effect FROM effects WHERE seq BETWEEN ? AND ? ORDER BY id"
    for seq, effect in db.execute(query, (first, last)):
        found[seq].append(effect)
    return found


def dispatches(db: sqlite3.Connection, project: str | None, limit: int) -> tuple[StoredRun, ...]:
    """Return at most `limit` dispatches, newest first."""
    rows = db.execute(
        f"""SELECT id, project, track, story, step, attempt, executor, decided_at,
        started_at, ended_at, exit, tests, result, why FROM dispatches
        WHERE seq > 0 {_only(project)} ORDER BY seq DESC LIMIT :limit""",  # noqa: S608  (two fixed texts)
        {"project": project, "limit": min(limit, _MOST_ROWS)},
    )
    return tuple(_run(row) for row in rows)


def baseline(db: sqlite3.Connection, key: TrackKey, story: str) -> bytes | None:
    """Return the results kept for a story, or None."""
    row = db.execute(
        "SELECT body FROM baselines WHERE project = ? AND track = ? AND story = ?", (*key, story)
    ).fetchone()
    return None if row is None else bytes(row[0])


def trusted(db: sqlite3.Connection, roots: Sequence[str] | None) -> dict[str, dict[str, str]]:
    """Return the texts that a person has trusted last, by root and file; of these roots or of all."""
    query = f"SELECT root, file, text FROM trusted {_among('root', roots)}"  # noqa: S608  (see `tracks`)
    rows = db.execute(query, roots or ())
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for owner, file, text in rows:
        found[owner][file] = text
    return found


def _among(column: str, roots: Sequence[str] | None) -> str:
    return "" if roots is None else f"WHERE {column} IN ({', '.join('?' * len(roots))})"


def _only(project: str | None) -> str:
    return "" if project is None else "AND project = :project"


def _event(row: tuple[Any, ...], orders: list[str]) -> StoredEvent:
    seq, at, project, track, kind, event, result, why, grounds, *standings = row
    return StoredEvent(
        seq=seq,
        at=_moment(at),
        key=TrackKey(project, track),
        kind=kind,
        event=_read(readable, event, project, track),
        result=_read(readable, result, project, track),
        why=why,
        before=stored_standing(*standings[:2]),
        after=stored_standing(*standings[2:]),
        grounds=_read(decode_grounds, grounds or "{}", project, track),
        orders=tuple(_read(readable, order, project, track) for order in orders),
    )


def _run(row: tuple[Any, ...]) -> StoredRun:
    number, project, track, story, step, attempt, executor, decided_at, *rest = row
    started_at, ended_at, exit_, tests, result, why = rest
    return StoredRun(
        id=number,
        key=TrackKey(project, track),
        story=story,
        step=step,
        attempt=attempt,
        executor=executor,
        decided_at=_moment(decided_at),
        started_at=None if started_at is None else _moment(started_at),
        ended_at=None if ended_at is None else _moment(ended_at),
        exit=None if exit_ is None else _read(decode_exit, exit_, project, track),
        tests=None if tests is None else _read(decode_tests, tests, project, track),
        result=result,
        why=why,
    )


def stored_standing(step: str | None, status: str | None) -> Standing | None:
    """Return the standing that two columns hold; None where there was no STATE yet."""
    return None if step is None or status is None else (step, status)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _read(decode: Callable[[str], _T], text: str, project: str, track: str) -> _T:
    try:
        return decode(text)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        message = f"the journal's record of {project} ({track}) cannot be read: {error}"
        raise StoreError(message, code=CORRUPT_JOURNAL, hint="restore a copy of journal.db") from error
