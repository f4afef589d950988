"""What a house has left behind, read without a line of handoffd: SQLite, JSON and files.

The journal's tables, the exit records of the runs, STATE.json, the lines that executors and checks
wrote about their own starts, and the notices that arrived. The checker is a function of these values
alone.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.branches import Branches, look_at
from tests.chaos.clones import Cloned
from tests.chaos.projects import Project
from tests.chaos.sink import told
from tests.chaos.stories import Story

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the history. `before` and `after` are a step and a status."""

    seq: int
    project: str
    track: str
    kind: str
    event: Json
    before: tuple[str | None, str | None]
    after: tuple[str | None, str | None]

    def __str__(self) -> str:
        dispatch = self.event.get("dispatch", "")
        return f"event {self.seq} {self.kind} {dispatch} {self.before} -> {self.after} {self.project}"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One row of the dispatches. `exit` is None while its end is unknown."""

    id: str
    seq: int
    project: str
    story: str | None
    step: str
    attempt: int
    exit: Json | None
    result: str | None

    def __str__(self) -> str:
        what = f"{self.story} {self.step} attempt {self.attempt}: {self.result}"
        return f"dispatch {self.id} {what} {self.project}"


@dataclass(frozen=True, slots=True)
class Track:
    """One row of the tracks: step and status, and the digest of the expected STATE.json."""

    project: str
    track: str
    seq: int
    digest: str | None
    standing: tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class Order:
    """One order to tell people, and the `id` that its notice has to have."""

    id: str
    seq: int
    project: str
    effect: Json

    def __str__(self) -> str:
        return f"order of event {self.seq} for notice {self.id} {self.project}: {self.effect}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one house when everything has ended.

    `starts` are the lines of the executors, `checks` the run ids that checks left; `exits` the exit
    records by run; `states` the bytes of each project's STATE.json; `shims_hit` the dispatches whose
    shim was killed; `left` the remaining processes, and files that were not removed. `recorded` are
    the notices of the journal by id, `told` those that arrived, as often as they did. `kept` are the
    dispatches whose files are in a snapshot, by the root of each project that is a repository. `branches`
    is what the repositories hold whose stories work in clones.
    """

    events: Sequence[Event]
    dispatches: Sequence[Dispatch]
    tracks: Sequence[Track]
    open_effects: Sequence[str]
    starts: Sequence[Json]
    checks: Sequence[str]
    exits: Mapping[str, Json]
    states: Mapping[str, bytes | None]
    stories: Mapping[str, Sequence[Story]]
    shims_hit: frozenset[str] = frozenset()
    left: Sequence[str] = ()
    orders: Sequence[Order] = ()
    recorded: Mapping[str, Json] = field(default_factory=dict)
    kept: Mapping[str, frozenset[str]] = field(default_factory=dict)
    told: Sequence[Json] = ()
    branches: Mapping[str, Branches] = field(default_factory=dict)


def gather(
    base: Path, projects: Sequence[Project], shims_hit: frozenset[str], left: Sequence[str]
) -> Evidence:
    """Read everything below `base`. Raises sqlite3.Error and OSError: what cannot be read proves nothing."""
    stories = {str(project.root): project.stories for project in projects}
    cloned = [project for project in projects if isinstance(project, Cloned)]
    with closing(sqlite3.connect(f"file:{base}/state/journal.db?mode=ro", uri=True)) as db:
        return Evidence(
            events=_events(db),
            dispatches=_dispatches(db),
            tracks=_tracks(db),
            open_effects=[
                f"effect {number} of event {seq} {root}: {effect}"
                for number, seq, root, effect in db.execute(
                    "SELECT id, seq, project, effect FROM effects WHERE outcome IS NULL ORDER BY id"
                )
            ],
            starts=[json.loads(line) for line in _lines(base / "starts.jsonl")],
            checks=_lines(base / "checks.log"),
            exits=_exits(base / "state/runs"),
            states={root: _bytes(Path(root, ".ai/STATE.json")) for root in stories},
            stories=stories,
            shims_hit=shims_hit,
            left=[
                *left,
                *(f"half a file: {path}" for root in stories for path in Path(root, ".ai").glob(".*.tmp")),
            ],
            orders=_orders(db),
            recorded={name: json.loads(body) for name, body in db.execute("SELECT id, body FROM notices")},
            told=told(base),
            kept={
                str(project.root): _kept(base, project)
                for project in projects
                if (project.root / ".git").exists()
            },
            branches={str(project.root): look_at(project, base / "state") for project in cloned},
        )


def _kept(base: Path, project: Project) -> frozenset[str]:
    """Return the runs that the messages of snapshots name. Raises CalledProcessError for a damaged one."""
    root, clones = project.root, base.glob(f"state/workspaces/*/*/{project.root.name}")
    return frozenset().union(*map(_kept_in, [root, *clones]))


def _kept_in(folder: Path) -> frozenset[str]:
    checked = ["git", "-C", str(folder), "fsck", "--no-dangling", "--connectivity-only"]
    subprocess.run(checked, capture_output=True, check=True)
    listed = ["git", "-C", str(folder), "for-each-ref", "--format=%(contents)", "refs/handoffd"]
    said = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    named = (line.partition(": ") for line in said.splitlines())
    return frozenset(value for name, _, value in named if name == "Run")


def _events(db: sqlite3.Connection) -> list[Event]:
    rows = db.execute(
        """SELECT seq, project, track, kind, event, step_before, status_before, step_after, status_after
        FROM events ORDER BY seq"""
    )
    return [
        Event(
            seq,
            project,
            track,
            kind,
            json.loads(event),
            (step_before, status_before),
            (step_after, status_after),
        )
        for seq, project, track, kind, event, step_before, status_before, step_after, status_after in rows
    ]


def _dispatches(db: sqlite3.Connection) -> list[Dispatch]:
    rows = db.execute(
        "SELECT id, seq, project, story, step, attempt, exit, result FROM dispatches ORDER BY seq, id"
    )
    return [
        Dispatch(name, seq, root, story, step, attempt, None if ended is None else json.loads(ended), result)
        for name, seq, root, story, step, attempt, ended, result in rows
    ]


def _tracks(db: sqlite3.Connection) -> list[Track]:
    rows = db.execute("SELECT project, track, seq, digest, step, status FROM tracks ORDER BY project, track")
    return [
        Track(project, track, seq, digest, (step, status))
        for project, track, seq, digest, step, status in rows
    ]


def _orders(db: sqlite3.Connection) -> list[Order]:
    # A notice is named by the instant of its decision, with microseconds, and the number of its order.
    rows = db.execute(
        """SELECT replace(replace(substr(at, 1, 26), '-', ''), ':', '') || '-' || id, seq, effects.project,
        effect FROM effects JOIN events USING (seq) WHERE effect ->> 'kind' = 'notify' ORDER BY id"""
    )
    return [Order(name, seq, root, json.loads(effect)) for name, seq, root, effect in rows]


def _exits(runs: Path) -> dict[str, Json]:
    names = os.listdir(runs) if runs.is_dir() else []
    return {name: json.loads(text) for name in names if (text := _bytes(runs / name / "exit.json"))}


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
