"""Shipped pipelines, each a whole flow under a real daemon: its tasks are played by the rehearsal."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from tests.support.commands import assert_replayed
from tests.support.daemon import QUICK, Daemon, Json, running
from tests.support.eventually import eventually_sync

from handoffd.cli.story.copies import played_by_us
from handoffd.cli.story.flows import Answers, Flowline
from handoffd.inspection.pipelines import loaded, pipelines_of
from handoffd.protocol.plan import Plan
from handoffd.rehearsal.sample import create
from handoffd.rehearsal.script import VARIABLE, Flow

SEED = 2
SCRIPT = {"flow": {"seed": SEED, "play": "chance"}}
PARAMS: dict[str, Json] = {
    "command-generator": {"name": "deploy", "description": "Brings the shop to its customers."},
    "clean": {},
    "team-brainstorm": {"topic": "Compare the strategy of an innovative architecture"},
    "team-issue": {"issues": ["GH-1", "GH-2", "GH-3"]},
    "team-coordinate": {"topic": "Make the shop faster, and describe how"},
    "refactor-cycle": {"paths": ["shop"]},
    "analyze": {"topic": "How prices are rounded"},
    "review-cycle": {},
}
"""By pipeline, the parameters of its flow; further ones begin when their prompts are there."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Lend a daemon in which every agent is the rehearsal; in the end its journal is replayed."""
    settings = {"executors": played_by_us({}), "schedule": {"poll_s": 0.5}}
    environment = {VARIABLE: json.dumps(SCRIPT)}
    with running(tmp_path_factory.mktemp("daemon"), settings, **environment) as lent:
        yield lent
        assert_replayed(lent)


def shop_at(folder: Path) -> Path:
    """Return the sample project, whose tests take no time."""
    project = create(folder)
    text = f"test: {{command: {json.dumps(QUICK)}, report: junit}}\n"
    (project / ".ai/handoffd.yaml").write_text(text)
    return project


def plan_of(name: str) -> Plan:
    """Return the plan of a shipped pipeline."""
    found = pipelines_of(Path("/nowhere"), None).found
    return loaded(found[name], found).plan


def begun(daemon: Daemon, project: Path, pipeline: str, script: Json = SCRIPT) -> Flowline:
    """Return a flow that was started."""
    body = {"project": str(project), "pipeline": pipeline, "params": PARAMS[pipeline], "by": "a test"}
    started = daemon.post("/v1/verbs/flow_start", body)
    assert "flow" == started["type"], started
    answers = Answers(plan_of(pipeline), Flow(**script["flow"]))
    return Flowline(daemon, started["flow"], str(project), answers, Console(file=io.StringIO()))


def log_of(project: Path) -> str:
    """Return the subjects of the commits of the branch that people work on."""
    command = ["git", "-C", str(project), "log", "--format=%s", "main"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def has_come_well(line: Flowline, told: Json, project: Path) -> bool:
    """Check that a flow has succeeded, and return whether all its files are on its board."""
    assert ("succeeded", False) == (told["ended"], line.stuck), told["nodes"]
    missing = [file for one in told["nodes"] for file in one["files"] if not (project / file).is_file()]
    return told["used"]["starts"] >= 3 and not missing


TOGETHER = ("refactor-cycle", "team-issue")


@pytest.mark.parametrize("pipeline", [name for name in PARAMS if name not in TOGETHER])
def test_it_goes_from_its_start_to_its_end(house: Daemon, tmp_path: Path, pipeline: str) -> None:
    """Every task is handed over as declared, and the project has what came of it."""
    project = shop_at(tmp_path / pipeline)
    line = begun(house, project, pipeline)

    assert has_come_well(line, line.follow(), project)


def test_two_flows_of_a_project_go_side_by_side(house: Daemon, tmp_path: Path) -> None:
    """Each comes to its end, and both land on the same branch, item by item."""
    project = shop_at(tmp_path / "two")
    lines = [begun(house, project, name) for name in TOGETHER]

    ends = [line.follow() for line in lines]

    assert all(has_come_well(line, told, project) for line, told in zip(lines, ends, strict=True))
    commits = log_of(project)
    assert all(line.flow in commits for line in lines)
    merges = [
        one["node"]
        for one in ends[1]["nodes"]
        if one["node"].endswith("/merge") and one["outcome"] == "merged"
    ]
    assert merges
    assert all(f"{name.removesuffix('merge')}implement" in commits for name in merges)
    assert list((project / "rehearsed").glob("*.txt"))


def test_a_story_goes_beside_a_flow(house: Daemon, tmp_path: Path) -> None:
    """Neither waits for the other's end, nor takes its files for its own."""
    project = shop_at(tmp_path / "beside")
    line = begun(house, project, "review-cycle")
    started = house.verb("start", project, story="US-001")
    assert "error" != started["type"], started

    assert "succeeded" == line.follow()["ended"]
    house.wait_for(project, lambda track: bool(track["step"] == "review"))


def _has_begun_more(daemon: Daemon, flow: str, starts: int) -> bool:
    return bool(daemon.get("/v1/flow", flow=flow)["used"]["starts"] > starts)


def test_a_flow_goes_on_where_a_killed_daemon_left_it(tmp_path: Path) -> None:
    """Killed three times while it works, it starts no attempt twice, and comes to the same end."""
    settings = {"executors": played_by_us({}), "schedule": {"poll_s": 0.5}}
    with running(tmp_path, settings, **{VARIABLE: json.dumps(SCRIPT)}) as daemon:
        project = shop_at(tmp_path / "shop")
        line = begun(daemon, project, "team-brainstorm")
        for least in range(2, 8, 2):
            eventually_sync(partial(_has_begun_more, daemon, line.flow, least))
            daemon.kill()
            daemon.start()

        told = line.follow()

        assert "succeeded" == told["ended"]
        assert_replayed(daemon)
        starts = [json.loads(one)["dispatch"] for one in daemon.start_log.read_text().splitlines()]
        assert len(starts) == len({*starts})
