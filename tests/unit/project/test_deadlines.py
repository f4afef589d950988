"""How long attempts have been running, by the right clock."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.eventually import eventually
from tests.support.house import HAND_OVER, NOW, house, make_project
from tests.unit.project.living import at_level_1, edit, living, shown

from handoffd.clock import rfc3339
from handoffd.engine.events import Initialised, Noted, Started
from handoffd.project.timeouts import Deadlines


async def test_a_pending_attempt_has_no_elapsed_time(tmp_path: Path) -> None:
    """Only a running one has."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        assert None is await Deadlines(here.services).elapsed_min(project.main)


async def test_the_age_of_an_external_attempt_is_in_state_json(tmp_path: Path) -> None:
    """In minutes of the wall clock, and never negative."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, status="running", dispatched_at=rfc3339(NOW - timedelta(seconds=30)))
        await project.look()
        deadlines = Deadlines(here.services)
        assert pytest.approx(0.5, abs=0.4) == await deadlines.elapsed_min(project.main)

        here.clock.ahead_s = -60
        assert 0.0 == await deadlines.elapsed_min(project.main)


async def test_an_external_attempt_can_be_exempt_from_its_deadline(tmp_path: Path) -> None:
    """While its hand-off cannot be read."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, status="running", dispatched_at=rfc3339(NOW))
        await project.look()
        here.clock.ahead_s = 61

        await Deadlines(here.services).check(project.main, external=False)
        # Posted facts are decided before this verb.
        await project.main.give(Started(story="US-002", queue=True))
        assert "running" == shown(project)["status"]

        await Deadlines(here.services).check(project.main)
        await eventually(lambda: shown(project)["status"] == "timeout")


async def test_the_age_of_the_daemons_attempt_is_in_its_start_record(tmp_path: Path) -> None:
    """Whatever the wall clock shows."""
    async with house(tmp_path, "sleep 600") as here, living(here, make_project(tmp_path)) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: project.main.pid() is not None)

        here.clock.ahead_s = 30
        elapsed = await Deadlines(here.services).elapsed_min(project.main)

        assert elapsed is not None
        assert 0.5 <= elapsed < 1
        await project.end_executors("the test")


DAY_S = 86_400.0


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
async def test_a_clock_jump_does_not_change_the_age_of_an_external_attempt(
    tmp_path: Path, jump_s: float
) -> None:
    """Its start is a wall time, which was converted when it was first seen."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, status="running", dispatched_at=rfc3339(NOW - timedelta(seconds=30)))
        await project.look()
        await project.poll()
        here.clock.jumped_s = jump_s

        elapsed = await project.deadlines.elapsed_min(project.main)
        assert elapsed is not None
        assert 0.5 <= elapsed < 1
        await project.poll()
        # Posted facts are decided before this verb.
        await project.main.give(Started(story="US-002", queue=True))
        assert ("running", 1) == (shown(project)["status"], shown(project)["attempt"])

        here.clock.ahead_s += 31  # its deadline still counts
        await project.poll()
        await eventually(lambda: shown(project)["status"] == "timeout")
        await eventually(lambda: [notice.kind for notice in here.told.notices] == ["timeout"])


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
async def test_a_clock_jump_does_not_disturb_the_daemons_attempt(tmp_path: Path, jump_s: float) -> None:
    """It goes on to its end, counts once, and causes no false notice."""
    waiting = f"until test -e {tmp_path}/go; do sleep 0.05; done\n{HAND_OVER}"
    async with house(tmp_path, waiting) as here, living(here, make_project(tmp_path)) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: project.main.pid() is not None)
        here.clock.jumped_s = jump_s
        for _ in range(3):
            await project.poll()
            await project.look()
        await project.main.give(Noted(text="Posted facts are decided before this verb."))
        assert ("running", 1) == (shown(project)["status"], shown(project)["attempt"])

        (tmp_path / "go").touch()
        await eventually(lambda: shown(project)["step"] == "review")
        assert [("pass", 1)] == [(run.result, run.attempt) for run in await here.journal.runs()]
        await eventually(lambda: [notice.kind for notice in here.told.notices] == ["needs_human"])
