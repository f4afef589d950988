"""Projects whose stories work in clones: who commits there, what their tests say, and whose files are theirs.

Each attempt adds a line to the log of its story before anything else, or to the memory of the project, so
that a tree of git tells by itself whose work it holds. The tests read these logs, and write down each tree on
which they have passed.
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.chaos.projects import Project
from tests.chaos.stories import ROUGH, Odds, Story, rules
from tests.support.eventually import eventually_sync
from tests.support.repositories import git

EXECUTOR = "in-a-clone"
DRAFT, MINE = "draft.txt", "mine.txt"
"""Files of a person that are never committed: one that git keeps, changed, and one that it does not know."""
CHANGED, UNKNOWN = "What I am at.\n", "Not for git.\n"
BLOCKING = "Mine.\n"
BASE, ASTRAY = "main", "astray.txt"
"""The branch that stories land on, and what an agent writes though its step may not: it is put back."""

_AGENT = """\
test ! -e setup-wanted || test -e ready || exit 70
mkdir -p work
if test "$HANDOFFD_STEP" = update-memory; then
  echo "$HANDOFFD_STORY: $HANDOFFD_STEP $HANDOFFD_RUN" >> PROJECT_MEMORY.md
else
  echo "$HANDOFFD_STEP $HANDOFFD_RUN" >> "work/$HANDOFFD_STORY.log"
fi
test "$HANDOFFD_STEP" = bdd && test ! -e agent-commits && echo "$HANDOFFD_RUN" > astray.txt
test -e agent-commits || exec "$0" -I -m handoffd.rehearsal
keep() {
  rm -f .git/index.lock
  git add -A . && git -c user.name=agent -c user.email=agent@b commit --quiet --allow-empty -F - << END
agent: $HANDOFFD_STEP

Story: $HANDOFFD_STORY
Step: $HANDOFFD_STEP
Run: $HANDOFFD_RUN
Agent: yes
END
}
keep
"$0" -I -m handoffd.rehearsal
code=$?
test $code -ne 0 || keep
test $code -le 128 || kill -$((code - 128)) $$
exit $code
"""

# What is old passes; what the scaffold of a story adds fails until there was an impl, or while a person
# has a veto. The tree is that of the files themselves, whatever the repository around them says.
_TESTS = """\
echo "$HANDOFFD_RUN" >> {checks}
test ! -e setup-wanted || test -e ready || exit 70
case $PWD in *landing*) sleep 0.3;; esac
count=1 bad=0
echo ok 1 - old
for log in work/*.log; do
  name=${{log#work/}} name=${{name%.log}}
  test -e veto/$name && grep -qs '^impl ' $log && count=$((count + 1)) bad=1 &&
    echo "not ok $count - no veto against $name"
  grep -qs '^scaffold ' $log || continue
  count=$((count + 1))
  if grep -qs '^impl ' $log; then echo "ok $count - $name"; else bad=1; echo "not ok $count - $name"; fi
done
index=$(mktemp)
cp .git/index "$index"
tree=$(GIT_INDEX_FILE=$index git add -A . && GIT_INDEX_FILE=$index git write-tree) || exit 71
rm -f "$index"
test $bad = 1 || echo "$tree" >> {tested}
echo 1..$count
"""

_SETUP = """\
echo "$HANDOFFD_RUN" >> {checks}
pwd >> {set_up}
sleep 0.2
touch ready
"""

_IGNORED = ".ai/*\n!.ai/rehearsal.json\n/ready\n"


@dataclass(frozen=True, slots=True)
class Flavour:
    """How the stories of a project work: who commits, and whether a clone is set up first."""

    commit: str
    setup: bool = False
    naps: bool = False
    wild: bool = False


FLAVOURS = (
    Flavour("step", naps=True),
    Flavour("story"),
    Flavour("agent"),
    Flavour("step", setup=True, wild=True),
)


@dataclass(frozen=True, slots=True)
class Whim:
    """What the person of a project does around one landing."""

    note: bool
    """Commits something on the branch while the story is in flight."""
    veto: bool
    """Has the merged files fail their tests at first."""
    block: bool
    """Has a file where the story has one."""
    race_s: float | None
    """Commits something so long after the landing was asked for."""


@dataclass(slots=True)
class Cloned(Project):
    """One root whose stories work in clones, and are landed."""

    flavour: Flavour = FLAVOURS[0]
    whims: dict[str, Whim] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set)
    landed: set[str] = field(default_factory=set)

    def next_story(self, chance: Random) -> Story:
        """Return one more story, its script committed where its clone will be made from."""
        story = Project.next_story(self, chance)
        what = f"script of {story.name}"
        assert eventually_sync(lambda: self.commit(what, ".ai/rehearsal.json"))
        self.whims[story.name] = Whim(
            note=chance.random() < 0.5,
            veto=chance.random() < 0.3,
            block=chance.random() < 0.2,
            race_s=chance.uniform(0.0, 0.6) if chance.random() < 0.4 else None,
        )
        return story

    def is_landed(self, story: str) -> bool:
        """Return whether the branch that people work on has a whole story, as git tells it."""
        return 0 == git(self.root, "merge-base", "--is-ancestor", f"handoffd/{story}", BASE)

    # --- what a person commits -------------------------------------------------------------------
    def commit(self, what: str, *paths: str) -> bool:
        """Commit just these paths; return False where a landing has the index or the branch."""
        if git(self.root, "add", "--", *paths) != 0:
            return False
        words = ("commit", "--quiet", "--allow-empty", "-m", f"person: {what}")  # two scripts may be alike
        return 0 == git(self.root, *words, "--", *paths)

    def note(self, name: str) -> bool:
        """Commit a file of one's own, beside what the agents do; a landing may be under way."""
        path = self.root / "notes" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{name}\n")
        return eventually_sync(lambda: self.commit(name, f"notes/{name}"))

    def forbid(self, story: str) -> bool:
        """Have the tests fail on this branch with that story."""
        path = self.root / "veto" / story
        path.parent.mkdir(exist_ok=True)
        path.write_text("No.\n")
        return self.commit(f"veto {story}", f"veto/{story}")

    def allow(self, story: str) -> bool:
        """Take that back."""
        if git(self.root, "rm", "--quiet", "--ignore-unmatch", "--", f"veto/{story}") != 0:
            return False
        return 0 == git(self.root, "commit", "--quiet", "-m", f"person: no veto {story}")

    def block(self, story: str) -> bool:
        """Put a file where the story has one."""
        path = self._log_of(story)
        path.parent.mkdir(exist_ok=True)
        path.write_text(BLOCKING)
        return True

    def unblock(self, story: str) -> None:
        """Remove that file, and never the story's own."""
        path = self._log_of(story)
        if path.exists() and path.read_text() == BLOCKING:
            path.unlink()

    def _log_of(self, story: str) -> Path:
        return self.root / "work" / f"{story}.log"

    def forbids(self, story: str) -> bool:
        """Return whether the branch has a veto."""
        return 0 == git(self.root, "cat-file", "-e", f"{BASE}:veto/{story}")


def install(base: Path) -> dict[str, object]:
    """Write the agent below `base`; return it as an executor of the settings."""
    script = base / "clone-agent.sh"
    script.write_text(_AGENT)
    argv = ["/bin/sh", "-c", f". {shlex.quote(str(script))}", sys.executable]
    return {"extends": "rehearsal", "argv": argv}


def make_cloned(root: Path, flavour: Flavour, checks: Path, odds: Odds = ROUGH) -> Cloned:
    """Return a new project at `root`, a repository with one commit and with files of a person's."""
    project = Cloned(root, naps=flavour.naps, wild=flavour.wild, odds=odds, flavour=flavour)
    folder = root / ".ai"
    folder.mkdir(parents=True)
    paths = {"checks": checks, "tested": tested_at(root), "set_up": set_up_at(root)}
    logs = {name: shlex.quote(str(path)) for name, path in paths.items()}
    for name, text in (("tests", _TESTS), ("setup", _SETUP)):
        (root.parent / f"{root.name}-{name}.sh").write_text(text.format(**logs))
    settings: dict[str, object] = {
        "executor": EXECUTOR,
        "commit": flavour.commit,
        "test": {"command": ["/bin/sh", str(root.parent / f"{root.name}-tests.sh")], "report": "tap"},
        "workspace": {"kind": "clone"},
    }
    if flavour.setup:
        (root / "setup-wanted").touch()
        command = ["/bin/sh", str(root.parent / f"{root.name}-setup.sh")]
        settings["workspace"] = {"kind": "clone", "setup": command}
    if flavour.commit == "agent":
        (root / "agent-commits").touch()
    table = rules(naps=project.naps)
    table["steps"]["bdd"] |= {"enforce_writes": "revert", "claude_writes": ["**", f"!{ASTRAY}"]}
    (folder / "step-rules.yaml").write_text(json.dumps(table))
    (folder / "handoffd.yaml").write_text(json.dumps(settings))
    (root / "PROJECT_CONTEXT.md").write_text("A project in which whatever can be killed is killed.\n")
    (root / ".gitignore").write_text(_IGNORED)
    (root / DRAFT).write_text("A draft.\n")
    assert 0 == git(root, "init", "--quiet", "--initial-branch", BASE)
    assert 0 == git(root, "add", "-A")
    assert 0 == git(root, "commit", "--quiet", "-m", "person: begin")
    (root / DRAFT).write_text(CHANGED)
    (root / MINE).write_text(UNKNOWN)
    return project


def tested_at(root: Path) -> Path:
    """Return the file that names each tree on which the tests of a project have passed."""
    return root.parent / f"{root.name}-tested.log"


def set_up_at(root: Path) -> Path:
    """Return the file that names each clone of a project that was set up."""
    return root.parent / f"{root.name}-set-up.log"
