"""Who is up and who rests, and what they are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.house import house, track_of

from handoffd.engine.track import TrackKey
from handoffd.fleet.register import Register, name_of
from handoffd.journal.records import StoredTrack
from handoffd.project.project import Project
from handoffd.project.rest import Row


def row(name: str) -> Row:
    """Return a project at rest."""
    return Row(name=name, automatic=True, tracks=("main",), states=None)


def test_a_root_is_up_or_at_rest_or_a_stranger() -> None:
    """Counted once."""
    register = Register()
    register.lay_down("/a", row("a"))

    assert (True, False, 1, ["/a"]) == ("/a" in register, "/b" in register, len(register), list(register))
    register.forget("/a")
    register.forget("/a")
    assert (0, {}) == (len(register), register.resting)


async def test_who_gets_up_rests_no_longer(tmp_path: Path) -> None:
    """And the other way round."""
    async with house(tmp_path) as here:
        register, project = Register(), Project("/srv/shop", here.services, ())
        register.lay_down(project.root, row("old"))

        register.get_up(project.root, project)
        assert ({}, [project], 1) == (register.resting, list(register.awake.values()), len(register))
        assert ([project.root], []) == (register.called("shop"), register.called("old"))

        register.lay_down(project.root, row("shop"))
        assert ({}, ["shop"]) == (register.awake, [found.name for found in register.resting.values()])
        project.dismiss()


async def test_a_project_is_called_by_its_state_else_by_its_folder(tmp_path: Path) -> None:
    """As `status` shows it, up or at rest."""
    async with house(tmp_path) as here:
        stored = StoredTrack(key=TrackKey("/srv/x"), track=track_of(), seq=1, digest=None)
        register = Register()
        register.awake["/srv/x"] = Project("/srv/x", here.services, (stored,))
        register.awake["/srv/till"] = Project("/srv/till", here.services, ())
        register.lay_down("/srv/y", row("yard"))

        assert ["shop", "till", "yard"] == [register.name_of(root) for root in register]
        assert "shop" == name_of(register.awake["/srv/x"])
        for project in register.awake.values():
            project.dismiss()


async def test_a_name_that_several_have_is_nobodys(tmp_path: Path) -> None:
    """Whether they are up or at rest; until only one is left."""
    async with house(tmp_path) as here:
        register = Register()
        for root in ("/a", "/b", "/c"):
            register.lay_down(root, row("shop"))
        register.awake["/shop"] = Project("/shop", here.services, ())

        assert ["/shop", "/a", "/b", "/c"] == register.called("shop")
        assert {root: root for root in register} == dict(register.names())
        for root in ("/a", "/b", "/shop"):
            register.forget(root)
        assert (["/c"], {"/c": "shop"}) == (register.called("shop"), dict(register.names()))
        register.forget("/c")
        assert ([], 0) == (register.called("shop"), len(register.names()))
        with pytest.raises(KeyError):
            register.names()["/c"]


def test_guests_are_counted_until_they_go() -> None:
    """Also when what they asked failed."""
    register = Register()
    with register.guest("/a"), register.guest("/a"):
        assert (2, 0) == (register.guests("/a"), register.guests("/b"))
    with pytest.raises(RuntimeError), register.guest("/a"):
        raise RuntimeError
    assert 0 == register.guests("/a")
