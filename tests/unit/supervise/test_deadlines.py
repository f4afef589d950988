"""How long attempts have been running, by the clock that counts for them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.support.eventually import eventually
from tests.unit.supervise.making import NOW, house, make_project
from tests.unit.supervise.test_project import at_level_1, edit, living, shown

from handoffd.clock import rfc3339
from handoffd.engine.events import Initialised, Started
from handoffd.supervise.deadlines import Deadlines


async def test_nothing_runs_nothing_elapses(tmp_path: Path) -> None:
    """A pending attempt has no clock."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        assert None is await Deadlines(here.services).elapsed_min(project.main)


async def test_somebody_elses_attempt_is_as_old_as_state_json_says(tmp_path: Path) -> None:
    """In minutes of the wall clock, and never younger than nothing."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, status="running", dispatched_at=rfc3339(NOW - timedelta(seconds=30)))
        await project.look()
        assert 0.5 == await Deadlines(here.services).elapsed_min(project.main)

        here.clock.ahead_s = -60
        assert 0.0 == await Deadlines(here.services).elapsed_min(project.main)


async def test_somebody_elses_attempt_can_be_left_alone(tmp_path: Path) -> None:
    """While nobody can look at what it may have handed over."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, status="running", dispatched_at=rfc3339(NOW))
        await project.look()
        here.clock.ahead_s = 61

        await Deadlines(here.services).check(project.main, external=False)
        # Whatever was posted is decided before this is.
        await project.main.give(Started(story="US-002", queue=True))
        assert "running" == shown(project)["status"]

        await Deadlines(here.services).check(project.main)
        await eventually(lambda: shown(project)["status"] == "timeout")


async def test_our_own_attempt_is_as_old_as_its_shim_wrote_down(tmp_path: Path) -> None:
    """Its start record counts, whatever the wall clock says."""
    async with house(tmp_path, "sleep 600") as here, living(here, make_project(tmp_path)) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: project.main.pid() is not None)

        here.clock.ahead_s = 30
        elapsed = await Deadlines(here.services).elapsed_min(project.main)

        assert elapsed is not None
        assert 0.5 <= elapsed < 1
        await project.end_executors("the test")
