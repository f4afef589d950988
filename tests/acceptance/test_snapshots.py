"""The files of a story under a real daemon that is killed: kept step by step, compared, and brought back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.agents import shell_agent, shop
from tests.support.commands import typed
from tests.support.daemon import Daemon, Json, running
from tests.support.eventually import eventually_sync
from tests.support.house import HAND_OVER
from tests.support.repositories import git

AGENT = f"""\
cat > /dev/null
echo "$HANDOFFD_STEP" >> work.txt
if test "$HANDOFFD_STEP" = impl && ! test -e {{base}}/tried; then
  touch {{base}}/tried
  HANDOFFD_RUNTIME_DIR={{run}} {{python}} -m handoffd rollback . bdd --files > {{base}}/answer 2>&1
fi
until test -e {{base}}/$HANDOFFD_STEP; do sleep 0.05; done
{HAND_OVER}"""
"""Writes a line, hands over when the test lets its step go; at impl it tries to roll back itself."""

TABLE = """\
steps:
  bdd: {next_on_pass: review, timeout_min: 5}
  review: {next_on_pass: impl}
  impl: {next_on_pass: update-memory, timeout_min: 5}
"""


def listed(daemon: Daemon, project: Path) -> list[Json]:
    """Return the snapshots as the command line prints them."""
    said = typed(daemon, "snapshots", str(project), "--json")
    assert 0 == said.code, said
    found: list[Json] = said.json["snapshots"]
    return found


def at_ref(project: Path, ref: str) -> str:
    """Return work.txt as a snapshot has it."""
    words = ["git", "-C", str(project), "show", f"{ref}:work.txt"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_what_each_step_has_left_survives_and_can_be_brought_back(tmp_path: Path) -> None:
    """A daemon that was killed takes over; an agent is refused; the present is kept before a way back."""
    project = shop(tmp_path, TABLE)
    (project / "work.txt").write_text("mine\n")
    git(project, "init", "--quiet")

    def settings(daemon: Daemon) -> Json:
        script = AGENT.format(base=tmp_path, run=daemon.runtime_dir, python=sys.executable)
        return {"executor": "agent", "executors": {"agent": shell_agent(tmp_path, script)}}

    with running(tmp_path, settings) as daemon:
        daemon.verb("start", project, story="US-001")
        daemon.wait_executing(project, "bdd")
        daemon.kill()
        (tmp_path / "bdd").touch()
        daemon.start()
        daemon.wait_at(project, "review", "needs_human")
        daemon.verb("approve", project, story="US-001")
        daemon.wait_executing(project, "impl")
        eventually_sync(lambda: "rollback is for people" in _text(tmp_path / "answer"))
        (tmp_path / "impl").touch()
        daemon.wait_executing(project, "update-memory")
        (tmp_path / "update-memory").touch()
        daemon.wait_at(project, "done", "pass")

        names = ["bdd-0", "bdd-1", "review-1", "impl-1", "update-memory-1"]
        assert names == [one["name"] for one in listed(daemon, project)]
        assert "mine\nbdd\n" == at_ref(project, "refs/handoffd/US-001/bdd-1")

        (tmp_path / "bdd").unlink()  # the step waits again
        answer = daemon.verb("rollback", project, step="bdd", files=True)
        assert "1 file brought back as in refs/handoffd/US-001/bdd-0" in answer["message"]
        daemon.wait_executing(project, "bdd")
        eventually_sync(lambda: "mine\nbdd\n" == _text(project / "work.txt"))
        kept = next(one for one in listed(daemon, project) if one["result"] == "kept")
        assert "mine\nbdd\nimpl\nupdate-memory\n" == at_ref(project, kept["ref"])


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
