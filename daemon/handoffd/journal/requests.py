"""Requests that came with a key: claimed before anything is done, answered after, kept for a day.

A verb's event is committed together with the number it gets here (`commit.write_record`). So after a crash
between doing and answering it is known that it was done, and what came of it.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from handoffd.journal.codec import moment
from handoffd.journal.connections import Run

KEPT: timedelta = timedelta(hours=24)
"""For so long a key stands for its request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRequest:
    """A request that came before. `fingerprint` tells what was asked.

    `seq` is the number of the event it became, `status` and `body` its answer; None: none that is known.
    """

    fingerprint: str
    seq: int | None
    status: int | None
    body: str | None


class Requests:
    """The keys of the last day. All methods raise StoreError like `Journal`."""

    def __init__(self, write: Run) -> None:
        self._write = write

    async def claim(self, key: str, fingerprint: str, at: datetime) -> StoredRequest | None:
        """Return the request that had this key before; None when it is claimed for this one now."""
        work = partial(_claim, key=key, fingerprint=fingerprint, at=at)
        return await self._write("record a request", work)

    async def answer(self, key: str, status: int, body: str) -> None:
        """Keep the answer to a claimed request."""
        await self._write("keep an answer", partial(_answer, key=key, status=status, body=body))

    async def release(self, key: str) -> None:
        """Forget a claim that nothing came of; one that became an event, or is answered, stays."""
        await self._write("forget a request", partial(_release, key=key))


def _claim(db: sqlite3.Connection, key: str, fingerprint: str, at: datetime) -> StoredRequest | None:
    db.execute("DELETE FROM requests WHERE at < ?", (moment(at - KEPT),))
    row = db.execute("SELECT fingerprint, seq, status, body FROM requests WHERE key = ?", (key,)).fetchone()
    if row is not None:
        found, seq, status, body = row
        return StoredRequest(fingerprint=found, seq=seq, status=status, body=body)
    db.execute("INSERT INTO requests (key, fingerprint, at) VALUES (?, ?, ?)", (key, fingerprint, moment(at)))
    return None


def _answer(db: sqlite3.Connection, key: str, status: int, body: str) -> None:
    db.execute("UPDATE requests SET status = ?, body = ? WHERE key = ?", (status, body, key))


def _release(db: sqlite3.Connection, key: str) -> None:
    db.execute("DELETE FROM requests WHERE key = ? AND seq IS NULL AND status IS NULL", (key,))
