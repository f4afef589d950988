"""How people call a project."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.house import house, make_project, track_of

from handoffd.engine.track import TrackKey
from handoffd.errors import NotFound, Refused
from handoffd.fleet.membership import root_called
from handoffd.fleet.register import Register
from handoffd.journal.records import StoredTrack
from handoffd.project.project import Project


@pytest.fixture
async def projects(tmp_path: Path) -> AsyncIterator[Register]:
    """Two projects called `shop` and one called by its folder, `till`."""
    async with house(tmp_path) as here:
        register = Register()
        found = register.awake
        for name in ("a", "b"):
            root = make_project(tmp_path / name)
            stored = StoredTrack(key=TrackKey(root), track=track_of(), seq=1, digest=None)
            found[root] = Project(root, here.services, (stored,))
        till = tmp_path / "till"
        (till / "docs").mkdir(parents=True)
        found[str(till)] = Project(str(till), here.services, ())
        yield register
        for project in found.values():
            project.dismiss()


async def test_a_root_a_path_inside_it_and_a_name_lead_to_it(projects: Register, tmp_path: Path) -> None:
    """Symbolic links on the way are followed."""
    till = str(tmp_path / "till")
    (tmp_path / "link").symlink_to(till)

    names = (till, f"{till}/docs", str(tmp_path / "link" / "docs"), "till")

    assert [till] * 4 == [root_called(name, projects) for name in names]


async def test_a_name_that_fits_several_wants_a_path(projects: Register) -> None:
    """Which ones there are is told."""
    with pytest.raises(Refused) as refused:
        root_called("shop", projects)

    assert all(root in refused.value.message for root in list(projects)[:2])
    assert "handoffd projects" == refused.value.hint


async def test_what_a_project_is_called_leads_back_to_it(projects: Register) -> None:
    """A name where it is the only one, else the root: whatever is shown can be typed."""
    names = projects.names()

    assert {*list(projects)[:2], "till"} == set(names.values())
    assert list(projects) == [root_called(names[root], projects) for root in projects]


@pytest.mark.parametrize("name", ["shpo", "docs", "./till", "/nowhere"])
async def test_what_nobody_is_called_names_those_there_are(projects: Register, name: str) -> None:
    """A relative path means nothing: the daemon runs wherever it runs."""
    with pytest.raises(NotFound) as unknown:
        root_called(name, projects)

    assert "(known: shop, shop, till)" in unknown.value.message
    assert ("handoffd add /nowhere" if name == "/nowhere" else "handoffd projects") == unknown.value.hint


async def test_of_many_projects_some_are_named(tmp_path: Path) -> None:
    """An answer is to be read."""
    async with house(tmp_path) as here:
        roots = [f"/srv/{number}" for number in range(23)]
        many = Register()
        many.awake |= {root: Project(root, here.services, ()) for root in roots}
        with pytest.raises(NotFound, match="and 3 more"):
            root_called("shop", many)
        for project in many.awake.values():
            project.dismiss()


def test_a_path_that_leads_nowhere_is_no_project(tmp_path: Path) -> None:
    """Links in a circle, a name that is too long, a character that no path can have."""
    (tmp_path / "round").symlink_to(tmp_path / "round")

    for name in (str(tmp_path / "round" / "x"), "/" + "x" * 5_000, "/a\0b"):
        with pytest.raises(NotFound):
            root_called(name, Register())
