"""Whether a project's folder answers: asked before anything else is, and given up after a moment."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.unit.supervise.making import house, make_project

from handoffd.errors import NotFound, StoreError
from handoffd.store.lock import project_lock_path
from handoffd.supervise.reach import Reach, resolved


async def test_what_a_look_finds_and_what_it_raises_come_back(tmp_path: Path) -> None:
    """A folder that is gone is not the same as silence."""
    async with house(tmp_path) as here:
        reach = Reach(make_project(tmp_path), here.services)

        with pytest.raises(StoreError, match="gone"):
            await reach.asked(partial(project_lock_path, tmp_path, tmp_path / "nowhere"))

        assert "found" == await reach.asked(lambda: "found")


async def test_a_folder_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    """It is asked again later."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        reach = Reach(root, here.services)

        with pytest.raises(StoreError, match="does not answer"):
            await reach.asked(lambda: "found", limit_s=0)
        with pytest.raises(StoreError, match="does not answer"):
            await resolved(root, limit_s=0)

        assert "found" == await reach.asked(lambda: "found")


async def test_a_root_is_resolved_once(tmp_path: Path) -> None:
    """Two ways to one folder are one project; a file is none."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shop")
    (tmp_path / "file").touch()

    assert str(tmp_path / "shop") == await resolved(str(tmp_path / "link"))
    for none in ("file", "nowhere", "a\0b"):
        with pytest.raises(NotFound):
            await resolved(str(tmp_path / none))
