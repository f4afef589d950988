"""The person of a house: starts stories, opens gates, answers waiting tracks, over the control API.

The journal alone determines the next verb, because an answer may be lost with its daemon: the recorded
verbs of a story are the ones that were given. The person gives no verb to a project whose STATE.json differs
from the journal, so that a daemon that does not repair it after a crash gets no further.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.chaos.checker import digest
from tests.chaos.clones import Cloned
from tests.chaos.house import House
from tests.chaos.projects import Project
from tests.chaos.stories import DONE, FIRST, LOST, Story

from handoffd.errors import HandoffdError, NoAnswer, NoDaemon

VERBS = ("approved", "rejected", "retried", "skipped")
WAITING = ("needs_human", "timeout")
_AT_LEAST_S = 0.02
_AGAIN = frozenset(
    {
        "BRANCH_MOVED", "CHECKOUT_BUSY", "CHECKOUT_IN_THE_WAY", "GIT_FAILED", "LANDING", "CUT_OFF",
        "GIT_TOO_SLOW",
    }
)  # fmt: skip
"""Why a landing is refused that succeeds when it is asked for again: a person was at work just then."""


class Person:
    """Looks after every project of a house, while a daemon answers."""

    def __init__(
        self, house: House, chance: Random, at_least_s: float = _AT_LEAST_S, at_most_s: float = math.inf
    ) -> None:
        """Wait `at_least_s` between two looks; after `at_most_s` of one, the next continues it."""
        self._house = house
        self._at_least_s = at_least_s
        self._at_most_s = at_most_s
        self._last = ""
        """The project of the last look."""
        self._chance = chance
        self._db: sqlite3.Connection | None = None
        self._version = -1
        self._looked = 0.0
        self.wants_more = True
        """Whether a story that has ended is followed by another one."""
        self.says_nothing = False
        """Whether waiting tracks get no answer."""
        self.trouble: list[str] = []
        """Tracks that wait although the script has no verb left, and landings with an unexpected outcome."""
        self.refused = Counter[str]()
        """Why landings were refused, by code."""

    def close(self) -> None:
        """Let go of the journal."""
        if self._db is not None:
            self._db.close()
            self._db, self._version = None, -1

    def attend(self) -> None:
        """Answer all waiting tracks, if anything has happened since the last time."""
        if time.monotonic() - self._looked < self._at_least_s:
            return
        self._looked = time.monotonic()
        try:
            (version,) = self._reader().execute("PRAGMA data_version").fetchone()
            if version != self._version:
                # After a verb without an answer, or an incomplete look, the next look asks again.
                self._version = version if self._attend_all() else -1
        except sqlite3.Error:
            self.close()  # there is no journal yet, or a schema half made

    def _attend_all(self) -> bool:
        """Look at the projects within the time limit; return whether all were seen and all verbs answered."""
        heard, until = True, time.monotonic() + self._at_most_s
        last = self._last
        standings = sorted(self._standings(), key=lambda one: (str(one[0].root) <= last, str(one[0].root)))
        for project, step, status in standings:
            if time.monotonic() > until:
                return False
            heard = self._answer(project, step, status) and heard
            self._last = str(project.root)
        return heard

    def all_over(self) -> bool:
        """Return whether every story has ended, is shown to have, and nothing is left to be done or told."""
        try:
            db = self._reader()
            ended = {root for root, step, status in _tracks(db) if (step, status) == (DONE, "pass")}
            left = _unfinished(db) + _untold(db)
        except sqlite3.Error:
            return False
        told = [project for project in self._house.projects if project.stories]
        begun = all(_begun(db, project) and _is_shown(db, project) for project in told)
        cloned = [project for project in told if isinstance(project, Cloned)]
        landed = all(project.stories[-1].name in project.landed for project in cloned)
        return begun and landed and left == 0 and {str(project.root) for project in told} <= ended

    def why_not_over(self) -> str:
        """Return which projects keep a house from its end."""
        db = self._reader()
        unlike = [str(one.root) for one in self._house.projects if not _is_shown(db, one)]
        unended = [root for root, step, status in _tracks(db) if (step, status) != (DONE, "pass")]
        waiting = f"notices not delivered: {_untold(db)}"
        return f"not ended: {unended}; STATE.json not repaired: {unlike}; {waiting}; {self.trouble}"

    def _reader(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = self._house.reader()
        return self._db

    def _standings(self) -> list[tuple[Project, str | None, str | None]]:
        db = self._reader()
        found = {root: (step, status) for root, step, status in _tracks(db)}
        known = (
            (root, *found.get(root, (None, None))) for (root,) in db.execute("SELECT root FROM projects")
        )
        # A working track needs no person. If a start was lost, its track is still at its first step, or
        # initialised and nothing more.
        at_rest = (None, "bootstrap", FIRST, DONE)
        return [
            (self._house.project_at(root), step, status)
            for root, step, status in known
            if step in at_rest or status in WAITING
        ]

    def _answer(self, project: Project, step: str | None, status: str | None) -> bool:
        """Give the next verb, if there is one; return False without an answer."""
        story = project.stories[-1] if project.stories else None
        if not _is_shown(self._reader(), project):
            return False  # not repaired yet: a decision would read STATE.json first
        if story is not None and not _begun(self._reader(), project):
            return self._give(project, "start", story=story.name)  # again: the last one was lost
        if story is None or (step, status) == (DONE, "pass"):
            if isinstance(project, Cloned) and story is not None and story.name not in project.landed:
                return self._land(project, story.name)
            if self.wants_more:
                return self._give(project, "start", story=project.next_story(self._chance).name)
        elif status in WAITING and not self.says_nothing:
            return self._decide(project, story, step)
        return True

    # --- landings --------------------------------------------------------------------------------
    def _land(self, project: Cloned, story: str) -> bool:
        """Have a finished story landed, in the person's own way; return False until it is."""
        whim = project.whims[story]
        if story not in project.noted:
            wanted = ((whim.note, project.note), (whim.veto, project.forbid), (whim.block, project.block))
            if not all(do(story) for wants, do in wanted if wants):
                return False
            project.noted.add(story)
        racing = threading.Timer(whim.race_s or 0, project.note, [f"{story}-{time.monotonic()}"])
        if whim.race_s is not None:
            racing.start()
        try:
            self._asked_to_land(project, story)
        except (HandoffdError, OSError):
            return False
        finally:
            if whim.race_s is not None:
                racing.join()
        return story in project.landed

    def _asked_to_land(self, project: Cloned, story: str) -> None:
        try:
            body = {"project": str(project.root), "story": story}
            answer = self._house.client.post("/v1/verbs/land", body)
        except HandoffdError as error:
            self.refused[error.code] += 1
            if error.code == "NOT_GREEN" and project.forbids(story):
                project.allow(story)
            elif error.code == "CHECKOUT_IN_THE_WAY" and project.whims[story].block:
                project.unblock(story)
            elif error.code not in _AGAIN and not isinstance(error, NoDaemon | NoAnswer):
                self.trouble.append(f"{project.root} {story} was not landed: {error.code} {error.message}")
            raise
        if not answer["checking"]:
            if not project.is_landed(story):
                self.trouble.append(f"{project.root} {story} is not landed, but: {answer['message']}")
            project.landed.add(story)

    def _decide(self, project: Project, story: Story, step: str | None) -> bool:
        given = _given(self._reader(), project, story)
        if given >= len(story.verbs) or story.verbs[given].step != step:
            self.trouble.append(
                f"{project.root} {story.name} waits at {step}; its script has no answer there"
            )
            return True
        verb = story.verbs[given]
        return self._give(project, verb.verb, **verb.arguments)

    def _give(self, project: Project, verb: str, **arguments: str) -> bool:
        try:
            self._house.client.post(f"/v1/verbs/{verb}", {"project": str(project.root), **arguments})
        except (HandoffdError, OSError):
            return False
        return True


def doomed(house: House) -> Iterator[str]:
    """Yield the dispatches whose executor hangs by now because its shim will be killed."""
    started: dict[tuple[str, str, str], list[str]] = {}
    roots = _roots(house)
    for line in _lines(house.starts):
        try:
            start = json.loads(line)
        except ValueError:  # its agent was killed while it wrote that, or writes it now
            continue
        started.setdefault((roots.get(start["dispatch"], ""), start["story"], start["step"]), []).append(
            start["dispatch"]
        )
    for project in house.projects:
        for story in project.stories[-1:]:
            counted = _counted(house, project, story)
            for step, acts in story.script.items():
                found = started.get((str(project.root), story.name, step), [])
                # Its act is known to the executor when it has counted its start.
                if found and acts[len(found) - 1 :][:1] == (LOST,) and counted.get(step) == len(found):
                    yield found[-1]


def _roots(house: House) -> dict[str, str]:
    with suppress(sqlite3.Error):
        db = house.reader()
        try:
            return dict(db.execute("SELECT id, project FROM dispatches"))
        finally:
            db.close()
    return {}


def _counted(house: House, project: Project, story: Story) -> dict[str, int]:
    folder = project.root
    if isinstance(project, Cloned):
        found = house.state_dir.glob(f"workspaces/*/{story.name}/{folder.name}")
        folder = next(found, folder)
    with suppress(OSError, ValueError):
        counts: dict[str, int] = json.loads((folder / ".ai/rehearsal-count.json").read_text())
        return counts
    return {}


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _tracks(db: sqlite3.Connection) -> list[tuple[str, str | None, str | None]]:
    return db.execute("SELECT project, step, status FROM tracks").fetchall()


def _unfinished(db: sqlite3.Connection) -> int:
    (count,) = db.execute("SELECT count(*) FROM effects WHERE outcome IS NULL").fetchone()
    return int(count)


def _untold(db: sqlite3.Connection) -> int:
    (count,) = db.execute("SELECT count(*) FROM deliveries WHERE outcome IS NULL").fetchone()
    return int(count)


def _is_shown(db: sqlite3.Connection, project: Project) -> bool:
    """Return whether STATE.json is what the journal says; true while there is none."""
    row = db.execute("SELECT digest FROM tracks WHERE project = ?", (str(project.root),)).fetchone()
    if row is None or row[0] is None:
        return True
    with suppress(OSError):
        return str(row[0]) == digest((project.root / ".ai/STATE.json").read_bytes())
    return False


def _started_at(db: sqlite3.Connection, project: Project, story: str) -> int | None:
    (seq,) = db.execute(
        "SELECT max(seq) FROM events WHERE project = ? AND kind = 'started' AND event ->> 'story' = ?",
        (str(project.root), story),
    ).fetchone()
    return None if seq is None else int(seq)


def _begun(db: sqlite3.Connection, project: Project) -> bool:
    return _started_at(db, project, project.stories[-1].name) is not None


def _given(db: sqlite3.Connection, project: Project, story: Story) -> int:
    marks = ", ".join("?" * len(VERBS))
    (count,) = db.execute(
        f"SELECT count(*) FROM events WHERE project = ? AND seq > ? AND kind IN ({marks})",
        (str(project.root), _started_at(db, project, story.name) or 0, *VERBS),
    ).fetchone()
    return int(count)
