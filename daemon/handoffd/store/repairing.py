"""A track's row made again as its last event has left it, where it was changed outside handoffd.

What is written is proved first: no event is missing, each one of the track is decided again as it was
recorded, and the body that this makes has the digest that the last one was recorded with. Another release may
have spelled the same body in another way; there the decisions are the proof. Where nothing is proved, nothing
is written: that takes a backup.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import handoffd
from handoffd.engine.replay import standing_of
from handoffd.engine.track import Track, TrackKey
from handoffd.store.codec import encode
from handoffd.store.database import open_database
from handoffd.store.digest import digest_of
from handoffd.store.faults import storage_error
from handoffd.store.queries import garbled_orders, held_against
from handoffd.store.schema import spell_anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A track as its events make it. `seq` is the last of them, by the release `engine`; `digest` that of its
    STATE.json."""

    track: Track
    seq: int
    digest: str | None
    engine: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What was made again, and what could not be, each track with what was wrong with it."""

    made: Mapping[TrackKey, str]
    left: Mapping[TrackKey, str]


def repair(path: Path, made: Mapping[TrackKey, Made], root: str | None = None) -> Repaired:
    """Write the rows of the journal at `path` again that are unsound; of one root or of all.

    The caller has the daemon's lock. Raises StoreError when the journal cannot be read or written.
    """
    done, left = dict[TrackKey, str](), dict[TrackKey, str]()
    try:
        with closing(open_database(path)) as db, db:
            db.execute("BEGIN IMMEDIATE")
            for row in tuple(held_against(db, None if root is None else (root,))):
                if row.unsound is not None:
                    one = made.get(row.key)
                    written = one is not None and _write(db, row.key, one)
                    (done if written else left)[row.key] = row.unsound
            left |= garbled_orders(db, None if root is None else (root,))  # no event says them again
    except sqlite3.Error as error:
        raise storage_error("repair the journal", path, error) from error
    return Repaired(made=done, left=left)


def _write(db: sqlite3.Connection, key: TrackKey, one: Made) -> bool:
    """Write the row of a track if that is proved to be what its last event has left; return whether it is."""
    body, standing = encode(one.track), standing_of(one.track.state) or (None, None)
    (left,) = db.execute("SELECT track_digest FROM events WHERE seq = ?", (one.seq,)).fetchone()
    if left != digest_of(body):
        if one.engine == handoffd.__version__:
            return False
        spell_anew(db, one.seq, digest_of(body))
    db.execute(
        "INSERT OR REPLACE INTO tracks VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*key, one.seq, body, one.digest, *standing),
    )
    return True
