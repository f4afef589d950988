"""What else may happen to a daemon: stopped, frozen, started twice, spoken to at the wrong moment.

Real processes throughout, and the same checker in the end: every story went as scripted, nothing was
started twice, nothing was lost, and no process is left.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest
from tests.chaos.driver import Campaign
from tests.chaos.house import House, Life, Zygote
from tests.chaos.judging import judged
from tests.chaos.projects import Project
from tests.chaos.stories import Attempt, Story
from tests.support.eventually import eventually_sync

WILD = (3, 7, 11)
"""Kinds of projects in which every act passes."""
MANY = 20
RULES = {"steps": {"bdd": {"next_on_pass": "done"}}}
"""A story of one step, for scenarios with many projects."""
GATED = 'until test -e .ai/release; do sleep 0.05; done; exec "$0" -I -m handoffd.rehearsal'
"""An executor that begins after the test releases it."""


class Stage(Campaign):
    """A house with its person, for scenes in which the test says what happens to the daemon."""

    def begin(self, **order: object) -> Life:
        """Start a daemon."""
        return self._zygote.bear(self.house.order(**order))

    def no_more(self) -> None:
        """Let the person start no further story."""
        self._person.wants_more = False

    def hold_verbs(self, hold: bool = True) -> None:
        """Stop the person's answers to waiting tracks, or continue them."""
        self._person.says_nothing = hold

    def until(self, condition: Callable[[], bool], life: Life, within_s: float = 300) -> None:
        """Let the person answer until the condition holds. The daemon must live until then."""

        def reached() -> bool:
            assert not life.over, f"the daemon ended: {self.house.log.read_text()[-3000:]}"
            self.attend()
            return condition()

        eventually_sync(reached, within_s=within_s)

    def ends_well(self) -> None:
        """Let every story end, and check everything."""
        self.run((), lambda _: True)
        found = judged("scenario", self)
        assert 0 == found.broken, found.complaint()


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder with a short path: there are sockets below it."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    """What daemons are born from."""
    with Zygote() as born:
        yield born


@pytest.fixture
def stage(base: Path, zygote: Zygote) -> Iterator[Stage]:
    """Lend a house with three projects."""
    made = Stage(House(base / "house", WILD), zygote, Random("scenario"))
    yield made
    made.abandon()


def flying(house: House) -> list[str]:
    """Return the dispatches that are in flight and whose executor has started."""
    with suppress(sqlite3.Error), closing(house.reader()) as db:
        rows = db.execute("SELECT id FROM dispatches WHERE result IS NULL").fetchall()
        return [name for (name,) in rows if (house.runs / name / "start.json").exists()]
    return []


def waits_for_review(house: House) -> bool:
    """Return whether every project is at its review."""
    with suppress(sqlite3.Error), closing(house.reader()) as db:
        rows = db.execute("SELECT step, status FROM tracks").fetchall()
        return [("review", "needs_human")] * len(house.projects) == rows
    return False


def test_asked_to_end_it_ends_and_the_next_one_goes_on(stage: Stage) -> None:
    """By SIGTERM, in the middle of the work, several times."""
    for _ in range(4):
        life = stage.begin()
        stage.until(lambda: bool(flying(stage.house)) and stage.house.answers(), life)
        life.signal(signal.SIGTERM)
        assert 0 == life.wait(60).status

    stage.ends_well()


def test_a_frozen_daemon_misses_nothing(stage: Stage) -> None:
    """Executors end while it is stopped; it records each end afterwards."""
    life = stage.begin()
    for _ in range(4):
        stage.until(lambda: bool(flying(stage.house)), life)
        life.signal(signal.SIGSTOP)
        running = flying(stage.house)
        eventually_sync(
            lambda: all((stage.house.runs / name / "exit.json").exists() for name in running),  # noqa: B023
            within_s=60,
        )
        life.signal(signal.SIGCONT)
        stage.until(lambda: not set(running) & set(flying(stage.house)), life)  # noqa: B023
    life.signal(signal.SIGKILL)
    life.wait(60)

    stage.ends_well()


def test_of_two_daemons_on_one_state_directory_one_works(stage: Stage, base: Path) -> None:
    """The other one ends, and says who was there before it."""
    logs = [base / "one.log", base / "two.log"]
    with Zygote() as other:
        lives = [stage.begin(log=str(logs[0])), other.bear(stage.house.order(log=str(logs[1])))]
        eventually_sync(lambda: any(life.over for life in lives), within_s=60)
        (loser,) = (number for number, life in enumerate(lives) if life.over)
        stage.until(lambda: bool(flying(stage.house)), lives[1 - loser])
        lives[1 - loser].signal(signal.SIGKILL)
        lives[1 - loser].wait(60)

        said = logs[loser].read_text()
        assert (1, True, False) == (
            lives[loser].wait(60).status,
            "is in use by process" in said,
            "Traceback" in said,
        )
        stage.ends_well()


@pytest.mark.parametrize("scene", ["starting", "ending", "killed"])
def test_a_verb_that_meets_no_daemon_or_half_a_one_is_given_once(stage: Stage, scene: str) -> None:
    """Approved by the command line while the daemon comes or goes: applied once, or refused clearly."""
    stage.hold_verbs()
    life = stage.begin()
    stage.until(lambda: waits_for_review(stage.house), life)
    match scene:
        case "starting":
            life.signal(signal.SIGKILL)
            life.wait(60)
            said = approvals(stage.house)
            life = stage.begin()
        case "ending":
            said = approvals(stage.house)
            life.signal(signal.SIGTERM)
        case _:
            said = approvals(stage.house)
            life.signal(signal.SIGKILL)
    ended = [(process.communicate(timeout=60), process.returncode) for process in said]
    life.signal(signal.SIGKILL)
    life.wait(60)

    approved = verbs_of(stage.house, "approved")
    for project, ((_, complaint), code) in zip(stage.house.projects, ended, strict=True):
        times = approved.count(str(project.root))
        # Without an answer the caller cannot know whether the verb was carried out; an answer must be true.
        assert (times, code) in {(1, 0), (0, 1), (1, 1)}, complaint
        assert (code == 0) or ("next: handoffd" in complaint and "Traceback" not in complaint), complaint
        assert (times, code) != (1, 1) or "before it answered" in complaint, complaint
    stage.hold_verbs(False)
    stage.ends_well()


def approvals(house: House) -> list[subprocess.Popen[str]]:
    """Begin a command that approves for each project."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(house.base),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return [
        subprocess.Popen(
            [sys.executable, "-m", "handoffd", "--config", str(house.config), "approve", str(project.root)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for project in house.projects
    ]  # fmt: skip


def verbs_of(house: House, kind: str) -> list[str]:
    """Return the project of each verb of a kind that was recorded."""
    with closing(house.reader()) as db:
        return [root for (root,) in db.execute("SELECT project FROM events WHERE kind = ?", (kind,))]


def test_a_restart_adopts_many_running_executors(base: Path, zygote: Zygote) -> None:
    """Each under its old process, and each one's exit code is known in the end."""
    executors = {"rehearsal": {"argv": ["/bin/sh", "-c", GATED, sys.executable]}}
    house = House(base / "house", [kind * 4 + 3 for kind in range(MANY)], executors, slots=MANY)
    for project in house.projects:
        tell_one_step(project)
    stage = Stage(house, zygote, Random("many"))
    stage.no_more()
    try:
        life = stage.begin()
        stage.until(lambda: MANY == len(flying(house)), life)
        shims = {name: os.readlink(house.runs / name / "claim") for name in flying(house)}
        life.signal(signal.SIGKILL)
        life.wait(60)

        life = stage.begin()
        stage.until(lambda: house.answers() and MANY == adopted(house), life)
        assert shims == {name: os.readlink(house.runs / name / "claim") for name in flying(house)}
        for project in house.projects:
            (project.root / ".ai/release").touch()
        stage.until(lambda: not flying(house), life)
        life.signal(signal.SIGKILL)
        life.wait(60)
        stage.ends_well()
    finally:
        stage.abandon()


def test_what_was_handed_over_without_a_daemon_is_found(base: Path, zygote: Zygote) -> None:
    """An agent that does not leave after its work is ended by the next daemon, long before its time."""
    house = House(base / "house", [3])
    (project,) = house.projects
    tell_one_step(project, "linger")
    stage = Stage(house, zygote, Random("linger"))
    stage.no_more()
    try:
        life = stage.begin()
        stage.until(lambda: bool(flying(house)), life)
        life.signal(signal.SIGKILL)
        life.wait(60)
        eventually_sync((project.root / ".ai/executor-result").exists, within_s=60)

        stage.ends_well()
    finally:
        stage.abandon()


def tell_one_step(project: Project, act: str = "pass") -> None:
    """Have a project tell a story of one step, which passes by `act`."""
    (project.root / ".ai/step-rules.yaml").write_text(json.dumps(RULES))
    story = Story("US-001", {"bdd": (act,)}, (Attempt("bdd", 1, act, "pass"),), ())
    (project.root / ".ai/rehearsal.json").write_text(json.dumps(story.rehearsal()))
    project.stories.append(story)


def adopted(house: House) -> int:
    """Return how many executors the daemon says it looks after."""
    projects = house.client.get("/v1/status")["projects"]
    return sum(track["pid"] is not None for project in projects for track in project["tracks"])
