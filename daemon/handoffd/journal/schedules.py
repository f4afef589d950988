"""What has become of schedules: up to when each was dealt with, and how.

A start is written down in the transaction of its event (`commit.write_record`): a daemon that dies
between deciding and remembering would start a story twice, or never.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal

from handoffd.journal.connections import Run

FireOutcome = Literal["started", "queued", "skipped", "missed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """What became of a schedule of `project`, the absolute path of its root, at the time it was `due`."""

    project: str
    schedule: str
    due: datetime
    at: datetime
    outcome: FireOutcome
    story: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """A schedule of a project. `armed_at`: it is known since then, with this fingerprint.

    `last` is what became of it last; None: nothing yet.
    """

    project: str
    schedule: str
    fingerprint: str
    armed_at: datetime
    last: Fire | None

    @property
    def handled(self) -> datetime:
        """Up to when everything has been dealt with."""
        return self.armed_at if self.last is None else max(self.armed_at, self.last.due)


class Schedules:
    """The schedules that were ever armed and are there still. All methods raise StoreError like `Journal`."""

    def __init__(self, read: Run, write: Run) -> None:
        self._read = read
        self._write = write

    async def all(self) -> tuple[StoredSchedule, ...]:
        """Return every schedule, by project and name."""
        return await self._read("read the schedules", _all)

    async def trusted_in(self, file: str) -> dict[str, str]:
        """Return, by root, what a person trusted of that file of a project, where it names schedules."""
        return await self._read("read what is trusted", partial(_trusted_in, file=file))

    async def of(self, project: str, schedule: str) -> StoredSchedule | None:
        """Return one schedule of a project; None when it is not known."""
        found = await self._read("read a schedule", partial(_all, only=(project, schedule)))
        return next(iter(found), None)

    async def arm(self, schedules: Iterable[tuple[str, str, str]], at: datetime) -> None:
        """Know these (project, name, fingerprint) from now on; one with another fingerprint begins anew.

        So does one that is known since a time to come: the clock was wrong then.
        """
        rows = [(*schedule, at.isoformat()) for schedule in schedules]
        if not rows:
            return
        await self._write("arm schedules", partial(_arm, rows=rows))

    async def forget(self, schedules: Iterable[tuple[str, str]]) -> None:
        """Forget these (project, name): they are in no settings any more."""
        if rows := list(schedules):
            await self._write("forget schedules", partial(_forget, rows=rows))

    async def settle(self, fire: Fire) -> None:
        """Keep what became of a schedule that started nothing; it is dealt with up to then."""
        activity = f"settle {fire.schedule} of {fire.project}"
        await self._write(activity, partial(write_fire, fire=fire, seq=None))


def write_fire(db: sqlite3.Connection, fire: Fire, seq: int | None) -> None:
    """Write what became of a schedule; `seq` is the event that it became, if one."""
    db.execute(
        """UPDATE schedules SET due = ?, at = ?, outcome = ?, story = ?, why = ?, seq = ?
        WHERE project = ? AND schedule = ?""",
        (
            *(fire.due.isoformat(), fire.at.isoformat(), fire.outcome, fire.story, fire.why, seq),
            *(fire.project, fire.schedule),
        ),
    )


def _arm(db: sqlite3.Connection, rows: list[tuple[str, str, str, str]]) -> None:
    db.executemany(
        """INSERT INTO schedules (project, schedule, fingerprint, armed_at) VALUES (?, ?, ?, ?)
        ON CONFLICT (project, schedule) DO UPDATE SET fingerprint = excluded.fingerprint,
        armed_at = excluded.armed_at
        WHERE fingerprint <> excluded.fingerprint OR armed_at > excluded.armed_at""",
        rows,
    )


def _forget(db: sqlite3.Connection, rows: list[tuple[str, str]]) -> None:
    db.executemany("DELETE FROM schedules WHERE project = ? AND schedule = ?", rows)


def _all(db: sqlite3.Connection, only: tuple[str, str] | None = None) -> tuple[StoredSchedule, ...]:
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'schedules'").fetchone() is None:
        return ()  # a journal of before there were any, that no daemon has brought up to date
    where = "" if only is None else "WHERE project = ? AND schedule = ?"
    rows = db.execute(
        f"""SELECT project, schedule, fingerprint, armed_at, due, at, outcome, story, why FROM schedules
        {where} ORDER BY project, schedule""",  # noqa: S608  (two fixed texts)
        only or (),
    )
    return tuple(_stored(row) for row in rows)


def _trusted_in(db: sqlite3.Connection, file: str) -> dict[str, str]:
    rows = db.execute("SELECT root, text FROM trusted WHERE file = ? AND instr(text, 'schedule')", (file,))
    return dict(rows.fetchall())


def _stored(row: tuple[Any, ...]) -> StoredSchedule:
    project, schedule, fingerprint, armed_at, due, at, outcome, story, why = row
    last = None
    if due is not None:
        last = Fire(
            project=project, schedule=schedule, due=datetime.fromisoformat(due),
            at=datetime.fromisoformat(at), outcome=outcome, story=story, why=why,
        )  # fmt: skip
    armed = datetime.fromisoformat(armed_at)
    return StoredSchedule(
        project=project, schedule=schedule, fingerprint=fingerprint, armed_at=armed, last=last
    )
