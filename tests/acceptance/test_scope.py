"""What a step has changed is found out under a real daemon, and held against what it may write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.agents import project_at, shell_agent, state_of
from tests.support.daemon import Daemon, Json, running
from tests.support.house import HAND_OVER
from tests.support.repositories import git, said

ASTRAY = f"""\
cat > /dev/null
test -e src/a.txt && exit 1
mkdir -p src build
echo done > src/a.txt
echo object > build/out.o
echo more >> docs/tracked.md
echo new > docs/new.md
rm docs/gone.md
mv docs/old.md src/old.md
chmod +x docs/mode.sh
ln -s /etc/hostname docs/link
{HAND_OVER}"""
"""Does its work in `src`, builds something that is ignored, and changes what it may not in every way."""

STRAYS = ["docs/gone.md", "docs/link", "docs/mode.sh", "docs/new.md", "docs/old.md", "docs/tracked.md"]
WORK = ["src/a.txt", "src/old.md"]
HONEST = f"""\
cat > /dev/null
mkdir -p src build src/__pycache__ docs/__pycache__
echo done > src/a.txt
echo object > build/out.o
echo code > docs/__pycache__/conf.pyc
touch docs/tracked.md
{HAND_OVER}"""


def made(base: Path, mode: str, kind: str) -> Path:
    """Return a project with one step, that may write `src`. `kind`: root or clone, or plain without git."""
    rule = {"next_on_pass": "done", "timeout_min": 5, "claude_writes": ["src/**"]}
    settings = {"workspace": {"kind": "clone" if kind == "clone" else "root"}}
    table = {"enforce_writes": mode, "steps": {"bdd": rule}}
    project = project_at(base / "shop", json.dumps(table), json.dumps(settings))
    (project / "docs").mkdir()
    for name in ("tracked.md", "gone.md", "old.md", "mode.sh"):
        (project / "docs" / name).write_text(f"{name}\n")
    (project / ".gitignore").write_text("/.ai\n/build\n")
    if kind != "plain":
        assert 0 == git(project, "init", "--quiet", "--initial-branch", "main")
        assert 0 == git(project, "add", "-A")
        assert 0 == git(project, "commit", "--quiet", "-m", "Begin")
    return project


def agent(base: Path, script: str) -> Json:
    """Return settings with an executor that runs a script."""
    return {"executor": "agent", "executors": {"agent": shell_agent(base, script)}}


def place_of(daemon: Daemon, project: Path, kind: str) -> Path:
    """Return the folder where the story works."""
    if kind != "clone":
        return project
    (found,) = (daemon.state_dir / "workspaces").glob("*/US-001/shop")
    return found


def wrote(daemon: Daemon, project: Path) -> Json:
    """Return what was found of the attempt that ended last."""
    (body,) = daemon.rows(
        "SELECT event FROM events WHERE kind = 'executor_exited' ORDER BY seq DESC LIMIT 1"
    )[0]
    found: Json = json.loads(body)["wrote"]
    return found


KINDS = pytest.mark.parametrize("kind", ["root", "clone", "plain"])


@KINDS
def test_a_step_that_writes_elsewhere_is_reported(tmp_path: Path, kind: str) -> None:
    """By default the story goes on; what the agent claims of its files does not count."""
    project = made(tmp_path, "warn", kind)
    with running(tmp_path, agent(tmp_path, ASTRAY)) as daemon:
        daemon.verb("start", project, story="US-001")
        daemon.wait_at(project, "done", "pass")
        found = wrote(daemon, project)
        assert (sorted([*STRAYS, *WORK]), STRAYS) == (sorted(found["files"]), sorted(found["outside"]))
        assert (kind != "clone") == found["shared"]


@KINDS
def test_a_step_that_writes_elsewhere_fails(tmp_path: Path, kind: str) -> None:
    """With the reason that the step table routes, here to a person; nothing is changed."""
    project = made(tmp_path, "fail", kind)
    with running(tmp_path, agent(tmp_path, ASTRAY)) as daemon:
        daemon.verb("start", project, story="US-001")
        daemon.wait_at(project, "bdd", "needs_human")
        state = state_of(project)
        assert "scope_warning" == state["reason"]
        assert sorted([*STRAYS, *WORK]) == sorted(state["files_changed"])
        assert "6 files changed that bdd may not write" in state["last_error"]
        assert (place_of(daemon, project, kind) / "docs/new.md").exists()


@pytest.mark.parametrize("mode", ["warn", "fail", "revert"])
@KINDS
def test_a_step_that_writes_where_it_may_passes(tmp_path: Path, kind: str, mode: str) -> None:
    """What is ignored does not count, nor do the caches of tools, nor a file that was touched only."""
    project = made(tmp_path, mode, kind)
    with running(tmp_path, agent(tmp_path, HONEST)) as daemon:
        daemon.verb("start", project, story="US-001")
        daemon.wait_at(project, "done", "pass")
        found = wrote(daemon, project)
        assert ("src/a.txt" in found["files"], []) == (True, found["outside"])


@pytest.mark.parametrize("kind", ["root", "clone"])
def test_what_a_step_writes_elsewhere_is_put_back(tmp_path: Path, kind: str) -> None:
    """Only that, and before the step is checked; what was there is kept, and a notice says where."""
    project = made(tmp_path, "revert", kind)
    table = json.loads((project / ".ai/step-rules.yaml").read_text())
    table["steps"]["bdd"]["post_check"] = "test -e src/old.md && ! test -e docs/new.md && test -e docs/old.md"
    (project / ".ai/step-rules.yaml").write_text(json.dumps(table))
    with running(tmp_path, agent(tmp_path, ASTRAY)) as daemon:
        daemon.verb("start", project, story="US-001")
        daemon.wait_at(project, "done", "pass")
        place, found = place_of(daemon, project, kind), wrote(daemon, project)

        assert (STRAYS, [], WORK) == (sorted(found["reverted"]), found["outside"], sorted(found["files"]))
        assert ["gone.md", "mode.sh", "old.md", "tracked.md"] == sorted(
            one.name for one in (place / "docs").iterdir()
        )
        assert not (place / "docs/mode.sh").stat().st_mode & 0o100
        assert "tracked.md\n" == (place / "docs/tracked.md").read_text()
        assert "object\n" == (place / "build/out.o").read_text()
        kept = found["kept"]
        assert "new" == said(place, "show", f"{kept}:docs/new.md")
        (told,) = [one for one in daemon.told(project) if one["kind"] == "warning"]
        assert told["text"].startswith("6 files were put back that bdd may not write: ")
        assert kept in told["why"]


def test_without_a_repository_nothing_can_be_put_back(tmp_path: Path) -> None:
    """A person is asked, and told which files it is about."""
    project = made(tmp_path, "revert", "plain")
    with running(tmp_path, agent(tmp_path, ASTRAY)) as daemon:
        daemon.verb("start", project, story="US-001")
        daemon.wait_at(project, "bdd", "needs_human")
        assert (
            "nothing was put back: there is no snapshot of them (enforce_writes: revert)"
            in state_of(project)["last_error"]
        )
        assert (project / "docs/new.md").exists()
