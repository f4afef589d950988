"""Whether a project's folder answers: asked before anything else is, and given up after a moment."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.supervise.making import house, make_project

from handoffd.errors import NotFound, StoreError
from handoffd.store.faults import PROJECT_GONE
from handoffd.store.lock import project_lock_path
from handoffd.supervise.reach import Reach, resolved


async def test_a_folder_that_answers_has_its_lock(tmp_path: Path) -> None:
    """By what lies at the root, not by its name."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)

        path = await Reach(root, here.services).lock_path()

        assert project_lock_path(here.services.settings.state_dir, Path(root)) == path


async def test_a_folder_that_is_gone_says_so(tmp_path: Path) -> None:
    """Which is not the same as silence."""
    async with house(tmp_path) as here:
        with pytest.raises(StoreError) as gone:
            await Reach(str(tmp_path / "nowhere"), here.services).lock_path()

        assert PROJECT_GONE == gone.value.code


async def test_a_folder_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    """It is asked again later."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        reach = Reach(root, here.services)

        with pytest.raises(StoreError, match="does not answer"):
            await reach.lock_path(limit_s=0)
        with pytest.raises(StoreError, match="does not answer"):
            await resolved(root, limit_s=0)

        assert "locks" == (await reach.lock_path()).parent.name


async def test_a_root_is_resolved_once(tmp_path: Path) -> None:
    """Two ways to one folder are one project; a file is none."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shop")
    (tmp_path / "file").touch()

    assert str(tmp_path / "shop") == await resolved(str(tmp_path / "link"))
    for none in ("file", "nowhere"):
        with pytest.raises(NotFound):
            await resolved(str(tmp_path / none))
