"""The projects that are looked after, and what is kept for them: trusted texts, baselines, schedules.

A project that is removed keeps its row and its history. One that the settings brought may be brought back by
them, one that a person has removed may not: `brought_by` tells them apart.

Of a schedule it is kept up to when it was dealt with, and how. A start is written down in the transaction of
its event (`commit.write_record`): a daemon that dies between deciding and remembering would start a story
twice, or never.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal

from msgspec import Struct

from handoffd.engine.track import TrackKey
from handoffd.errors import NotFound, StoreError
from handoffd.journal.codec import moment
from handoffd.journal.connections import Run
from handoffd.journal.queries import among
from handoffd.journal.records import Newcomer, Origins, StoredProject


# --- projects -----------------------------------------------------------------------------------------
def put_projects(
    db: sqlite3.Connection, newcomers: Sequence[Newcomer], at: datetime, untrusted: Sequence[str] = ()
) -> None:
    """Add projects, or rename known ones; what was removed earlier counts from `at` again.

    `untrusted` files of theirs that no person has trusted yet count as trusted while they are empty.
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


def checked_path(path: str) -> None:
    """Raise StoreError when `path` is not UTF-8, which the journal cannot hold."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError as error:
        raise StoreError(
            f"{path!a}: the path is not UTF-8", hint="rename the folder, then add it again"
        ) from error


def projects(db: sqlite3.Connection) -> tuple[StoredProject, ...]:
    """Return the projects that are looked after, by root."""
    rows = db.execute("SELECT root, name, added_at FROM projects WHERE removed_at IS NULL ORDER BY root")
    return tuple(
        StoredProject(root=root, name=name, added_at=datetime.fromisoformat(at)) for root, name, at in rows
    )


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


# --- trusted texts, and baselines ---------------------------------------------------------------------
def put_trusted(db: sqlite3.Connection, root: str, file: str, text: str, at: datetime) -> None:
    """Keep the text of a project's own file that a person has trusted, replacing the earlier one."""
    db.execute("INSERT OR REPLACE INTO trusted VALUES (?, ?, ?, ?)", (root, file, text, moment(at)))


def trusted(db: sqlite3.Connection, roots: Sequence[str] | None) -> dict[str, dict[str, str]]:
    """Return the texts that a person has trusted last, by root and file; of these roots or of all."""
    query = f"SELECT root, file, text FROM trusted {among('root', roots)}"  # noqa: S608  (see `tracks`)
    rows = db.execute(query, roots or ())
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for owner, file, text in rows:
        found[owner][file] = text
    return found


def put_baseline(db: sqlite3.Connection, key: TrackKey, story: str, body: bytes) -> None:
    """Keep the results of a story's baseline run, replacing earlier ones."""
    db.execute("INSERT OR REPLACE INTO baselines VALUES (?, ?, ?, ?)", (*key, story, body))


def baseline(db: sqlite3.Connection, key: TrackKey, story: str) -> bytes | None:
    """Return the results kept for a story, or None."""
    row = db.execute(
        "SELECT body FROM baselines WHERE project = ? AND track = ? AND story = ?", (*key, story)
    ).fetchone()
    return None if row is None else bytes(row[0])


# --- outcomes of schedules ----------------------------------------------------------------------------
FireOutcome = Literal["started", "queued", "skipped", "missed"]


class Fire(Struct, frozen=True, kw_only=True):
    """The outcome of a schedule of `project`, the absolute path of its root, when it was `due`."""

    project: str
    schedule: str
    due: datetime
    at: datetime
    outcome: FireOutcome
    story: str | None = None
    why: str | None = None


class StoredSchedule(Struct, frozen=True, kw_only=True):
    """A schedule of a project. `armed_at`: it is known since then, with this fingerprint.

    `last` is its latest outcome; None: it was never due.
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
        """Keep the outcome of a schedule that started nothing; it is dealt with up to then."""
        activity = f"settle {fire.schedule} of {fire.project}"
        await self._write(activity, partial(write_fire, fire=fire, seq=None))


def write_fire(db: sqlite3.Connection, fire: Fire, seq: int | None) -> None:
    """Write the outcome of a schedule; `seq` is the event that it caused, if one."""
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
