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
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from handoffd.engine.track import TrackKey
from handoffd.errors import NotFound, StoreError
from handoffd.journal.codec import moment
from handoffd.journal.connections import Run
from handoffd.journal.log import (
    BaselineKept,
    FileTrusted,
    ProjectAdded,
    ScheduleArmed,
    ScheduleForgotten,
)
from handoffd.journal.queries import among
from handoffd.journal.records import Fire, Origins, StoredProject, StoredSchedule


# --- projects -----------------------------------------------------------------------------------------
def put_project(db: sqlite3.Connection, added: ProjectAdded) -> None:
    """Add a project, or rename a known one; one that was removed earlier counts from now on again.

    Its `untrusted` files that no person has trusted yet count as trusted while they are empty.
    """
    at = moment(added.at)
    db.execute(
        """INSERT INTO projects (root, name, added_at, brought_by) VALUES (?, ?, ?, ?)
        ON CONFLICT (root) DO UPDATE SET name = excluded.name, removed_at = NULL,
        brought_by = excluded.brought_by,
        added_at = iif(removed_at IS NULL, added_at, excluded.added_at)""",
        (added.project, added.name, at, added.brought_by),
    )
    files = [(added.project, file, at) for file in added.untrusted]
    db.executemany("INSERT OR IGNORE INTO trusted VALUES (?, ?, '', ?)", files)


def let_go(db: sqlite3.Connection, root: str, at: datetime) -> None:
    """Mark a project removed that the settings name no more: they may bring it back."""
    db.execute(
        """UPDATE projects SET removed_at = ?
        WHERE root = ? AND removed_at IS NULL AND brought_by IS NOT NULL""",
        (moment(at), root),
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
def put_trusted(db: sqlite3.Connection, trusted: FileTrusted) -> None:
    """Keep the text of a project's own file that a person has trusted, replacing the earlier one."""
    row = (trusted.project, trusted.file, trusted.text, moment(trusted.at))
    db.execute("INSERT OR REPLACE INTO trusted VALUES (?, ?, ?, ?)", row)


def trusted(db: sqlite3.Connection, roots: Sequence[str] | None) -> dict[str, dict[str, str]]:
    """Return the texts that a person has trusted last, by root and file; of these roots or of all."""
    query = f"SELECT root, file, text FROM trusted {among('root', roots)}"  # noqa: S608  (see `tracks`)
    rows = db.execute(query, roots or ())
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for owner, file, text in rows:
        found[owner][file] = text
    return found


def put_baseline(db: sqlite3.Connection, kept: BaselineKept) -> None:
    """Keep the results of a story's baseline run, replacing earlier ones."""
    row = (kept.project, kept.track, kept.story, kept.body)
    db.execute("INSERT OR REPLACE INTO baselines VALUES (?, ?, ?, ?)", row)


def baseline(db: sqlite3.Connection, key: TrackKey, story: str) -> bytes | None:
    """Return the results kept for a story, or None."""
    row = db.execute(
        "SELECT body FROM baselines WHERE project = ? AND track = ? AND story = ?", (*key, story)
    ).fetchone()
    return None if row is None else bytes(row[0])


# --- outcomes of schedules ----------------------------------------------------------------------------
class Schedules:
    """The schedules that were ever armed and are there still. All methods raise StoreError like `Journal`."""

    def __init__(self, read: Run) -> None:
        self._read = read

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


def arm(db: sqlite3.Connection, armed: ScheduleArmed) -> None:
    """Know a schedule from now on."""
    db.execute(
        """INSERT INTO schedules (project, schedule, fingerprint, armed_at) VALUES (?, ?, ?, ?)
        ON CONFLICT (project, schedule) DO UPDATE SET fingerprint = excluded.fingerprint,
        armed_at = excluded.armed_at
        WHERE fingerprint <> excluded.fingerprint OR armed_at > excluded.armed_at""",
        (armed.project, armed.schedule, armed.fingerprint, armed.at.isoformat()),
    )


def forget(db: sqlite3.Connection, forgotten: ScheduleForgotten) -> None:
    """Forget a schedule, and what came of it."""
    wanted = (forgotten.project, forgotten.schedule)
    db.execute("DELETE FROM schedules WHERE project = ? AND schedule = ?", wanted)


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
