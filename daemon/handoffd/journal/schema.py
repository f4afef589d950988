"""The tables of the journal, as a list of steps from nothing to the current version.

A released step is never edited: a change is a new step, and `tests/data/journal` keeps a file of
every released version. A file written by a newer release is refused untouched, because dropping
what we do not understand would lose history.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from handoffd.errors import StoreError
from handoffd.files.atomic import digest_of
from handoffd.files.errors import NOT_A_JOURNAL

NEWER_SCHEMA = "NEWER_SCHEMA"

Step = tuple[str, ...]

_STAY = """CREATE TRIGGER events_stay BEFORE UPDATE ON events
        BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END"""

_FIRST: Step = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    # AUTOINCREMENT: numbers stay unique even when old rows are removed one day; followers rely on it.
    """CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, project TEXT NOT NULL, track TEXT NOT NULL,
        kind TEXT NOT NULL, event TEXT NOT NULL, result TEXT NOT NULL, why TEXT NOT NULL,
        step_before TEXT, status_before TEXT, step_after TEXT, status_after TEXT, digest TEXT) STRICT""",
    "CREATE INDEX events_by_project ON events (project, seq)",
    _STAY,
    """CREATE TRIGGER events_remain BEFORE DELETE ON events
        BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END""",
    """CREATE TABLE tracks (
        project TEXT NOT NULL, track TEXT NOT NULL, seq INTEGER NOT NULL REFERENCES events (seq),
        body TEXT NOT NULL, digest TEXT, step TEXT, status TEXT, PRIMARY KEY (project, track)) STRICT""",
    """CREATE TABLE effects (
        id INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER NOT NULL REFERENCES events (seq),
        project TEXT NOT NULL, track TEXT NOT NULL, effect TEXT NOT NULL, outcome TEXT) STRICT""",
    "CREATE INDEX effects_pending ON effects (id) WHERE outcome IS NULL",
    """CREATE TABLE dispatches (
        id TEXT PRIMARY KEY, seq INTEGER NOT NULL REFERENCES events (seq),
        project TEXT NOT NULL, track TEXT NOT NULL, story TEXT, step TEXT NOT NULL,
        attempt INTEGER NOT NULL, executor TEXT NOT NULL, decided_at TEXT NOT NULL, started_at TEXT,
        ended_at TEXT, exit TEXT, tests TEXT, result TEXT, why TEXT) STRICT""",
    "CREATE INDEX dispatches_by_seq ON dispatches (seq)",
    "CREATE INDEX dispatches_open ON dispatches (project, track) WHERE result IS NULL",
    "CREATE INDEX dispatches_by_project ON dispatches (project, seq)",
    """CREATE TABLE projections (
        project TEXT NOT NULL, track TEXT NOT NULL, digest TEXT NOT NULL,
        seq INTEGER NOT NULL REFERENCES events (seq),
        PRIMARY KEY (project, track, digest)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX projections_by_age ON projections (project, track, seq)",
    """CREATE TABLE projects (
        root TEXT PRIMARY KEY, name TEXT NOT NULL, added_at TEXT NOT NULL, removed_at TEXT) STRICT""",
    """CREATE TABLE baselines (
        project TEXT NOT NULL, track TEXT NOT NULL, story TEXT NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (project, track, story)) STRICT""",
    """CREATE TABLE trusted (
        root TEXT NOT NULL, file TEXT NOT NULL, text TEXT NOT NULL, at TEXT NOT NULL,
        PRIMARY KEY (root, file)) STRICT""",
)

_REPLAYABLE: Step = (
    # What decided: the step tables by content, the release whose engine read them, one row a change.
    """CREATE TABLE rulebooks (
        id INTEGER PRIMARY KEY, digest TEXT NOT NULL, engine TEXT NOT NULL, body TEXT NOT NULL,
        UNIQUE (digest, engine)) STRICT""",
    "ALTER TABLE events ADD COLUMN rulebook INTEGER REFERENCES rulebooks (id)",
    "ALTER TABLE events ADD COLUMN grounds TEXT",
    "CREATE INDEX effects_by_seq ON effects (seq)",
    # Where a replay begins that cannot begin at the beginning: earlier events do not say what decided.
    """CREATE TABLE snapshots (
        project TEXT NOT NULL, track TEXT NOT NULL, seq INTEGER NOT NULL REFERENCES events (seq),
        body TEXT NOT NULL, PRIMARY KEY (project, track)) STRICT""",
    "INSERT INTO snapshots SELECT project, track, seq, body FROM tracks",
)

_OUTBOX: Step = (
    """CREATE TABLE notices (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, project TEXT NOT NULL,
        track TEXT NOT NULL, at TEXT NOT NULL, body TEXT NOT NULL) STRICT""",
    # One for each notice and sink. Times are seconds that daemons have lived on this journal.
    """CREATE TABLE deliveries (
        number INTEGER PRIMARY KEY AUTOINCREMENT, notice INTEGER NOT NULL REFERENCES notices (number),
        sink TEXT NOT NULL, born_s REAL NOT NULL, tries INTEGER NOT NULL DEFAULT 0, error TEXT,
        failed_s REAL, outcome TEXT, ended_s REAL, UNIQUE (notice, sink)) STRICT""",
    "CREATE INDEX deliveries_waiting ON deliveries (sink, number) WHERE outcome IS NULL",
    "CREATE INDEX deliveries_given_up ON deliveries (ended_s) WHERE outcome = 'given_up'",
    """CREATE INDEX deliveries_failed ON deliveries (sink, failed_s)
        WHERE failed_s IS NOT NULL AND outcome IS NOT 'delivered'""",
)

_USAGE: Step = (
    # What a run used, None where that is not known; each token is in one of the four.
    "ALTER TABLE dispatches ADD COLUMN input_tokens INTEGER",
    "ALTER TABLE dispatches ADD COLUMN output_tokens INTEGER",
    "ALTER TABLE dispatches ADD COLUMN cache_read_tokens INTEGER",
    "ALTER TABLE dispatches ADD COLUMN cache_write_tokens INTEGER",
    "ALTER TABLE dispatches ADD COLUMN cost_usd REAL",
    "ALTER TABLE dispatches ADD COLUMN priced TEXT",
    "ALTER TABLE dispatches ADD COLUMN model TEXT",
    # Sums of a day are asked for at every start. Runs that used nothing are not in them.
    "CREATE INDEX dispatches_by_end ON dispatches (ended_at) WHERE input_tokens IS NOT NULL",
)

_REQUESTS: Step = (
    # What came with an idempotency key: the event it became, in whose transaction, and its answer.
    """CREATE TABLE requests (
        key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, at TEXT NOT NULL,
        seq INTEGER REFERENCES events (seq), status INTEGER, body TEXT) STRICT""",
    "CREATE INDEX requests_by_age ON requests (at)",
)

_ORIGINS: Step = (
    # The entry of the settings that brought a project, or did so last; NULL: a person added or removed it.
    "ALTER TABLE projects ADD COLUMN brought_by TEXT",
)

_SCHEDULES: Step = (
    # What is started by the clock: since when it is known, and up to when it was dealt with, how.
    """CREATE TABLE schedules (
        project TEXT NOT NULL, schedule TEXT NOT NULL, fingerprint TEXT NOT NULL, armed_at TEXT NOT NULL,
        due TEXT, at TEXT, outcome TEXT, story TEXT, why TEXT, seq INTEGER REFERENCES events (seq),
        PRIMARY KEY (project, schedule)) STRICT, WITHOUT ROWID""",
)

_HELD_BACK: Step = (
    # Why a delivery is not to be sent yet: quiet, digest or burst; over when a digest has taken its place.
    "ALTER TABLE deliveries ADD COLUMN held TEXT",
    """CREATE INDEX deliveries_held ON deliveries (sink, held, number)
        WHERE outcome IS NULL AND held IS NOT NULL""",
    # A matter waits for a person, from its notice until it is known to be over. `reached_min`:
    # how far the ladder of reminders was climbed.
    """CREATE TABLE matters (
        project TEXT NOT NULL, track TEXT NOT NULL, notice INTEGER NOT NULL REFERENCES notices (number),
        since TEXT NOT NULL, reached_min REAL NOT NULL DEFAULT 0, PRIMARY KEY (project, track)) STRICT""",
    "CREATE INDEX matters_by_notice ON matters (notice)",
)

_PRUNABLE: Step = (
    # Numbers of events that are not kept any more, so that `journal verify` does not report a loss.
    "CREATE TABLE pruned (first INTEGER PRIMARY KEY, last INTEGER NOT NULL) STRICT",
    # Only what a replay does not need goes: events before the snapshot of their track.
    "DROP TRIGGER events_remain",
    """CREATE TRIGGER events_remain BEFORE DELETE ON events WHEN NOT EXISTS (SELECT 1 FROM snapshots AS s
        WHERE s.project = OLD.project AND s.track = OLD.track AND s.seq > OLD.seq)
        BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END""",
    # The same, but for a row that outlives the event which began it: what runs used is counted for ever.
    """CREATE TABLE lasting_dispatches (
        id TEXT PRIMARY KEY, seq INTEGER NOT NULL, project TEXT NOT NULL, track TEXT NOT NULL, story TEXT,
        step TEXT NOT NULL, attempt INTEGER NOT NULL, executor TEXT NOT NULL, decided_at TEXT NOT NULL,
        started_at TEXT, ended_at TEXT, exit TEXT, tests TEXT, result TEXT, why TEXT,
        input_tokens INTEGER, output_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER,
        cost_usd REAL, priced TEXT, model TEXT) STRICT""",
    """INSERT INTO lasting_dispatches SELECT id, seq, project, track, story, step, attempt, executor,
        decided_at, started_at, ended_at, exit, tests, result, why, input_tokens, output_tokens,
        cache_read_tokens, cache_write_tokens, cost_usd, priced, model FROM dispatches""",
    "DROP TABLE dispatches",
    "ALTER TABLE lasting_dispatches RENAME TO dispatches",
    "CREATE INDEX dispatches_by_seq ON dispatches (seq)",
    "CREATE INDEX dispatches_open ON dispatches (project, track) WHERE result IS NULL",
    "CREATE INDEX dispatches_by_project ON dispatches (project, seq)",
    "CREATE INDEX dispatches_by_end ON dispatches (ended_at) WHERE input_tokens IS NOT NULL",
    # Removing an event asks each of these whether it points to the event.
    "CREATE INDEX tracks_by_seq ON tracks (seq)",
    "CREATE INDEX projections_by_seq ON projections (seq)",
    "CREATE INDEX snapshots_by_seq ON snapshots (seq)",
    "CREATE INDEX requests_by_seq ON requests (seq)",
    "CREATE INDEX schedules_by_seq ON schedules (seq)",
)

_HELD_AGAINST: Step = (
    # Of the track's body that an event has left: what is loaded is held against it. Tracks whose last event
    # is of before count as they are when the journal is migrated.
    "ALTER TABLE events ADD COLUMN track_digest TEXT",
    "DROP TRIGGER events_stay",
    """UPDATE events SET track_digest = (SELECT digest_of(body) FROM tracks AS t
        WHERE t.seq = events.seq AND t.project = events.project AND t.track = events.track)
        WHERE seq IN (SELECT seq FROM tracks)""",
    _STAY,
)

STORY_ENDS = """(kind IN ('landed', 'discarded', 'aborted')
    OR step_after = 'done' AND step_before IS NOT 'done')"""
"""The events with which stories end. SQLite takes the index only where a question has this very text."""

_LOOKED_BACK_ON: Step = (
    # The story that an event is about, and what that waits for from then on; NULL in events of before.
    "ALTER TABLE events ADD COLUMN story TEXT",
    "ALTER TABLE events ADD COLUMN awaits TEXT",
    "CREATE INDEX events_by_time ON events (at)",
    "CREATE INDEX events_by_story ON events (story, seq)",
    f"CREATE INDEX story_ends ON events (project, seq) WHERE {STORY_ENDS}",
    "CREATE INDEX dispatches_by_decision ON dispatches (decided_at)",
    "CREATE INDEX dispatches_by_time ON dispatches (ended_at)",
    "CREATE INDEX dispatches_by_story ON dispatches (story, seq)",
    # When daemons lived here. `seen_at`: it was alive then; `ended`: how it ended, if it could say that.
    """CREATE TABLE lives (
        number INTEGER PRIMARY KEY AUTOINCREMENT, began_at TEXT NOT NULL, seen_at TEXT NOT NULL,
        ended TEXT) STRICT""",
)

_FLOWS: Step = (
    # The plans that flows keep to, by content; `sum` is that of the text, `engine` the release that decides.
    """CREATE TABLE plans (
        id INTEGER PRIMARY KEY, digest TEXT NOT NULL, engine TEXT NOT NULL, sum TEXT NOT NULL,
        body TEXT NOT NULL, UNIQUE (digest, engine)) STRICT""",
    # Of each event of a flow; NULL in all others.
    "ALTER TABLE events ADD COLUMN plan INTEGER REFERENCES plans (id)",
    "CREATE INDEX events_of_flows ON events (project, track, seq) WHERE plan IS NOT NULL",
    "CREATE INDEX flow_starts ON events (project, track) WHERE kind = 'flow_started'",
    # `plan` is the digest of the plan. What has many entries is in the next table, so `body` stays short.
    # The last event of an ended flow goes in one transaction with its row.
    """CREATE TABLE flows (
        project TEXT NOT NULL, flow TEXT NOT NULL,
        seq INTEGER NOT NULL REFERENCES events (seq) DEFERRABLE INITIALLY DEFERRED,
        plan TEXT NOT NULL, pipeline TEXT NOT NULL, story TEXT, started_at TEXT NOT NULL,
        awaits TEXT NOT NULL, ended TEXT, ended_at TEXT, counts TEXT, body TEXT NOT NULL,
        PRIMARY KEY (project, flow)) STRICT""",
    "CREATE INDEX flows_open ON flows (project, flow) WHERE ended IS NULL",
    "CREATE INDEX flows_ended ON flows (project, ended_at) WHERE ended IS NOT NULL",
    "CREATE INDEX flows_by_seq ON flows (seq)",
    # The entries of each field, in the order of their numbers: only the ones that change are written.
    """CREATE TABLE flow_facts (
        number INTEGER PRIMARY KEY, project TEXT NOT NULL, flow TEXT NOT NULL, part TEXT NOT NULL,
        key TEXT NOT NULL, value TEXT NOT NULL, UNIQUE (project, flow, part, key)) STRICT""",
    # Nodes at visits that are superseded, by the event that superseded them.
    """CREATE TABLE flow_past (
        number INTEGER PRIMARY KEY, project TEXT NOT NULL, flow TEXT NOT NULL, node TEXT NOT NULL,
        visit INTEGER NOT NULL, seq INTEGER NOT NULL REFERENCES events (seq), body TEXT NOT NULL) STRICT""",
    "CREATE INDEX past_by_flow ON flow_past (project, flow)",
    "CREATE INDEX past_by_seq ON flow_past (seq)",
    # An ended flow goes whole, its events first and its row at last.
    "DROP TRIGGER events_remain",
    """CREATE TRIGGER events_remain BEFORE DELETE ON events WHEN NOT EXISTS (SELECT 1 FROM snapshots AS s
        WHERE s.project = OLD.project AND s.track = OLD.track AND s.seq > OLD.seq)
        AND NOT (OLD.plan IS NOT NULL AND EXISTS (SELECT 1 FROM flows AS f WHERE f.project = OLD.project
        AND f.ended IS NOT NULL AND 'flow:' || f.flow = OLD.track))
        BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END""",
)

STEPS: tuple[Step, ...] = (
    _FIRST, _REPLAYABLE, _OUTBOX, _USAGE, _REQUESTS, _ORIGINS, _SCHEDULES, _HELD_BACK, _PRUNABLE,
    _HELD_AGAINST, _LOOKED_BACK_ON, _FLOWS,
)  # fmt: skip
VERSION = len(STEPS)


def version_of(connection: sqlite3.Connection, path: str) -> int:
    """Return the schema version of an open database; 0 for an empty one. Changes nothing.

    Raises StoreError when the file is another program's database or a newer release's journal, and
    sqlite3.DatabaseError when it is not a database.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    row = None
    if "meta" in tables:
        row = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    if row is None or not str(row[0]).isdecimal():
        hint = "point daemon.state_dir at a folder of its own: handoffd config show"
        raise StoreError(f"{path} is a database, but no journal of handoffd", code=NOT_A_JOURNAL, hint=hint)
    return int(row[0])


def migrate(connection: sqlite3.Connection, path: str, steps: Sequence[Step] = STEPS) -> None:
    """Bring the journal up to the last of `steps`, all or nothing.

    `connection` is in autocommit mode. Raises StoreError (NEWER_SCHEMA) when the file is ahead of us.
    """
    refuse_newer(version_of(connection, path), path, len(steps))
    connection.create_function("digest_of", 1, digest_of, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Again, now that no other process can write: one may have migrated meanwhile.
        for step in steps[version_of(connection, path) :]:
            for statement in step:
                connection.execute(statement)
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema_version', ?)", (str(len(steps)),))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def spell_anew(db: sqlite3.Connection, seq: int, digest: str) -> None:
    """Have an event say the digest of the body it left as this release spells it; in a transaction."""
    db.execute("DROP TRIGGER IF EXISTS events_stay")
    db.execute("UPDATE events SET track_digest = ? WHERE seq = ?", (digest, seq))
    db.execute(_STAY)


def refuse_newer(version: int, path: str, ours: int = VERSION) -> None:
    """Raise StoreError (NEWER_SCHEMA) when `version` is beyond `ours`."""
    if version > ours:
        raise StoreError(
            f"{path} was written by a newer handoffd (schema {version}; this one knows {ours});"
            " it is left untouched",
            code=NEWER_SCHEMA,
            hint="pip install --upgrade handoffd",
        )
