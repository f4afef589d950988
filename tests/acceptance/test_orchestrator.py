"""`orchestrator` as scripts use it, and the reference beside handoffd on one project."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents import state_of
from tests.support.daemon import Daemon, sample
from tests.support.eventually import eventually_sync

from handoffd.clock import SystemClock, rfc3339

Json = dict[str, Any]

LIMIT_S = 300

HOOK = r"""#!/bin/sh
# What wraps an agent in many projects: take the prompt, give it to the agent, apply what it left.
set -e
root=$1
while :; do
  out=$(orchestrator dispatch "$root")
  [ -n "$out" ] || exit 0
  meta=$(printf '%s\n' "$out" | sed -n '/^<task-meta>$/,/^<\/task-meta>$/p' | sed '1d;$d')
  step=$(printf '%s\n' "$meta" | sed -n 's/^  "step": "\(.*\)",$/\1/p')
  attempt=$(printf '%s\n' "$meta" | sed -n 's/^  "attempt": \([0-9]*\),$/\1/p')
  printf '%s\n' "$out" | agent "$root" "$step" "$attempt"
  orchestrator apply-handoff "$root" > /dev/null
  orchestrator post-check "$root"
done
"""

AGENT = r"""#!/bin/sh
# Does what an agent does last, and remembers that it was asked.
set -e
prompt=$(cat)
case $prompt in *"$2"*) ;; *) echo "no word of $2 in the prompt" >&2; exit 9 ;; esac
echo "$2 $3" >> "$1/asked"
printf -- '---\nstory: US-001\nstep: %s\nattempt: %s\nstatus: pass\n---\ndone\n' "$2" "$3" > "$1/.ai/draft"
mv "$1/.ai/draft" "$1/.ai/HANDOFF.md"
"""

BEFORE_REVIEW = ["bdd 1", "sdd-delta 1", "contract 1"]
AFTER_REVIEW = ["scaffold 1", "impl 1", "verify 1", "update-memory 1"]


class Scripts:
    """Programs on a PATH of their own, and places in which `orchestrator` looks for a daemon."""

    def __init__(self, base: Path, state: Path, runtime: Path) -> None:
        self.folder = base / "bin"
        self.folder.mkdir(parents=True)
        program = "from handoffd.orchestrator.main import main; main()"
        self._write("orchestrator", f'#!/bin/sh\nexec {sys.executable} -c {shlex.quote(program)} "$@"\n')
        self._write("hook", HOOK)
        self._write("agent", AGENT)
        path = f"{self.folder}:{os.environ['PATH']}"
        places = {"HANDOFFD_STATE_DIR": str(state), "HANDOFFD_RUNTIME_DIR": str(runtime)}
        self._environment = {"PATH": path, "HOME": str(base), "LANG": "C.UTF-8", **places}

    def _write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.write_text(text)
        file.chmod(0o755)

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return subprocess.run(
            words, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip

    def orchestrator(self, verb: str, project: Path, *words: str) -> str:
        """Return what a verb prints; it must not fail."""
        ended = self("orchestrator", verb, str(project), *words)
        assert 0 == ended.returncode, ended.stdout + ended.stderr
        return ended.stdout


SETTINGS = {"execute": {"settle_s": 0.1}, "watch": {"sweep_s": 1}}


@pytest.fixture
def with_daemon(daemon: Daemon, tmp_path: Path) -> Scripts:
    """Scripts that find the daemon."""
    return Scripts(tmp_path, daemon.state_dir, daemon.runtime_dir)


@pytest.fixture
def without_daemon(tmp_path: Path) -> Scripts:
    """Scripts that find none."""
    return Scripts(tmp_path, tmp_path / "state", tmp_path / "run")


def project_in(base: Path) -> Path:
    """Return a project without a test command: an agent's word counts."""
    project = sample(base)
    (project / ".ai/handoffd.yaml").unlink()
    (project / "PROJECT_CONTEXT.md").write_text("a shop\n")
    return project


def written_by_the_reference(project: Path, **changes: object) -> None:
    """Change STATE.json as the reference does: in place, two spaces a level."""
    text = json.dumps({**state_of(project), **changes}, indent=2, ensure_ascii=False) + "\n"
    (project / ".ai/STATE.json").write_text(text)


def asked(project: Path) -> list[str]:
    """Return the steps and attempts that the agent was asked for."""
    return (project / "asked").read_text().splitlines()


@pytest.mark.slow
def test_a_hook_script_ends_a_story_without_a_daemon(without_daemon: Scripts, tmp_path: Path) -> None:
    """As it did with the reference: `set -e`, prompts through a pipe, the block cut out with sed.

    Its last steps only: each verb is a program that loads all of the daemon. (A whole story in one
    process: tests/unit/orchestrator/test_turns.py.)
    """
    project = project_in(tmp_path / "work")
    standing = {"project": "shop", "story": "US-001", "step": "verify", "attempt": 1, "status": "pass"}
    (project / ".ai/STATE.json").write_text(json.dumps(standing))

    ended = without_daemon("hook", str(project))

    assert (0, ["update-memory 1"]) == (ended.returncode, asked(project)), ended.stderr
    assert ("done", "pass") == (state_of(project)["step"], state_of(project)["status"])


@pytest.mark.slow
def test_a_hook_script_leads_a_story_beside_a_daemon(
    daemon: Daemon, with_daemon: Scripts, tmp_path: Path
) -> None:
    """The verbs go through the daemon, which hears the hand-offs, too, and starts nothing."""
    project = project_in(tmp_path / "work")

    told = with_daemon.orchestrator("start-story", project, "US-001")
    assert "Started story US-001 (step: bdd, attempt: 1)\n" == told

    first = with_daemon("hook", str(project))
    assert (0, BEFORE_REVIEW) == (first.returncode, asked(project)), first.stderr
    assert ("review", "needs_human") == (state_of(project)["step"], state_of(project)["status"])

    assert 'Review approved (note: "mind the prices")\n' == with_daemon.orchestrator(
        "approve", project, "mind the prices"
    )
    second = with_daemon("hook", str(project))
    assert (0, BEFORE_REVIEW + AFTER_REVIEW) == (second.returncode, asked(project)), second.stderr
    assert "post_check: PASSED\n" * 4 == second.stdout
    assert ("done", "pass") == (state_of(project)["step"], state_of(project)["status"])
    assert "done" == json.loads(with_daemon.orchestrator("query", project))["step"]

    kinds = [event["kind"] for event in daemon.events(project)]
    assert ("started" in kinds, "approved" in kinds, []) == (True, True, daemon.starts(project))


def test_an_approval_of_the_reference_is_held(daemon: Daemon, with_daemon: Scripts, tmp_path: Path) -> None:
    """STATE.json does not prove a person's word; one command confirms it."""
    project = project_in(tmp_path / "work")
    at_the_review(with_daemon, daemon, project)

    written_by_the_reference(project, status="pass", human_note="fine")

    daemon.wait_saying(project, "edited past the human step review")
    eventually_sync(lambda: state_of(project)["status"] == "needs_human")
    daemon.verb("confirm", project)
    daemon.wait_at(project, "review", "pass")
    eventually_sync(lambda: state_of(project)["human_note"] == "fine")


def test_approvals_of_the_reference_can_be_adopted(
    daemon: Daemon, with_daemon: Scripts, tmp_path: Path
) -> None:
    """`external_edits: adopt` says that the file is proof enough here."""
    project = project_in(tmp_path / "work")
    (project / ".ai/handoffd.yaml").write_text("external_edits: adopt\n")
    at_the_review(with_daemon, daemon, project)

    written_by_the_reference(project, status="pass", human_note=None)

    daemon.wait_at(project, "review", "pass")
    assert "scaffold" in with_daemon.orchestrator("dispatch", project)


def at_the_review(scripts: Scripts, daemon: Daemon, project: Path) -> None:
    """Have the project stand at its review, as the reference leaves it there."""
    scripts.orchestrator("init", project, "shop")
    written_by_the_reference(project, story="US-001", step="review", status="needs_human", max_attempts=1)
    daemon.wait_at(project, "review", "needs_human")


def test_a_dispatch_of_the_reference_counts(daemon: Daemon, with_daemon: Scripts, tmp_path: Path) -> None:
    """Another tool made the attempt; its hand-off counts all the same, and the next turn is ours."""
    project = project_in(tmp_path / "work")
    with_daemon.orchestrator("start-story", project, "US-001")
    now = rfc3339(SystemClock().now() - timedelta(seconds=1))
    written_by_the_reference(project, status="running", dispatched_at=now, completed_at=None)
    daemon.wait_at(project, "bdd", "running")

    with_daemon("sh", "-c", f"echo bdd | agent {shlex.quote(str(project))} bdd 1")

    daemon.wait_at(project, "bdd", "pass")
    assert '"step": "sdd-delta"' in with_daemon.orchestrator("dispatch", project)


def test_what_the_daemon_dispatches_is_not_given_away(
    daemon: Daemon, with_daemon: Scripts, tmp_path: Path
) -> None:
    """At level 2 a script gets no prompt; the other verbs do what they always did."""
    project = sample(tmp_path / "work")
    daemon.verb("start", project, story="US-001")
    daemon.wait_for(project, lambda track: track["story"] == "US-001")

    ended = with_daemon("orchestrator", "dispatch", str(project))

    assert "<task-meta>" not in ended.stdout
    daemon.wait_at(project, "review", "needs_human")
    assert "Review approved\n" == with_daemon.orchestrator("approve", project)
    daemon.wait_at(project, "done", "pass")
    assert "US-001" == json.loads(with_daemon.orchestrator("status", project))["story"]
