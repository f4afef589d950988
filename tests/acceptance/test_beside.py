"""Several stories of one repository at once, under a real daemon and in the sandbox, landed by it."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from tests.acceptance.test_clones import told
from tests.support.agents import project_at, shell_agent
from tests.support.commands import typed
from tests.support.daemon import Daemon, Json, running
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER
from tests.support.repositories import git

AGENT = f"""\
prompt=$(cat)
rm -f .git/index.lock
touch {{base}}/at-$HANDOFFD_STORY-$HANDOFFD_STEP
until test -e {{base}}/go; do sleep 0.05; done
merge=$(printf '%s' "$prompt" | grep -o 'git merge [0-9a-f]*' | tail -n 1)
if test -n "$merge"; then
  echo "$HANDOFFD_STORY" >> {{base}}/merged
  if ! $merge -q; then
    sed -i '/^[<=>]/d' contested.txt
    git add contested.txt && git commit -qm 'Take in main'
  fi
fi
case $HANDOFFD_STORY-$HANDOFFD_STEP in
  US-001-impl|US-002-impl) test -n "$merge" || echo "$HANDOFFD_STORY" > contested.txt;;
  US-003-bdd|US-004-bdd) mkdir -p docs && echo 'Changes shared.py.' > docs/$HANDOFFD_STORY.md;;
  US-003-impl|US-004-impl) echo "# $HANDOFFD_STORY" >> shared.py;;
esac
test "$HANDOFFD_STEP" = bdd || echo "- $HANDOFFD_STORY" >> .ai/history.md
echo "$HANDOFFD_STEP" >> "$HANDOFFD_STORY.txt"
{HAND_OVER}"""
"""Two stories write to one file, and meet at their landing; two others mean one file by their papers."""

TABLE = """\
steps:
  bdd: {next_on_pass: impl, timeout_min: 5}
  impl: {next_on_pass: done, timeout_min: 5}
"""
TESTS = "! grep -qs '^[<=>]' contested.txt && python3 -c 'import shared'\n"
STORIES = tuple(f"US-00{number}" for number in range(1, 5))


def made(base: Path) -> Path:
    """Return a project of four stories at once, with a person's change and new file."""
    (base / "tests.sh").write_text(TESTS)
    settings = {
        "workspace": "clone",
        "stories": {"parallel": 4, "land": "auto"},
        "test": {"command": ["/bin/sh", str(base / "tests.sh")]},
    }
    project = project_at(base / "shop", TABLE, json.dumps(settings))
    for name, text in (
        ("draft.txt", "begun\n"),
        ("shared.py", "# begun\n"),
        (".gitignore", "__pycache__\n"),
    ):
        (project / name).write_text(text)
    return project


def commit(project: Path) -> None:
    """Make a repository of a project, of all that git takes."""
    assert 0 == git(project, "init", "--quiet", "--initial-branch", "main")
    assert 0 == git(project, "add", "-A")
    assert 0 == git(project, "commit", "--quiet", "-m", "Begin")


def tree_of(project: Path) -> dict[str, bytes]:
    """Return every file of a person's checkout that git does not ignore, with the index and HEAD."""
    listed = told(project, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = [*listed.split("\0")[:-1], ".git/index", ".git/HEAD"]
    return {name: (project / name).read_bytes() for name in names}


def green(folder: Path, project: Path, *tests: str) -> Iterator[tuple[str, bool]]:
    """Yield each commit that `main` has ended at, and whether its tests pass there."""
    for commit in told(project, "log", "--walk-reflogs", "--format=%H", "main").split():
        packed = subprocess.run(["git", "-C", project, "archive", commit], capture_output=True, check=True)
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as files:
            files.extractall(folder / commit, filter="data")
        done = subprocess.run(tests, cwd=folder / commit, check=False)
        yield commit, done.returncode == 0


def test_four_stories_of_one_repository_at_once(tmp_path: Path) -> None:
    """All land on a branch that is green after each; a person's files stay as they are on another one."""

    def settings(daemon: Daemon) -> Json:
        agent = shell_agent(tmp_path, AGENT.format(base=tmp_path))
        return {"executor": "agent", "executors": {"agent": agent}, "execute": {"slots": 4}}

    project = made(tmp_path)
    with running(tmp_path, settings) as daemon:
        assert "initialised" == daemon.verb("init", project)["type"]
        commit(project)
        daemon.begin(project, STORIES[0])
        for story in STORIES[1:]:
            assert "accepted" == daemon.verb("start", project, story=story)["type"]
        eventually_sync(lambda: all((tmp_path / f"at-{story}-bdd").exists() for story in STORIES))
        assert 0 == git(project, "switch", "--quiet", "--create", "mine")
        (project / "draft.txt").write_text("what I am at\n")
        (project / "new.txt").write_text("not for git\n")
        git(project, "add", "draft.txt")
        before = tree_of(project)
        (tmp_path / "go").touch()
        landed = [f"{story}.txt" for story in STORIES]
        eventually_sync(
            lambda: {*landed} <= {*told(project, "ls-tree", "--name-only", "main").split()}, within_s=120
        )
        eventually_sync(lambda: ["main"] == [track["track"] for track in daemon.view(project)["tracks"]])
        shown = typed(daemon, "status", str(project), "--json").json

    assert before == tree_of(project)
    assert [] == [*project.glob(".ai/states/*.json")]
    checked = green(tmp_path / "checked", project, "/bin/sh", str(tmp_path / "tests.sh"))
    assert not [commit for commit, passes in checked if not passes]
    assert {"US-001", "US-002"} <= {*told(project, "show", "main:contested.txt").split()}
    shared = told(project, "show", "main:shared.py").splitlines()
    assert sorted(["# begun", "# US-003", "# US-004"]) == sorted(shared)
    merged = (tmp_path / "merged").read_text().split()
    assert {"US-001", "US-002"} & {*merged}  # the one that came later met a conflict
    assert {"US-003", "US-004"} & {*merged}  # the one that waited took in the other's first
    for story in STORIES:
        touched = told(
            project, "log", "--no-merges", "--format=", "--name-only", f"--grep=Story: {story}", "main"
        )
        others = {f"{other}.txt" for other in STORIES if other != story}
        assert not others & {*touched.split()}
    assert {*STORIES} <= {*(project / ".ai/history.md").read_text().split()}
    assert "done" == shown["projects"][0]["tracks"][0]["step"]
