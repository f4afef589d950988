"""What a track asks of its project is what a project offers."""

from __future__ import annotations

from pathlib import Path

from tests.unit.supervise.making import house, make_project

from handoffd.engine.track import TrackKey
from handoffd.supervise.home import Home
from handoffd.supervise.project import Project


async def test_a_project_is_a_home(tmp_path: Path) -> None:
    """Everything the port names is there, and says what holds for a project at rest."""
    async with house(tmp_path) as here:
        project = Project(make_project(tmp_path), here.services, ())
        home: Home = project

        assert (True, False, frozenset()) == (home.workable, home.ending, home.stories_done())
        assert not home.is_aborted(TrackKey(str(tmp_path / "shop")))
        assert () == home.files.problems
        project.dismiss()
