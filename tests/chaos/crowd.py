"""Several stories of one project at once, in clones and landed by the daemon, which is killed meanwhile.

Two of each three stories write to the same file, so that some conflict and go back to their agents. What is
checked at the end is read by SQL and by git alone.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random

from tests.chaos.branches import look_at
from tests.chaos.clones import BASE, CHANGED, DRAFT, MINE, UNKNOWN, Cloned, Flavour, tested_at
from tests.chaos.house import House, Life, Zygote
from tests.chaos.judging import replayed, until_gone
from tests.chaos.kills import ALONE, OF_CLONES, OF_STORIES, Plan, Toll, plans
from tests.chaos.lives import Lives
from tests.chaos.processes import children
from tests.chaos.stories import Story
from tests.support.agents import shell_agent
from tests.support.house import HAND_OVER
from tests.support.repositories import git

from handoffd.errors import HandoffdError

STORIES = 12

_AGENT = f"""\
prompt=$(cat)
echo "$HANDOFFD_RUN $HANDOFFD_STORY $HANDOFFD_STEP" >> {{starts}}
sleep 0.$(( $(printf %d "'$HANDOFFD_RUN") % 3 ))
rm -f .git/index.lock
merge=$(printf '%s' "$prompt" | grep -o 'git merge [0-9a-f]*' | tail -n 1)
if test -n "$merge" && ! $merge -q; then
  sed -i '/^[<=>]/d' contested.txt
  git add contested.txt && git commit -qm "Take in what landed

Story: $HANDOFFD_STORY
Step: $HANDOFFD_STEP
Run: $HANDOFFD_RUN
Agent: yes"
fi
if test "$HANDOFFD_STEP" = update-memory; then
  echo "- $HANDOFFD_STORY $HANDOFFD_RUN" >> PROJECT_MEMORY.md
else
  mkdir -p work
  echo "$HANDOFFD_STEP $HANDOFFD_RUN" >> "work/$HANDOFFD_STORY.log"
  case $HANDOFFD_STORY in *[369]) ;; *) echo "$HANDOFFD_STORY" >> contested.txt;; esac
fi
{HAND_OVER}"""

_TESTS = """\
index=$(mktemp)
cp .git/index "$index"
tree=$(GIT_INDEX_FILE=$index git add -A . && GIT_INDEX_FILE=$index git write-tree) || exit 71
rm -f "$index"
grep -q '^[<=>]' contested.txt && exit 1
echo "$tree" >> {tested}
"""

_KNOWN = frozenset({"ALREADY_RUNNING", "ALREADY_COMPLETED"})

_RULES = {
    "steps": {
        "bdd": {"next_on_pass": "impl", "timeout_min": 5},
        "impl": {"next_on_pass": "update-memory", "timeout_min": 5, "max_attempts": 5},
        "update-memory": {"max_attempts": 5},
    }
}


class Crowd(House):
    """A house with one project, whose stories are worked on side by side."""

    def __init__(self, base: Path) -> None:
        base.mkdir(parents=True)
        self.ran = base / "ran.log"
        agent = shell_agent(base, _AGENT.replace("{starts}", shlex.quote(str(self.ran))))
        super().__init__(base, (), {"crowd": agent}, slots=4, flavours=())
        self.project = _project(base / "shop")
        self.projects.append(self.project)
        settings = json.loads(self.config.read_text())
        settings |= {"executor": "crowd", "projects": [str(self.project.root)]}
        self.config.write_text(json.dumps(settings))


def _project(root: Path) -> Cloned:
    project = Cloned(root, naps=False, wild=True, flavour=Flavour("step"))
    names = (f"US-{number:03}" for number in range(1, STORIES + 1))
    project.stories += [Story(name=name, script={}, attempts=(), verbs=()) for name in names]
    (root / ".ai").mkdir(parents=True)
    tests = root.parent / "tests.sh"
    tests.write_text(_TESTS.format(tested=shlex.quote(str(tested_at(root)))))
    settings = {
        "workspace": "clone",
        "stories": {"parallel": 3, "land": "auto", "overlap": "warn"},
        "test": {"command": ["/bin/sh", str(tests)]},
    }
    (root / ".ai/handoffd.yaml").write_text(json.dumps(settings))
    (root / ".ai/step-rules.yaml").write_text(json.dumps(_RULES))
    (root / ".gitignore").write_text(".ai/\n")
    (root / "PROJECT_CONTEXT.md").write_text("A project of many hands.\n")
    for name, text in ((DRAFT, "A draft.\n"), ("contested.txt", "Begun.\n")):
        (root / name).write_text(text)
    assert 0 == git(root, "init", "--quiet", "--initial-branch", BASE)
    assert 0 == git(root, "add", "-A")
    assert 0 == git(root, "commit", "--quiet", "-m", "person: begin")
    (root / DRAFT).write_text(CHANGED)
    (root / MINE).write_text(UNKNOWN)
    return project


# --- killing ------------------------------------------------------------------------------------------
class Raid(Lives):
    """The lives of the daemon of one crowd, and the one in which everything comes to its end."""

    def __init__(self, crowd: Crowd, zygote: Zygote) -> None:
        super().__init__(crowd, zygote)
        self.crowd = crowd
        self._asked = 0

    def run(self, deaths: Iterable[Plan], kills: int) -> None:
        """Kill daemon after daemon while stories are left to do, `kills` at most."""
        for plan in deaths:
            if self.toll.of_daemons >= kills or self._all_landed():
                break
            self.live(plan)
        self.drain()

    def slay(self, plan: Plan, life: Life) -> None:
        """Kill most of the daemons together with each git that they wait for, as a service is killed."""
        if plan.waits:
            life.signal(signal.SIGSTOP)  # it starts no other one meanwhile
            for pid in children(life.pid, "git"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        super().slay(plan, life)

    def is_over(self) -> bool:
        """Return whether all stories are landed, and their tracks have ended."""
        return self._all_landed() and _is_calm(self.crowd)

    def attend(self) -> None:
        """Ask for the next story, until all were asked for; then help one that could not be landed."""
        if not self.crowd.answers():
            return
        if self._asked < STORIES:
            self._asked += self._give("start", story=f"US-{self._asked + 1:03}")
            return
        with suppress(sqlite3.Error), closing(self.crowd.reader()) as db:
            stuck = db.execute(
                """SELECT body ->> '$.state.$state.document.story' FROM tracks
                WHERE body ->> '$.ledger.unlanded' IS NOT NULL"""
            ).fetchall()
            for (story,) in stuck:
                self._give("reopen", story=story, step="impl", note=f"git merge {self._head()}")

    def _give(self, verb: str, **arguments: str) -> bool:
        """Return whether a verb was taken, now or before."""
        body = {"project": str(self.crowd.project.root), **arguments}
        try:
            self.crowd.client.post(f"/v1/verbs/{verb}", body)
        except HandoffdError as error:
            return error.code in _KNOWN
        except OSError:
            return False
        return True

    def _head(self) -> str:
        words = ["git", "-C", str(self.crowd.project.root), "rev-parse", BASE]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    def _all_landed(self) -> bool:
        return all(self.crowd.project.is_landed(story.name) for story in self.crowd.project.stories)


def _is_calm(crowd: Crowd) -> bool:
    """Return whether no story has a track of its own any more, and no order is left to carry out."""
    with suppress(sqlite3.Error), closing(crowd.reader()) as db:
        (own,) = db.execute(
            "SELECT count(*) FROM tracks WHERE track <> 'main' AND step IS NOT NULL"
        ).fetchone()
        (left,) = db.execute("SELECT count(*) FROM effects WHERE outcome IS NULL").fetchone()
        return not own and not left
    return False


def raided(base: Path, seed: str, kills: int) -> tuple[Toll, list[str]]:
    """Raid crowd after crowd until `kills` daemons were killed; return who was, and what is wrong."""
    toll, complaints, chance = Toll(), list[str](), Random(seed)
    with Zygote() as zygote:
        while toll.of_daemons < kills and not complaints:
            crowd = Crowd(base / f"crowd-{toll.daemons}")
            raid = Raid(crowd, zygote)
            try:
                points = (*ALONE, *OF_STORIES, *OF_STORIES, *OF_CLONES)
                raid.run(plans(chance, (1, 1, 2, 3), 2.0, points), kills - toll.of_daemons)
                left = until_gone(crowd)
                complaints += [*raid.faults, *broken(crowd), *map(str, replayed(crowd)), *left]
            finally:
                raid.abandon()
            toll.add(raid.toll)
            if not complaints:
                shutil.rmtree(crowd.base)
    return toll, complaints


# --- checking -----------------------------------------------------------------------------------------
def broken(crowd: Crowd) -> Iterator[str]:
    """Yield each promise that was not kept."""
    with closing(crowd.reader()) as db:
        rows = db.execute("SELECT id, story, step, result FROM dispatches ORDER BY seq, id").fetchall()
        landings = db.execute("SELECT event ->> 'story' FROM events WHERE kind = 'landed'").fetchall()
    ran = [line.split() for line in crowd.ran.read_text().splitlines()]
    known = {name: [story, step] for name, story, step, _ in rows}
    runs = Counter(run for run, *_ in ran)
    yield from (f"{run} was started {times} times" for run, times in runs.items() if times > 1)
    yield from (f"{run} ran as {what}" for run, *what in ran if known.get(run) != what)
    for name, story, step, result in rows:
        if result is None:
            yield f"the result of {name} ({story} {step}) was lost"
        elif result == "pass" and name not in runs:
            yield f"{name} ({story} {step}) passed and never ran"
    for (story,), times in Counter(landings).items():
        if times > 1:
            yield f"{story} was landed {times} times"
    # What update-memory adds is in PROJECT_MEMORY.md, where the lines of all stories are merged.
    passed = [row[:2] for row in rows if row[3] == "pass" and row[2] != "update-memory"]
    yield from _told_by_git(crowd, passed)
    yield from (f"a state is left: {path.name}" for path in crowd.project.root.glob(".ai/states/*.json"))


def _told_by_git(crowd: Crowd, passed: list[tuple[str, str]]) -> Iterator[str]:
    """Yield what git says otherwise than the journal: of each story, its runs in their order."""
    found = look_at(crowd.project, crowd.state_dir)
    yield from found.trouble
    yield from (f"{one} is on {BASE} untested" for one in found.base if one.tree not in found.tested)
    for story in crowd.project.stories:
        log = [line.partition(" ")[2] for line in found.landed[story.name]]
        due = [run for run, mine in passed if mine == story.name]
        if [run for run in log if run in due] != due or len({*log}) != len(log):
            yield f"{story.name} has {log} on {BASE}, and {due} has passed"
