"""What is read from the journal's tables: rows into values.

Each function is one question asked through `connections.Readers`. A row that cannot be read is a damaged
journal: it is named and reported, never skipped, because a track that silently went missing would
be started afresh.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

from msgspec import Struct

from handoffd.engine.decision import Effect
from handoffd.engine.flow.events import Order
from handoffd.engine.flow.flow import FLOWS
from handoffd.engine.track import Ledger, Track, TrackKey
from handoffd.errors import StoreError
from handoffd.files.atomic import digest_of
from handoffd.files.errors import CORRUPT_JOURNAL
from handoffd.journal.codec import (
    decode_grounds,
    decode_order,
    decode_track,
    moment,
    readable,
)
from handoffd.journal.records import (
    WHOLE,
    Part,
    PendingEffect,
    Standing,
    StoredEvent,
    StoredTrack,
)
from handoffd.protocol.state import State, Status

_T = TypeVar("_T")

MOST_ROWS = 10_000
"""Answers are held in memory whole: more than this is read in several questions."""


def newest(db: sqlite3.Connection) -> int:
    """Return the highest sequence number; 0 while nothing has happened."""
    return _number(db, "SELECT coalesce(max(seq), 0) FROM events")


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

    The track of a story that has ended is left out.

    One that does not fit its last event is yielded as `unsound`, and not left out: a track that went missing
    without a word would be started afresh. So is one with an order that cannot be read.
    """
    garbled = garbled_orders(db, roots)
    for key, body, seq, digest, at, amiss, vouched in held_against(db, roots, ended=False):
        unsound = amiss or garbled.get(key)
        yield StoredTrack(
            key=key,
            track=decoded(decode_track, body, *key) if unsound is None else _shown(db, key, body, vouched),
            seq=seq,
            digest=digest,
            at=datetime.fromisoformat(at) if at else None,
            unsound=unsound,
        )


def held_against(
    db: sqlite3.Connection, roots: Sequence[str] | None = None, *, ended: bool = True
) -> Iterator[Row]:
    """Yield the rows of the tracks, each held against its last event, and the rows that are gone.

    Without `ended`, only tracks that have a STATE, and the first of each project: many may have ended.
    """
    lives = "" if ended else "AND" if roots is not None else "WHERE"
    lives += "" if ended else " (t.track = 'main' OR t.step IS NOT NULL)"
    # A journal that was put back is older than the files: they are not overtaken by its last decision.
    rows = db.execute(
        f"""SELECT t.project, t.track, t.body, t.seq, t.digest, iif(e.kind = 'restored', NULL, e.at),
        e.project IS t.project AND e.track IS t.track,
        EXISTS (SELECT 1 FROM events WHERE project = t.project AND seq > t.seq AND track = t.track),
        {_left(db)}, t.digest IS NOT coalesce(e.digest, t.digest),
        (t.step, t.status) IS NOT (e.step_after, e.status_after)
        FROM tracks AS t LEFT JOIN events AS e ON e.seq = t.seq {among("t.project", roots)} {lives}
        ORDER BY t.project, t.track""",  # noqa: S608  (fixed texts, and a question mark for each root)
        roots or (),
    )
    for project, track, body, seq, digest, at, *last in rows:
        mine, later, left = last[:3]
        unsound = _unsound(seq, body, *last)
        vouched = bool(mine and not later) and (unsound is None or left == digest_of(body))
        yield Row(TrackKey(project, track), body, seq, digest, at, unsound, vouched)
    gone = db.execute(
        f"""SELECT root, (SELECT max(seq) FROM events WHERE project = root
        AND track NOT GLOB '{FLOWS}*') AS seq FROM projects
        {among("root", roots)} {"WHERE" if roots is None else "AND"} removed_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM tracks WHERE project = root) AND seq IS NOT NULL ORDER BY root""",  # noqa: S608  (as above)
        roots or (),
    )
    for root, seq in gone:
        yield Row(TrackKey(root), "", seq, None, None, f"it is gone, and event {seq} is there", vouched=False)


def _left(db: sqlite3.Connection) -> str:
    """Return what gives the digest of the body that event `e` has left; NULL in journals of before that."""
    return "coalesce(e.track_digest, '')" if has_column(db, "events", "track_digest") else "NULL"


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
    """Return the tracks and flows with an order that is not done and cannot be read, and which it is."""
    orders = db.execute(
        f"""SELECT project, track, id, seq, effect FROM effects {among("project", roots)}
        {"WHERE" if roots is None else "AND"} outcome IS NULL ORDER BY id DESC""",  # noqa: S608  (fixed texts)
        roots or (),
    )
    return {
        TrackKey(project, track): f"order {number}, of event {seq}, cannot be read"
        for project, track, number, seq, effect in orders
        if _order(effect) is None
    }


def _order(effect: str) -> Effect | Order | None:
    try:
        return decode_order(effect)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def pending_effects(db: sqlite3.Connection, root: str | None = None) -> tuple[PendingEffect, ...]:
    """Return the effects that are not done, oldest first; of one root or of all.

    One that cannot be read is left out: its track or flow is unsound, and nothing is carried out there.
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
            at=datetime.fromisoformat(at),
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


def projected_by_any(db: sqlite3.Connection, root: str, digest: str) -> bool:
    """Return whether a text with this digest was ever our projection of any track of a project."""
    row = db.execute("SELECT 1 FROM projections WHERE project = ? AND digest = ?", (root, digest)).fetchone()
    return row is not None


def events(db: sqlite3.Connection, after: int, limit: int, part: Part = WHOLE) -> tuple[StoredEvent, ...]:
    """Return at most `limit` events of a part with a number above `after`, in order."""
    return _events(db, f"AND seq > {after:d}", "ASC", limit, part)


def latest(db: sqlite3.Connection, limit: int, part: Part = WHOLE) -> tuple[StoredEvent, ...]:
    """Return the last `limit` events of a part, in order."""
    return _events(db, "", "DESC", limit, part)


def _events(
    db: sqlite3.Connection, above: str, order: Literal["ASC", "DESC"], limit: int, part: Part
) -> tuple[StoredEvent, ...]:
    rows = db.execute(
        f"""SELECT seq, at, project, track, kind, event, result, why,
        grounds, step_before, status_before, step_after, status_after FROM events
        WHERE {of_events(db, part)} {above} ORDER BY seq {order} LIMIT :limit""",  # noqa: S608  (fixed texts)
        {**named(part), "limit": min(limit, MOST_ROWS)},
    ).fetchall()
    rows.sort()
    orders = _orders(db, [row[0] for row in rows])
    return tuple(_event(row, orders.get(row[0], [])) for row in rows)


def latest_of(
    db: sqlite3.Connection, key: TrackKey, kinds: Sequence[str], limit: int
) -> tuple[dict[str, Any], ...]:
    """Return what the latest events of these kinds say of a track, newest first."""
    listed = ", ".join("?" * len(kinds))
    rows = db.execute(
        f"""SELECT event FROM events WHERE project = ? AND track = ? AND kind IN ({listed})
        ORDER BY seq DESC LIMIT ?""",  # noqa: S608  (a question mark for each kind)
        (*key, *kinds, min(limit, MOST_ROWS)),
    )
    return tuple(decoded(readable, event, *key) for (event,) in rows)


def of_events(db: sqlite3.Connection, part: Part) -> str:
    """Return the condition for the events of a part, whose values `named` gives."""
    told = {
        "project": "project = :project",
        "since": "at >= :since",
        "until": "at < :until",
        "step": ":step IN (step_before, step_after)",
        "kind": "kind = :kind",
        "story": _about_story(db),
        "run": "iif(json_valid(event), event ->> '$.dispatch', NULL) = :run",
        "flow": "(track = :flow OR substr(track, 1, length(:flow) + 1) = :flow || '.')",
    }
    return " AND ".join(["1", *(told[name] for name, value in named(part).items() if value is not None)])


def named(part: Part) -> dict[str, Any]:
    """Return the values of a part for a question, by name."""
    bounds = {"since": part.since, "until": part.until}
    times = {name: None if at is None else moment(at) for name, at in bounds.items()}
    told = {name: getattr(part, name) for name in ("project", "story", "step", "kind", "run")}
    return {**told, **times, "flow": None if part.flow is None else f"{FLOWS}{part.flow}"}


STORY_GUESSED: Final = """coalesce(iif(json_valid(event), nullif(json_extract(event, '$.story'), ''), NULL),
    (SELECT d.story FROM dispatches AS d WHERE d.project = events.project AND d.track = events.track
    AND d.seq <= events.seq ORDER BY d.seq DESC LIMIT 1))"""
"""The story of an event of a release that did not note it."""


def _about_story(db: sqlite3.Connection) -> str:
    if not has_column(db, "events", "story"):
        return f"{STORY_GUESSED} = :story"
    return f"(story = :story OR story IS NULL AND {STORY_GUESSED} = :story)"


def has_column(db: sqlite3.Connection, table: str, column: str) -> bool:
    """Return whether a table has a column: an older journal may be read before a daemon migrates it."""
    return any(row[1] == column for row in db.execute(f"PRAGMA table_info({table})"))


def _orders(db: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, list[str]]:
    """Return the orders of these events, each in its written form."""
    found: dict[int, list[str]] = defaultdict(list)
    query = """SELECT seq, effect FROM effects WHERE seq IN (SELECT value FROM json_each(?))
        ORDER BY id"""
    for seq, effect in db.execute(query, (str(list(numbers)),)):
        found[seq].append(effect)
    return found


def among(column: str, roots: Sequence[str] | None) -> str:
    """Return a condition, a question mark for each of these roots; nothing for all."""
    return "" if roots is None else f"WHERE {column} IN ({', '.join('?' * len(roots))})"


def _event(row: tuple[Any, ...], orders: list[str]) -> StoredEvent:
    seq, at, project, track, kind, event, result, why, grounds, *standings = row
    return StoredEvent(
        seq=seq,
        at=datetime.fromisoformat(at),
        key=TrackKey(project, track),
        kind=kind,
        event=decoded(readable, event, project, track),
        result=decoded(readable, result, project, track),
        why=why,
        before=stored_standing(*standings[:2]),
        after=stored_standing(*standings[2:]),
        grounds=decoded(decode_grounds, grounds or "{}", project, track),
        orders=tuple(decoded(readable, order, project, track) for order in orders),
    )


def stored_standing(step: str | None, status: str | None) -> Standing | None:
    """Return the standing that two columns hold; None where there was no STATE yet."""
    return None if step is None or status is None else (step, status)


def decoded(decode: Callable[[str], _T], text: str, project: str, track: str) -> _T:
    """Return what a text of the journal holds; StoreError (CORRUPT_JOURNAL) when it cannot be read."""
    try:
        return decode(text)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        message = f"the journal's record of {project} ({track}) cannot be read: {error}"
        raise StoreError(message, code=CORRUPT_JOURNAL, hint="restore a copy of journal.db") from error


# --- how much there is of everything: a few sums for gauges --------------------------------------------
class Counts(Struct, frozen=True, kw_only=True):
    """Sums over what is supervised now, sizes in bytes.

    `tracks` is by step and status; `deliveries` by sink and outcome; a delivery without one is `held`
    while it is held back, else `waiting`.
    """

    tracks: Mapping[tuple[str, str], int]
    waiting_for_people: int
    """Tracks and flows that go on when a person does something."""
    waiting_since: datetime | None
    """Since when the one of them that waits longest has done so without a break."""
    blocked: int
    """Tracks that a notice reported as blocked, whether a person or another story is waited for."""
    deliveries: Mapping[tuple[str, str], int]
    backlog: int
    """Stories that wait for their turn."""
    orders_pending: int
    newest_event: int
    database_bytes: int
    wal_bytes: int


_SUPERVISED: Final = (
    "FROM tracks JOIN projects ON root = project WHERE removed_at IS NULL AND json_valid(body)"
    f" AND track NOT GLOB '{FLOWS}*'"
)
"""What works for a flow asks no person itself, and is in none of these sums."""
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
"""When a track came to its step and status. Later events changed something else, such as a note."""
_TOLD: Final = """coalesce(
    (SELECT since FROM matters AS m WHERE m.project = tracks.project AND m.track = tracks.track),
    (SELECT at FROM events AS e WHERE e.seq = tracks.seq))"""
"""When the notice of a matter was made; it is recorded a moment after its event."""
_WAITS_SINCE: Final = f"iif(status IN ('needs_human', 'timeout'), {_ARRIVED}, max({_ARRIVED}, {_TOLD}))"
"""A track that is pending, or whose edit is held, may have been there before it waited for a person."""


_FLOWS_FOR_PEOPLE: Final = """FROM flows AS f JOIN projects ON root = f.project
    WHERE removed_at IS NULL AND f.ended IS NULL AND f.awaits = 'person'"""
_OF_THAT_FLOW: Final = f"""FROM events AS e WHERE e.project = f.project AND e.track = '{FLOWS}' || f.flow
    AND e.plan IS NOT NULL"""
_FLOW_WAITS_SINCE: Final = f"""(SELECT min(at) {_OF_THAT_FLOW} AND e.seq > coalesce(
    (SELECT max(e.seq) {_OF_THAT_FLOW} AND e.awaits <> 'person'), 0))"""


class Gates(NamedTuple):
    """How many tracks and flows wait for a person; the journal's latest event and projects at the count."""

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
        waiting_for_people=_waiting(db),
        waiting_since=_longest(db),
        blocked=_number(db, f"SELECT count(*) {_SUPERVISED} AND {_BLOCKED}"),
        deliveries={(sink, outcome): count for sink, outcome, count in deliveries},
        backlog=_number(
            db,
            f"SELECT coalesce(sum(json_array_length(body, '$.ledger.backlog')), 0) {_SUPERVISED}",
        ),
        orders_pending=_number(db, "SELECT count(*) FROM effects WHERE outcome IS NULL"),
        newest_event=newest(db),
        database_bytes=_size(path),
        wal_bytes=_size(path.with_name(f"{path.name}-wal")),
    )


def gates(db: sqlite3.Connection, known: Gates = NO_GATES) -> Gates:
    """Return how many supervised tracks and flows wait for a person; what is `known`, if still so."""
    event, projects = newest(db), _number(db, "SELECT count(*) FROM projects WHERE removed_at IS NULL")
    if (event, projects) == (known.event, known.projects):
        return known
    return Gates(_waiting(db), event, projects)


def _waiting(db: sqlite3.Connection) -> int:
    tracks = _number(db, f"SELECT count(*) {_SUPERVISED} AND {_FOR_PEOPLE}")
    return tracks + (_number(db, f"SELECT count(*) {_FLOWS_FOR_PEOPLE}") if _has_flows(db) else 0)


def _has_flows(db: sqlite3.Connection) -> bool:
    return has_column(db, "flows", "awaits")


def _longest(db: sqlite3.Connection) -> datetime | None:
    found = [db.execute(f"SELECT min({_WAITS_SINCE}) {_SUPERVISED} AND {_FOR_PEOPLE}").fetchone()[0]]
    if _has_flows(db):
        found.append(db.execute(f"SELECT min({_FLOW_WAITS_SINCE}) {_FLOWS_FOR_PEOPLE}").fetchone()[0])
    return min((datetime.fromisoformat(at) for at in found if at is not None), default=None)


def _number(db: sqlite3.Connection, query: str) -> int:
    (number,) = db.execute(query).fetchone()
    return int(number)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # SQLite makes and removes the second file
        return 0
