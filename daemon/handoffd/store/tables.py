"""What is written to the journal's tables, and in which columns.

Each function is the work of one request inside a transaction of `writer.py`. Values become text
before they get there (`prepare`), so that a value which cannot be written, or not be read again,
fails its own caller and never a transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from handoffd.engine.changing import changed
from handoffd.engine.requests import Started
from handoffd.engine.track import Dispatch, TrackKey
from handoffd.engine.usage import Usage
from handoffd.errors import NotFound, StoreError
from handoffd.store import runs
from handoffd.store.codec import decode_track, encode, encode_grounds
from handoffd.store.digest import digest_of
from handoffd.store.records import Committed, Newcomer, PendingEffect, Record
from handoffd.store.rulebooks import WrittenRules, keep_rules
from handoffd.store.schedules import Fire, write_fire

_PROJECTIONS_KEPT = 200
"""Digests remembered per track: older texts of ours count as edited outside."""

_MOST_TOKENS = 10**12
"""No run uses so many; an agent that says so shall not make a sum that SQLite cannot hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A record with everything already in its written form."""

    record: Record
    event: str
    result: str
    track: str
    effects: tuple[str, ...]
    digest: str | None
    standing: tuple[str | None, str | None]
    begun: Dispatch | None
    learned: runs.Learned | None
    verdict: runs.Verdict
    rules: WrittenRules | None
    grounds: str


def prepare(record: Record, rules: WrittenRules | None = None) -> Prepared:
    """Return `record` ready to be written; StoreError when it could not be written or read back.

    `rules` is what `written` makes of the record's rules.
    """
    checked_path(record.key.project)
    try:
        return _prepared(record, rules)
    except (ValueError, RecursionError) as error:
        place = f"{record.key.project} ({record.key.track})"
        message = f"cannot record {record.event.kind} of {place}: it would not be readable again: {error}"
        raise StoreError(message, code="UNWRITABLE") from error


def _prepared(record: Record, rules: WrittenRules | None) -> Prepared:
    record = changed(record, why=record.why.encode("utf-8", "replace").decode())
    state, track = record.track.state, encode(record.track)
    decode_track(track)
    return Prepared(
        record=record,
        event=encode(record.event),
        result=encode(record.result),
        track=track,
        effects=tuple(encode(effect) for effect in record.effects),
        digest=None if record.state_text is None else digest_of(record.state_text),
        standing=(None, None) if state is None else (state.step, str(state.status)),
        begun=runs.begun(record),
        learned=runs.learned(record),
        verdict=runs.verdict(record),
        rules=rules,
        grounds=encode_grounds(record.grounds),
    )


def write_record(db: sqlite3.Connection, prepared: Prepared) -> Committed:
    """Append the event and bring every derived table up to date with it."""
    key = prepared.record.key
    before = db.execute(
        "SELECT step, status, digest FROM tracks WHERE project = ? AND track = ?", key
    ).fetchone()
    step, status, digest = before or (None, None, None)
    seq = _append(db, prepared, (step, status))
    db.execute(
        "INSERT OR REPLACE INTO tracks VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*key, seq, prepared.track, prepared.digest or digest, *prepared.standing),
    )
    if prepared.digest is not None:
        _remember_projection(db, key, prepared.digest, seq)
    write_dispatches(db, key, seq, prepared.begun, prepared.learned, prepared.verdict)
    if (fire := _fire_of(prepared.record)) is not None:
        write_fire(db, fire, seq)
    if prepared.record.request is not None:
        db.execute("UPDATE requests SET seq = coalesce(seq, ?) WHERE key = ?", (seq, prepared.record.request))
    return Committed(seq=seq, effects=_add_effects(db, seq, prepared))


def _fire_of(record: Record) -> Fire | None:
    """Return what became of the schedule that asked for a start, if one did."""
    event, state = record.event, record.track.state
    if not isinstance(event, Started) or event.schedule is None or event.due is None or state is None:
        return None
    queued = any(entry.story == event.story for entry in record.track.ledger.backlog)
    return Fire(  # what starts may be the one that waited since last time
        project=record.key.project, schedule=event.schedule, due=event.due, at=record.at,
        story=event.story if queued else state.story,
        outcome="queued" if queued else "started", why=record.why if queued else None,
    )  # fmt: skip


def write_dispatches(
    db: sqlite3.Connection,
    key: TrackKey,
    seq: int,
    begun: Dispatch | None,
    learned: runs.Learned | None,
    verdict: runs.Verdict,
) -> None:
    """Write what event `seq` of a track says about dispatches."""
    if begun is not None:
        write_begun(db, key, seq, begun)
    if learned is not None:
        _tell_dispatch(db, learned)
    _close_dispatches(db, key, verdict)


def write_begun(db: sqlite3.Connection, key: TrackKey, seq: int, dispatch: Dispatch) -> None:
    """Write the row of a dispatch that event `seq` begins; one that is there stays as it is."""
    db.execute(
        """INSERT OR IGNORE INTO dispatches
        (id, seq, project, track, story, step, attempt, executor, decided_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            *(dispatch.id, seq, *key, dispatch.story, dispatch.step, dispatch.attempt, dispatch.executor),
            moment(dispatch.decided_at),
        ),
    )


def finish_effect(db: sqlite3.Connection, effect_id: int, outcome: str) -> None:
    """Mark an effect done; the first outcome stays. StoreError when there is no such effect."""
    db.execute("UPDATE effects SET outcome = ? WHERE id = ? AND outcome IS NULL", (outcome, effect_id))
    if db.execute("SELECT 1 FROM effects WHERE id = ?", (effect_id,)).fetchone() is None:
        raise StoreError(f"effect {effect_id} is not in the journal", code="UNKNOWN_EFFECT")


def put_projects(
    db: sqlite3.Connection, newcomers: Sequence[Newcomer], at: datetime, untrusted: Sequence[str] = ()
) -> None:
    """Add projects, or rename those that are there; what was removed earlier counts from `at` again.

    `untrusted` files of theirs that nobody has trusted yet count as trusted while they are empty.
    """
    db.executemany(
        """INSERT INTO projects (root, name, added_at, brought_by) VALUES (?, ?, ?, ?)
        ON CONFLICT (root) DO UPDATE SET name = excluded.name, removed_at = NULL,
        brought_by = excluded.brought_by,
        added_at = iif(removed_at IS NULL, added_at, excluded.added_at)""",
        [(one.root, one.name, moment(at), one.brought_by) for one in newcomers],
    )
    db.executemany(
        "INSERT OR IGNORE INTO trusted VALUES (?, ?, '', ?)",
        [(one.root, file, moment(at)) for one in newcomers for file in untrusted],
    )


def let_go(db: sqlite3.Connection, roots: Sequence[str], at: datetime) -> None:
    """Mark projects removed that the settings name no more: they may bring them back."""
    db.executemany(
        """UPDATE projects SET removed_at = ?
        WHERE root = ? AND removed_at IS NULL AND brought_by IS NOT NULL""",
        [(moment(at), root) for root in roots],
    )


def retire_project(db: sqlite3.Connection, root: str, at: datetime) -> None:
    """Mark a project removed by a person; its history stays. NotFound when it is not looked after."""
    changed = db.execute(
        "UPDATE projects SET removed_at = ?, brought_by = NULL WHERE root = ? AND removed_at IS NULL",
        (moment(at), root),
    ).rowcount
    if changed == 0:
        raise NotFound(f"no project at {root}", hint="handoffd projects")


def put_baseline(db: sqlite3.Connection, key: TrackKey, story: str, body: bytes) -> None:
    """Keep the results of a story's baseline run, replacing earlier ones."""
    db.execute("INSERT OR REPLACE INTO baselines VALUES (?, ?, ?, ?)", (*key, story, body))


def put_trusted(db: sqlite3.Connection, root: str, file: str, text: str, at: datetime) -> None:
    """Keep the text of a project's own file that a person has trusted, replacing the earlier one."""
    db.execute("INSERT OR REPLACE INTO trusted VALUES (?, ?, ?, ?)", (root, file, text, moment(at)))


def moment(at: datetime) -> str:
    """Return an aware datetime as text that sorts by time; UTC, microseconds."""
    assert at.tzinfo is not None
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def checked_path(path: str) -> None:
    """Raise StoreError when `path` is not UTF-8, which the journal cannot hold."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError as error:
        raise StoreError(
            f"{path!a}: the path is not UTF-8", hint="rename the folder, then add it again"
        ) from error


def _append(db: sqlite3.Connection, prepared: Prepared, before: tuple[str | None, str | None]) -> int:
    record = prepared.record
    rulebook = None if prepared.rules is None else keep_rules(db, prepared.rules)
    cursor = db.execute(
        """INSERT INTO events (at, project, track, kind, event, result, why,
        step_before, status_before, step_after, status_after, digest, rulebook, grounds, track_digest)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            *(moment(record.at), *record.key, record.event.kind, prepared.event, prepared.result, record.why),
            *(*before, *prepared.standing, prepared.digest, rulebook, prepared.grounds),
            digest_of(prepared.track),
        ),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _add_effects(db: sqlite3.Connection, seq: int, prepared: Prepared) -> tuple[PendingEffect, ...]:
    key, pending = prepared.record.key, []
    for effect, text in zip(prepared.record.effects, prepared.effects, strict=True):
        cursor = db.execute(
            "INSERT INTO effects (seq, project, track, effect) VALUES (?, ?, ?, ?)", (seq, *key, text)
        )
        assert cursor.lastrowid is not None
        number, at = cursor.lastrowid, prepared.record.at
        pending.append(PendingEffect(id=number, key=key, seq=seq, at=at, effect=effect))
    return tuple(pending)


def _remember_projection(db: sqlite3.Connection, key: TrackKey, digest: str, seq: int) -> None:
    db.execute("INSERT OR REPLACE INTO projections VALUES (?, ?, ?, ?)", (*key, digest, seq))
    db.execute(
        """DELETE FROM projections WHERE project = :project AND track = :track AND seq <=
        (SELECT seq FROM projections WHERE project = :project AND track = :track
        ORDER BY seq DESC LIMIT 1 OFFSET :kept)""",
        {"project": key.project, "track": key.track, "kept": _PROJECTIONS_KEPT},
    )


def _tell_dispatch(db: sqlite3.Connection, news: runs.Learned) -> None:
    db.execute(
        """UPDATE dispatches SET started_at = coalesce(started_at, ?), ended_at = coalesce(ended_at, ?),
        exit = coalesce(exit, ?), tests = coalesce(tests, ?) WHERE id = ?""",
        (
            *(None if at is None else moment(at) for at in (news.started_at, news.ended_at)),
            *(None if value is None else encode(value) for value in (news.exit, news.tests)),
            news.id,
        ),
    )
    if news.usage is not None:
        _tell_usage(db, news.id, news.usage, news.exit.model if news.exit else None)


def _tell_usage(db: sqlite3.Connection, dispatch: str, usage: Usage, model: str | None) -> None:
    db.execute(
        """UPDATE dispatches SET input_tokens = ?, output_tokens = ?, cache_read_tokens = ?,
        cache_write_tokens = ?, cost_usd = ?, priced = ?, model = ? WHERE id = ? AND input_tokens IS NULL""",
        (
            *(min(count, _MOST_TOKENS) for count in _counts(usage)),
            *(usage.cost_usd, usage.priced, model, dispatch),
        ),
    )


def _counts(usage: Usage) -> tuple[int, int, int, int]:
    return usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens


def _close_dispatches(db: sqlite3.Connection, key: TrackKey, verdict: runs.Verdict) -> None:
    db.execute(
        """UPDATE dispatches SET ended_at = coalesce(ended_at, ?), result = ?, why = ?
        WHERE project = ? AND track = ? AND result IS NULL AND id IS NOT ?""",
        (moment(verdict.at), verdict.result, verdict.why, *key, verdict.in_flight),
    )


def touch(db: sqlite3.Connection) -> None:
    """Write a page that says what it said before, to see whether it can be written."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    db.execute(f"PRAGMA user_version = {version:d}")
