"""Whether a project's folder answers: asked before anything else is, and given up after a moment."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.house import house, make_project

from handoffd.errors import NotFound, StoreError
from handoffd.files.locks import project_lock_path
from handoffd.track.reach import FEW, Reach, resolved


async def test_what_a_look_finds_and_what_it_raises_come_back(tmp_path: Path) -> None:
    """A folder that is gone is not the same as silence."""
    async with house(tmp_path) as here:
        reach = Reach(make_project(tmp_path), here.services.asking)

        with pytest.raises(StoreError, match="gone"):
            await reach.asked(partial(project_lock_path, tmp_path, tmp_path / "nowhere"))

        assert "found" == await reach.asked(lambda: "found")


async def test_a_folder_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    """It is asked again later."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        reach = Reach(root, here.services.asking)

        with pytest.raises(StoreError, match="does not answer"):
            await reach.asked(lambda: "found", limit_s=0)
        with pytest.raises(StoreError, match="does not answer"):
            await resolved(root, limit_s=0)

        assert "found" == await reach.asked(lambda: "found")


async def test_few_are_asked_at_once(tmp_path: Path) -> None:
    """A sweep that finds hundreds of projects changed starts no hundreds of threads."""
    inside, answers = list[int](), threading.Event()

    def look() -> None:
        inside.append(threading.get_ident())
        answers.wait(60)

    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        for number in range(3 * FEW):
            tasks.start_soon(Reach(str(tmp_path / f"p{number}"), here.services.asking).asked, look, 60)
        asking = here.services.asking
        await eventually(lambda: (FEW, 2 * FEW) == (len(inside), asking.statistics().tasks_waiting))
        answers.set()

    assert 3 * FEW == len(inside)


async def test_a_root_is_resolved_once(tmp_path: Path) -> None:
    """Two ways to one folder are one project; a file is none."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shop")
    (tmp_path / "file").touch()

    assert str(tmp_path / "shop") == await resolved(str(tmp_path / "link"))
    for none in ("file", "nowhere", "a\0b"):
        with pytest.raises(NotFound):
            await resolved(str(tmp_path / none))
