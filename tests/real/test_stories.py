"""Each agent CLI through the sample's whole story, under the real daemon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.real.agents import AGENTS, Agent
from tests.real.conftest import Told
from tests.real.driving import driven
from tests.real.rehearsed import Rehearsed
from tests.real.scripts import acting

PRESET = "with-commit"
STEPS = ["bdd", "sdd-delta", "contract", "scaffold", "impl", "verify", "update-memory"]
WITH_COMMIT = [*STEPS[:-1], "commit", STEPS[-1]]


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_a_story_runs_from_bdd_to_done(agent: Agent, tools: Path, tmp_path: Path, told: Told) -> None:
    """Every step's files are written by the agent's own tools, and every hand-off is accepted at once."""
    told(agent.name, "the whole demo story, bdd to done")
    with driven(agent, tools, tmp_path) as house:
        house.behave(acting(agent, house.project, Rehearsed(house.project)))

        house.start()
        house.approve()
        house.reaches("done", "pass")

        runs = house.daemon.runs(house.project)
        assert [(step, "pass") for step in STEPS] == [(run["step"], run["result"]) for run in runs]
        assert ["clean"] * len(STEPS) == [run["exit"]["end"] for run in runs]
        assert all(run["usage"]["tokens"] > 0 for run in runs), "what it printed was not understood"
        tests = subprocess.run(
            [sys.executable, "-m", "pytest", "-q"], cwd=house.project, capture_output=True, check=False
        )
        assert 0 == tests.returncode, tests.stdout.decode()


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_story_is_committed(name: str, tools: Path, tmp_path: Path, told: Told) -> None:
    """By the agent's own shell: also by one whose sandbox keeps .git read-only at every other step."""
    told(name, f"the preset {PRESET}: a commit by its own shell")
    agent = AGENTS[name]
    with driven(agent, tools, tmp_path, preset=PRESET) as house:
        begun = git(house.project, "rev-parse", "HEAD")
        house.behave(acting(agent, house.project, Rehearsed(house.project)))

        house.start()
        house.approve()
        house.reaches("done", "pass")

        runs = house.daemon.runs(house.project)
        assert [(step, "pass") for step in WITH_COMMIT] == [(run["step"], run["result"]) for run in runs]
        assert f"feat: the story {begun}" == git(house.project, "log", "-1", "--format=%s %P")


def git(project: Path, *words: str) -> str:
    """Return what git says of a project."""
    return subprocess.run(
        ["git", "-C", str(project), *words], capture_output=True, check=True, text=True
    ).stdout.strip()
