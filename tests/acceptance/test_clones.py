"""Stories that work in clones, under a real daemon: killed, waited for, refused, landed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
from tests.support.agents import project_at, shell_agent
from tests.support.commands import environment_of, started, typed
from tests.support.daemon import Daemon, Json, running
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER
from tests.support.repositories import git

AGENT = f"""\
cat > /dev/null
echo "$HANDOFFD_STEP" >> "$HANDOFFD_STORY.txt"
if test "$HANDOFFD_STEP" = impl; then
  echo "from $HANDOFFD_STORY" > contested.txt
  HANDOFFD_RUNTIME_DIR={{run}} {{python}} -m handoffd land {{project}} --story US-001 > {{base}}/answer 2>&1
fi
until test -e {{base}}/$HANDOFFD_STORY-$HANDOFFD_STEP; do sleep 0.05; done
{HAND_OVER}"""
"""Adds a line to a file of its story; hands over when the test lets its step go. At impl it tries to land."""

TABLE = """\
steps:
  bdd: {next_on_pass: review, timeout_min: 5}
  review: {next_on_pass: impl}
  impl: {next_on_pass: done, timeout_min: 5}
"""

SETUP = """\
echo "$HANDOFFD_RUN" >> {base}/set-up
until test -e {base}/go; do sleep 0.05; done
if test -e {base}/broken; then echo 'no package mirror' >&2; exit 3; fi
touch ready
"""

TESTS = """\
test -e ready || exit 3
echo run >> {base}/tests
if test -e {base}/move; then
  rm {base}/move
  sh {base}/person.sh
fi
test ! -e {base}/red
"""
"""What a person does while they run is in `person.sh`."""


def made(base: Path) -> Path:
    """Return a project whose stories work in clones: a repository, with a person's change and new file."""
    for name, text in (("setup", SETUP), ("tests", TESTS)):
        (base / f"{name}.sh").write_text(text.format(base=base))
    settings = {
        "workspace": {"kind": "clone", "setup": ["/bin/sh", str(base / "setup.sh")]},
        "test": {"command": ["/bin/sh", str(base / "tests.sh")]},
    }
    project = project_at(base / "shop", TABLE, json.dumps(settings))
    for name in ("contested.txt", "draft.txt"):
        (project / name).write_text("from the beginning\n")
    (project / ".gitignore").write_text("/.ai\n/ready\n")
    assert 0 == git(project, "init", "--quiet", "--initial-branch", "main")
    assert 0 == git(project, "add", "-A")
    assert 0 == git(project, "commit", "--quiet", "-m", "Begin")
    (project / "draft.txt").write_text("what I am at\n")
    (project / "mine.txt").write_text("not for git\n")
    return project


def settings_of(base: Path, project: Path, **more: object) -> Callable[[Daemon], Json]:
    """Return the daemon's settings, once it is known where the daemon is."""

    def settings(daemon: Daemon) -> Json:
        script = AGENT.format(base=base, project=project, run=daemon.runtime_dir, python=sys.executable)
        agent = shell_agent(base, script)
        return {"executor": "agent", "executors": {"agent": agent}, **more}

    return settings


def release(base: Path, story: str, *steps: str) -> None:
    """Let the agents of these steps hand over."""
    for step in steps:
        (base / f"{story}-{step}").touch()


def at_work(daemon: Daemon, base: Path, project: Path) -> None:
    """Have US-001 done, in a clone whose set-up succeeds at once."""
    (base / "go").touch()
    release(base, "US-001", "bdd", "impl")
    daemon.to_review(project)
    daemon.verb("approve", project, story="US-001")
    daemon.wait_at(project, "done", "pass")


def land(daemon: Daemon, project: Path, **more: object) -> Json:
    """Land US-001, and return what the daemon says in the end."""
    said = daemon.verb("land", project, story="US-001", **more)
    while said.get("checking"):
        said = daemon.verb("land", project, story="US-001", **more)
    return said


def told(project: Path, *words: str) -> str:
    """Return what git prints."""
    command = ["git", "-C", str(project), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def checkout(project: Path) -> dict[str, bytes]:
    """Return every file of a person's checkout, with the index, HEAD and its branch."""
    found = {str(path): path.read_bytes() for path in project.rglob("*") if path.is_file()}
    kept = (".git/index", ".git/HEAD", ".git/refs/heads/main")
    ours = (str(project / ".git"), str(project / ".ai"))
    names = {name for name in found if not name.startswith(ours)} | {str(project / name) for name in kept}
    return {name: found[name] for name in sorted(names)}


def lines(path: Path) -> list[str]:
    """Return the lines of a file; none where it is missing."""
    return path.read_text().splitlines() if path.exists() else []


def workspaces(daemon: Daemon) -> list[Json]:
    """Return the clones, as a script gets them."""
    found: list[Json] = typed(daemon, "workspaces", "--json").json["workspaces"]
    return found


def test_a_story_in_a_clone_from_its_start_until_it_is_landed(tmp_path: Path) -> None:
    """Daemons are killed on the way; the person's files are theirs until they say `land`."""
    project = made(tmp_path)
    before = checkout(project)
    with running(tmp_path, settings_of(tmp_path, project)) as daemon:
        daemon.begin(project)
        daemon.wait_saying(project, "its clone is being set up")
        eventually_sync(lambda: lines(tmp_path / "set-up"))
        daemon.kill()
        (tmp_path / "go").touch()
        daemon.start()
        daemon.wait_executing(project, "bdd")
        assert 1 == len(lines(tmp_path / "set-up"))
        daemon.kill()
        release(tmp_path, "US-001", "bdd")
        daemon.start()
        daemon.wait_at(project, "review", "needs_human")
        daemon.verb("approve", project, story="US-001")
        daemon.wait_executing(project, "impl")
        eventually_sync(lambda: "for people" in (tmp_path / "answer").read_text())
        release(tmp_path, "US-001", "impl")
        daemon.wait_at(project, "done", "pass")

        assert before == checkout(project)
        assert ["US-001 impl: pass", "US-001 bdd: pass"] == told(
            project, "log", "--format=%s", "main..handoffd/US-001"
        ).splitlines()
        (clone,) = workspaces(daemon)
        assert ("US-001", "handoffd/US-001", True) == (clone["story"], clone["branch"], clone["ready"])
        assert "handoffd/US-001 is not landed, and the clone is younger than 30 days" == clone["kept"]
        assert "workspace" not in {one["kind"] for one in typed(daemon, "gc", "--json").json["doomed"]}

        said = typed(daemon, "land", str(project))
        assert (0, True) == (said.code, "US-001 is on main now: 2 files changed" in said.out), said
        assert ["bdd", "impl"] == lines(project / "US-001.txt")
        assert " M draft.txt\n?? mine.txt\n" == told(project, "status", "--porcelain")
        assert "what I am at\n" == (project / "draft.txt").read_text()
        assert land(daemon, project)["already"]
        assert [None] == [one["kept"] for one in workspaces(daemon)]
        typed(daemon, "gc")
        assert not Path(clone["folder"]).exists()
        assert "handoffd/US-001" in told(project, "branch", "--list", "handoffd/*")


def test_a_story_begins_when_what_it_builds_on_is_landed(tmp_path: Path) -> None:
    """It says what it waits for, and its clone has the other's work."""
    project = made(tmp_path)
    with running(tmp_path, settings_of(tmp_path, project, auto_continue=True)) as daemon:
        (tmp_path / "go").touch()
        release(tmp_path, "US-001", "bdd", "impl")
        daemon.to_review(project)
        daemon.verb("start", project, story="US-002", queue=True, blocked_by=["US-001"])
        daemon.verb("approve", project, story="US-001")
        track = daemon.wait_saying(project, "US-001 is done, but main, which is checked out")
        assert "US-002" == track["story"]

        said = land(daemon, project)
        assert "landed" == said["type"], said
        daemon.wait_executing(project, "bdd")
        (second,) = (one for one in workspaces(daemon) if one["story"] == "US-002")
        assert ["bdd", "impl"] == lines(Path(second["folder"]) / "US-001.txt")


def aborted(daemon: Daemon, base: Path, project: Path) -> str:
    """Have a story aborted at its review; return where its branch ends."""
    (base / "go").touch()
    release(base, "US-001", "bdd")
    daemon.to_review(project)
    daemon.verb("abort", project)
    return told(project, "rev-parse", "handoffd/US-001")


def test_a_story_that_was_aborted_begins_anew_when_it_is_started_again(tmp_path: Path) -> None:
    """On its old branch the new tests would not fail. The ref that the answer names has its work."""
    project = made(tmp_path)
    with running(tmp_path, settings_of(tmp_path, project)) as daemon:
        end = aborted(daemon, tmp_path, project)

        answer = daemon.verb("start", project, story="US-001")
        daemon.wait_at(project, "review", "needs_human")

        assert ["bdd"] == told(project, "show", "handoffd/US-001:US-001.txt").split()
        assert told(project, "rev-parse", "main") == told(project, "rev-parse", "handoffd/US-001~1")
        *_, kept, drafts = answer["warnings"]
        (kept,) = re.findall(r"refs/handoffd/US-001/discarded-\w+(?= keeps)", kept)
        assert "draft.txt, mine.txt are not committed, so the story begins without them" in drafts
        assert end == told(project, "rev-parse", kept)


def test_a_story_that_was_aborted_can_go_on_with_what_it_did(tmp_path: Path) -> None:
    """As `start --go-on` says. A start that is refused puts nothing away."""
    project = made(tmp_path)
    with running(tmp_path, settings_of(tmp_path, project)) as daemon:
        end = aborted(daemon, tmp_path, project)
        daemon.verb("start", project, story="US-002")
        for go_on, option in ((False, ""), (True, " --go-on")):
            refused = daemon.verb("start", project, story="US-001", go_on=go_on)
            assert "STORY_IN_PROGRESS" == refused["code"]
            assert f"handoffd start {project} US-001 --queue{option}" == refused["next_command"]
        assert end == told(project, "rev-parse", "handoffd/US-001")

        daemon.verb("abort", project)
        daemon.wait_at(project, "bdd", "needs_human")
        *_, warning, _ = daemon.verb("start", project, story="US-001", go_on=True)["warnings"]
        daemon.wait_at(project, "review", "needs_human")

        assert "US-001 goes on from handoffd/US-001, 1 commit of an earlier start" in warning
        assert end == told(project, "rev-parse", "handoffd/US-001~1")


def test_a_set_up_that_fails_waits_for_a_person(tmp_path: Path) -> None:
    """It names the last line and where the rest is; `retry` goes on with a clone made anew."""
    project = made(tmp_path)
    with running(tmp_path, settings_of(tmp_path, project)) as daemon:
        for name in ("go", "broken"):
            (tmp_path / name).touch()
        daemon.begin(project)
        track = daemon.wait_at(project, "bdd", "needs_human")
        assert "no package mirror" in (track["last_error"] or track["why"] or ""), track

        (tmp_path / "broken").unlink()
        daemon.verb("retry", project)
        daemon.wait_executing(project, "bdd")
        assert 2 == len(lines(tmp_path / "set-up"))


PERSON_COMMITS = """\
cd {project}
echo "a person's" > beside.txt
git add beside.txt
git -c user.name=a -c user.email=a@b commit --quiet -m "Beside it" -- beside.txt
"""


def test_a_landing_that_cannot_be_changes_nothing(tmp_path: Path) -> None:
    """A change in the way, a conflict, merged tests that fail; and when all that is over, it succeeds."""
    project = made(tmp_path)
    with running(tmp_path, settings_of(tmp_path, project)) as daemon:
        at_work(daemon, tmp_path, project)
        (project / "contested.txt").write_text("not committed\n")
        assert "CHECKOUT_IN_THE_WAY" == refused(daemon, project)

        git(project, "commit", "--quiet", "-m", "Contested", "--", "contested.txt")
        assert "CONFLICT" == refused(daemon, project)

        assert 0 == git(project, "reset", "--quiet", "--keep", "HEAD~1")
        (tmp_path / "red").touch()
        assert "RED_BRANCH" == refused(daemon, project), "these fail without the story, too"
        assert ["US-001"] == [one["story"] for one in workspaces(daemon)]

        (tmp_path / "red").unlink()
        said = land(daemon, project)
        assert ("landed", False) == (said["type"], said["already"]), said
        assert "from US-001\n" == (project / "contested.txt").read_text()
        assert ["main", "handoffd/US-001"] == branches(project)


def refused(daemon: Daemon, project: Path) -> str:
    """Return why a landing is refused, which has changed nothing."""
    before = checkout(project)
    said = land(daemon, project)
    assert before == checkout(project)
    return str(said.get("code"))


def branches(project: Path) -> list[str]:
    """Return the branches of a project, its own first."""
    found = told(project, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").split()
    return sorted(found, key=lambda name: name != "main")


def test_a_branch_that_moves_while_it_is_tested_is_merged_and_tested_again(tmp_path: Path) -> None:
    """Both are there in the end, and what is there was tested."""
    project = made(tmp_path)
    (tmp_path / "person.sh").write_text(PERSON_COMMITS.format(project=project))
    with running(tmp_path, settings_of(tmp_path, project, sandbox={"level": "off"})) as daemon:
        at_work(daemon, tmp_path, project)
        (tmp_path / "tests").unlink(missing_ok=True)
        (tmp_path / "move").touch()  # the tests do it, as a person would: in a sandbox they could not
        said = land(daemon, project)

        assert "landed" == said["type"], said
        assert 2 == len(lines(tmp_path / "tests"))
        subjects = told(project, "log", "--format=%s", "--first-parent", "-2").splitlines()
        assert ["Land US-001", "Beside it"] == subjects
        assert (["bdd", "impl"], True) == (lines(project / "US-001.txt"), (project / "beside.txt").exists())
        assert " M draft.txt\n?? mine.txt\n" == told(project, "status", "--porcelain")


def test_the_projects_command_is_given_a_story_once_whatever_dies(tmp_path: Path) -> None:
    """It outlives the daemon, and the next one finds it at work, or its end."""
    project = made(tmp_path)
    command = tmp_path / "pull-request"
    command.write_text(
        f"#!/bin/sh\necho $HANDOFFD_BRANCH >> {tmp_path}/given\n"
        f"until test -e {tmp_path}/answer-comes; do sleep 0.05; done\necho pull/12\n"
    )
    command.chmod(0o755)
    settings = json.loads((project / ".ai/handoffd.yaml").read_text())
    settings["stories"] = {"land_command": [str(command)], "land": "command"}
    (project / ".ai/handoffd.yaml").write_text(json.dumps(settings))
    with running(tmp_path, settings_of(tmp_path, project)) as daemon:
        at_work(daemon, tmp_path, project)
        for _ in range(2):
            eventually_sync(lambda: lines(tmp_path / "given"))
            daemon.kill()
            daemon.start()
        (tmp_path / "answer-comes").touch()
        eventually_sync(lambda: [one for one in daemon.events(project) if one["kind"] == "landed"])

        (landed,) = [one["event"] for one in daemon.events(project) if one["kind"] == "landed"]
        assert ("command", "main", "pull/12") == (landed["how"], landed["onto"], landed["told"])
        assert ["handoffd/US-001"] == lines(tmp_path / "given")
        assert not (project / "US-001.txt").exists()
        for words in (
            ("report", "--since", "1h"),
            ("stories",),
            ("status", str(project)),
            ("story", str(project)),
        ):
            assert "for main: pull/12" in typed(daemon, *words).out, words
            assert "handoffd land" not in typed(daemon, *words).out, words


def test_a_story_waits_until_clones_take_less(tmp_path: Path) -> None:
    """Its clone is made when the one before is landed, which goes for it."""
    project = made(tmp_path)
    most = {"retention": {"workspaces_gb": 2e-5}, "schedule": {"poll_s": 0.2}}
    with running(tmp_path, settings_of(tmp_path, project, **most)) as daemon:
        at_work(daemon, tmp_path, project)
        release(tmp_path, "US-002", "bdd")
        daemon.verb("start", project, story="US-002")
        daemon.wait_for(project, lambda track: "room for its clone" in (track["waits_for"] or ""))
        assert "handoffd workspaces" == daemon.track(project)["next_command"]
        kept = typed(daemon, "gc").out.splitlines()
        age = "is not landed, and the clone is younger than 30 days"
        assert any(line.endswith(f": handoffd/US-001 {age}") for line in kept if "clone kept: US-001" in line)

        assert "landed" == land(daemon, project)["type"]
        daemon.wait_at(project, "review", "needs_human")
        assert ["US-002"] == [one["story"] for one in workspaces(daemon)]


# --- a new project --------------------------------------------------------------------------------------
def fresh(base: Path, makefile: str) -> Path:
    """Return a folder in git with a Makefile, of which handoffd knows nothing."""
    project = base / "fresh"
    project.mkdir()
    (project / "Makefile").write_text(makefile)
    assert 0 == git(project, "init", "--quiet", "--initial-branch", "main")
    assert 0 == git(project, "add", "-A")
    assert 0 == git(project, "commit", "--quiet", "-m", "Begin")
    return project


def test_a_story_of_a_new_project_works_in_a_clone_if_the_tests_pass_in_one(tmp_path: Path) -> None:
    """The trial leaves nothing; what it found is trusted, and the first story goes by it."""
    project = fresh(tmp_path, "test:\n\ttrue\n")
    with running(tmp_path, settings_of(tmp_path, project)) as daemon:
        before = told(project, "for-each-ref")
        said = typed(daemon, "init", str(project), "--json")
        assert ("clone", True, "ok") == (
            said.json["workspace"]["kind"], said.json["new"], said.json["tried"]["severity"],
        )  # fmt: skip
        assert [] == daemon.get("/v1/workspaces")["workspaces"]
        assert before == told(project, "for-each-ref")

        release(tmp_path, "US-001", "bootstrap", "bdd")
        (project / ".ai/step-rules.yaml").write_text(TABLE)
        daemon.verb("trust", project)
        daemon.verb("start", project, story="US-001")
        daemon.wait_at(project, "review", "needs_human")
        assert not (project / "US-001.txt").exists()
        assert "bootstrap\nbdd\n" == told(project, "show", "handoffd/US-001:US-001.txt")


def test_an_init_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    """With a daemon and without: the tests are ended, their clone is gone, and nothing is chosen."""
    asleep = ["sleep", f"60{os.getpid()}"]
    project = fresh(tmp_path, f"test:\n\ttouch {tmp_path}/began; exec {' '.join(asleep)}\n")
    settings = {"sandbox": {"writable": [str(tmp_path)]}}
    with running(tmp_path, settings) as daemon:
        clones = daemon.state_dir / "workspaces"
        for alone in (False, True):
            if alone:
                daemon.terminate()
            (tmp_path / "began").unlink(missing_ok=True)
            more = ("--workspace", "auto") if alone else ()
            words = ("--config", str(daemon.config), "init", str(project), *more)
            with started(*words, env=environment_of(daemon)) as process:
                eventually_sync((tmp_path / "began").exists)
                process.send_signal(signal.SIGINT)
                assert 130 == process.wait(60)
                assert process.stderr is not None
                assert b"--workspace auto" in process.stderr.read()
            eventually_sync(lambda: [] == [*clones.glob("*/*")])
            assert not [one for one in psutil.process_iter() if asleep == words_of(one)]
            assert "workspace" not in (project / ".ai/handoffd.yaml").read_text()


def words_of(process: psutil.Process) -> list[str]:
    """Return what a process was started with; nothing of one that is gone."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []
