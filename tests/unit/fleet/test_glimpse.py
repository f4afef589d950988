"""What is told of projects at rest: right, kept until a hint, and without waking them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
from tests.support.house import House, at, daemon, house, make_project

from handoffd.engine.events import Initialised
from handoffd.engine.views import ProjectView
from handoffd.fleet.register import Register, load
from handoffd.fleet.status import _READ_AT_ONCE, glimpse
from handoffd.project.rest import Row


async def told(here: House, *roots: str) -> dict[str, ProjectView]:
    """Add and initialise projects; return what is told of them while they are up, but for `called`."""
    async with daemon(here) as roster:
        for root in roots:
            await roster.add(root)
            await roster.give(root, Initialised(project=root[-6]))
        return {root: replace(await roster.view(root), called=None) for root in roots}


async def test_at_rest_the_same_is_told_as_before(tmp_path: Path) -> None:
    """Of the journal's track, and of the project's own files."""
    async with house(tmp_path) as here:
        roots = [make_project(tmp_path / name, settings=f"language: {name}\n") for name in ("en", "zh-TW")]
        before = await told(here, *roots)
        register = Register()
        await load(register, here.services)

        assert before == await glimpse(roots, register, here.services)
        assert [before[root] for root in roots] == [register.resting[root].view for root in roots]
        assert (before, {}) == (await glimpse(roots, register, here.services), register.awake)


async def test_what_is_held_is_told(tmp_path: Path) -> None:
    """A file that says something else than a person has trusted is not in force."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        await told(here, root)
        at(root, ".ai/handoffd.yaml").write_text("test: {command: [make]}\n")
        register = Register()
        await load(register, here.services)

        view = (await glimpse([root], register, here.services))[root]
        assert (None, True) == (view.test_command, "test.command waits for" in view.warnings[0])


async def test_a_folder_that_is_gone_is_told_of_by_the_journal(tmp_path: Path) -> None:
    """That it is gone, its own look says."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        await told(here, root)
        at(root, ".").rename(tmp_path / "moved")
        register = Register()
        await load(register, here.services)

        (view,) = (await glimpse([root], register, here.services)).values()
        assert "bootstrap" == view.tracks[0].step


async def test_a_hint_that_comes_meanwhile_is_not_overlooked(tmp_path: Path) -> None:
    """What was read before it is told, and not kept."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        await told(here, root)
        register = Register()
        await load(register, here.services)
        row = register.resting[root]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(glimpse, [root], register, here.services)
            await anyio.lowlevel.checkpoint()
            row.hints += 1
        assert row.view is None


async def test_strangers_and_those_that_are_up_are_left_out(tmp_path: Path) -> None:
    """Somebody else tells of them; many are read in turns."""
    async with house(tmp_path) as here:
        register = Register()
        roots = [f"/srv/gone/{number}" for number in range(_READ_AT_ONCE + 1)]
        for root in roots:
            register.lay_down(root, Row(name="x", automatic=True, tracks=("main",), states=None))

        views = await glimpse([*roots, "/srv/stranger"], register, here.services)

        assert sorted(roots) == sorted(views)
