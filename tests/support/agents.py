"""Agents of tests that run under a real daemon, and projects for them to work in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from tests.support.daemon import EXECUTORS, REPOSITORY, Json
from tests.support.house import HAND_OVER

GATED = "steps: {bdd: {next_on_pass: review}, review: {next_on_pass: done}}\n"
"""A step table for tests to which the steps do not matter: one step, the review, and the story is done."""


FALSE_CLAIM = "lie"
"""In a script of the rehearsal: an attempt that says it passed while tests fail."""


def shell_agent(base: Path, script: str, *arguments: object, **more: Any) -> Json:
    """Return an executor that runs a shell script, which is written to `agent.sh`."""
    (base / "agent.sh").write_text(script)
    return {"extends": "command", "argv": ["/bin/sh", str(base / "agent.sh"), *arguments], **more}


def scripted(*names: str) -> Json:
    """Return settings with these scripts of `executors/` as executors."""
    argv = {name: [sys.executable, str(EXECUTORS / f"{name}.py")] for name in names}
    return {"executors": {name: {"extends": "command", "argv": words} for name, words in argv.items()}}


HELD = scripted("held")
"""Settings with an executor that waits until the test releases its step."""


def release(project: Path, *steps: str) -> None:
    """Let held executors of these steps do their work."""
    for step in steps:
        (project / f".ai/release-{step}").touch()


def held_starts(project: Path) -> list[str]:
    """Return the dispatches of the held executors that were started in a project, by any daemon."""
    return lines(project, ".ai/starts.log")


def lines(project: Path, name: str) -> list[str]:
    """Return the lines of a file that agents have left in the project."""
    file = project / name
    return file.read_text().splitlines() if file.exists() else []


def project_at(root: Path, rules: str | None = None, settings: str | None = None) -> Path:
    """Return a project without code, with a step table and settings of its own."""
    (root / ".ai").mkdir(parents=True)
    (root / "PROJECT_CONTEXT.md").write_text("A shop.\n")
    if rules is not None:
        (root / ".ai/step-rules.yaml").write_text(rules)
    if settings is not None:
        (root / ".ai/handoffd.yaml").write_text(settings)
    return root


ASKS = """\
language: 1
pipeline: asks
tasks: {go_on: {ask: Go on?, timeout: never, outcomes: {yes: ok, no: stop}}}
"""


def add_asking(project: Path) -> None:
    """Give a project a pipeline that does nothing but ask a person."""
    (project / ".ai/pipelines").mkdir(exist_ok=True)
    (project / ".ai/pipelines/asks.yaml").write_text(ASKS)


def carry_out(prompt: str, project: Path) -> None:
    """Do what a prompt says, as a person's own agent would."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    subprocess.run(
        [sys.executable, "-m", "handoffd.rehearsal"],
        input=prompt, cwd=project, env={**environment, "PYTHONPATH": str(REPOSITORY / "daemon")},
        text=True, check=True, capture_output=True, timeout=120,
    )  # fmt: skip


def state_of(project: Path) -> Json:
    """Return what STATE.json says."""
    found: Json = json.loads((project / ".ai/STATE.json").read_text())
    return found


# --- an agent that hands over when the test releases it -----------------------------------------------
_RELEASED = f"""\
cat > /dev/null
echo "$HANDOFFD_STEP $HANDOFFD_ATTEMPT" >> starts.log
until test -e {{base}}/release; do sleep 0.05; done
test "$HANDOFFD_STEP" = scaffold && touch .added
{HAND_OVER}"""

TO_REVIEW = "steps: {bdd: {next_on_pass: review, timeout_min: 5}}\n"
"""A step table whose stories come to their review after one step."""


def released(base: Path, **more: object) -> Json:
    """Return settings with an agent that logs its start and hands over once `base/release` exists."""
    agent = shell_agent(base, _RELEASED.format(base=base))
    return {"executor": "agent", "executors": {"agent": agent}, **more}


def shop(base: Path, rules: str = TO_REVIEW) -> Path:
    """Return a project for that agent."""
    return project_at(base / "shop", rules)


def shim_of(program: int) -> psutil.Process:
    """Return the process that looks after an executor."""
    shim = psutil.Process(program).parent()
    assert shim is not None
    assert shim.name() == "handoffd-shim"
    return shim
