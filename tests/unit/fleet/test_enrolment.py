"""The supervised projects in step with what the settings mean."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from tests.support.eventually import eventually
from tests.support.house import House, daemon, house, make_project, unwritable

from handoffd.fleet.enrolment import Enrolment
from handoffd.fleet.roster import Roster
from handoffd.settings.model import Settings


def project(root: Path) -> str:
    """Make a project of the protocol."""
    (root / ".ai").mkdir(parents=True)
    (root / ".ai/handoffd.yaml").touch()
    return str(root)


def wish(here: House, **sections: Any) -> None:
    """Put other settings in force."""
    values = here.services.settings.model_dump() | {"roster": {"scan_s": 0.05}} | sections
    here.services.settings = Settings.model_validate(values)


@asynccontextmanager
async def enrolling(tmp_path: Path, **sections: Any) -> AsyncIterator[tuple[House, Roster, Enrolment]]:
    """Lend a daemon that keeps its projects in step with the settings."""
    async with house(tmp_path) as here, daemon(here) as roster:
        wish(here, **sections)
        looking = Enrolment(here.services, roster)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(looking.run)
            yield here, roster, looking
            tasks.cancel_scope.cancel()


async def test_a_workspace_is_looked_through_again_and_again(tmp_path: Path) -> None:
    """What appears is brought; what the settings mean no more is let go."""
    first = project(tmp_path / "work" / "a")
    async with enrolling(tmp_path, workspaces=[str(tmp_path / "work")]) as (here, roster, looking):
        await eventually(lambda: roster.roots() == {first})
        second = project(tmp_path / "work" / "team" / "b")
        await eventually(lambda: roster.roots() == {first, second})
        await eventually(lambda: (looking.brought, looking.gone) == (2, 0))

        wish(here, workspaces=[{"path": str(tmp_path / "work"), "depth": 1}])
        await eventually(lambda: roster.roots() == {first})
        await eventually(lambda: looking.gone == 1)


async def test_it_looks_at_once_when_it_is_asked_to(tmp_path: Path) -> None:
    """Whoever asks is answered when all of it is through; or not in time, which does no harm."""
    async with enrolling(tmp_path, roster={"scan_s": 3600}) as (here, roster, looking):
        assert await looking.look_now(60)
        root = project(tmp_path / "work" / "a")
        wish(here, workspaces=[str(tmp_path / "work")], roster={"scan_s": 3600})

        assert await looking.look_now(60)

        assert {root} == roster.roots()
        assert not await looking.look_now(0)


async def test_what_cannot_be_had_is_noted_and_tried_again(tmp_path: Path) -> None:
    """A root, a pattern and a workspace that are not there; nothing else is held up."""
    there = project(tmp_path / "there")
    wanted = {
        "projects": [there, str(tmp_path / "late"), str(tmp_path / "none/*")],
        "workspaces": [str(tmp_path / "nowhere")],
    }
    async with enrolling(tmp_path, **wanted) as (_, roster, looking):
        await eventually(lambda: roster.roots() == {there} and len(looking.notes) == 3)
        assert {"projects", "workspaces"} == {note.partition(":")[0] for note in looking.notes}

        late = project(tmp_path / "late")
        await eventually(lambda: roster.roots() == {there, late} and len(looking.notes) == 2)


async def test_what_a_person_removed_is_only_named(tmp_path: Path) -> None:
    """With what brings it back."""
    root = project(tmp_path / "there")
    async with enrolling(tmp_path, projects=[root]) as (_, roster, looking):
        await eventually(lambda: roster.roots() == {root})
        await roster.remove(root)

        (note,) = await eventually(lambda: looking.notes)

        assert "removed by a person" in note
        assert f"`handoffd add {root}`" in note
        assert frozenset() == roster.roots()


async def test_a_workspace_may_only_name_what_it_finds(tmp_path: Path) -> None:
    """A person adds it."""
    root, work = project(tmp_path / "work" / "a"), str(tmp_path / "work")
    async with enrolling(tmp_path, workspaces=[{"path": work, "add": "ask"}]) as (_, roster, looking):
        (note,) = await eventually(lambda: looking.notes)
        assert f"`handoffd scan {work} --add`" in note
        assert frozenset() == roster.roots()

        await roster.add(root)
        assert () == looking.notes  # at once, not with the next look


async def test_what_is_named_is_added_as_the_workspace_means_it(tmp_path: Path) -> None:
    """The command that is told leaves out what it leaves out, and goes as deep."""
    work = tmp_path / "my work"
    project(work / "a/b/c")
    project(work / "old/x")
    space = {"path": str(work), "depth": 3, "exclude": ["old/"], "add": "ask"}
    async with enrolling(tmp_path, workspaces=[space]) as (_, _, looking):
        (note,) = await eventually(lambda: looking.notes)

        assert f"`handoffd scan '{work}' --depth 3 --exclude old/ --add`" in note
        assert "old/x" not in note


async def test_nothing_is_let_go_while_its_place_is_gone(tmp_path: Path) -> None:
    """An unmounted disk is no edit of the settings."""
    root = project(tmp_path / "disk" / "a")
    async with enrolling(tmp_path, workspaces=[str(tmp_path / "disk")]) as (_, roster, looking):
        await eventually(lambda: roster.roots() == {root})
        (tmp_path / "disk").rename(tmp_path / "away")
        await eventually(lambda: looking.notes != ())
        assert await looking.look_now(60)

        assert {root} == roster.roots()


async def test_a_link_that_is_gone_takes_no_project_with_it(tmp_path: Path) -> None:
    """Projects lie where it led, by names that the entry does not have."""
    root = project(tmp_path / "real" / "a")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    async with enrolling(tmp_path, workspaces=[str(tmp_path / "link")]) as (_, roster, looking):
        await eventually(lambda: roster.roots() == {root})
        assert await looking.look_now(60)
        assert {root} == roster.roots()
        (tmp_path / "link").unlink()
        await eventually(lambda: looking.notes != ())
        assert await looking.look_now(60)

        assert {root} == roster.roots()


async def test_a_walk_that_takes_long_is_not_begun_again_and_again(tmp_path: Path) -> None:
    """What it finds counts once it has found it; until then it is said that it goes on."""
    root = project(tmp_path / "work/zz/a")
    for number in range(3000):
        (tmp_path / f"work/{number}").mkdir()
    async with house(tmp_path) as here, daemon(here) as roster:
        wish(here, workspaces=[str(tmp_path / "work")])
        looking, notes = Enrolment(here.services, roster, walk_s=0.001), set[str]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(looking.run)

            def found() -> bool:
                notes.update(looking.notes)
                return roster.roots() == {root}

            await eventually(found)
            tasks.cancel_scope.cancel()
        assert any("is still being looked through (" in note for note in notes)


async def test_a_journal_that_takes_nothing_is_noted(tmp_path: Path) -> None:
    """And tried again."""
    found, named = project(tmp_path / "work" / "a"), project(tmp_path / "named")
    wanted = {"workspaces": [str(tmp_path / "work")], "projects": [named]}
    async with house(tmp_path) as here, daemon(here) as roster:
        wish(here, **wanted)
        looking = Enrolment(here.services, roster)
        async with anyio.create_task_group() as tasks:
            with unwritable(here, "projects"):
                tasks.start_soon(looking.run)
                await eventually(lambda: len(looking.notes) == 2)
            await eventually(lambda: roster.roots() == {found, named} and looking.notes == ())

            with unwritable(here, "projects", "UPDATE"):
                wish(here, projects=[named], workspaces=[])
                assert await looking.look_now(60)
                assert {found, named} == roster.roots()
            await eventually(lambda: roster.roots() == {named})
            tasks.cancel_scope.cancel()


async def test_named_roots_are_there_before_anything_is_looked_for(tmp_path: Path) -> None:
    """A daemon that says it is ready has those that need no walk."""
    root = make_project(tmp_path)
    found = project(tmp_path / "work" / "a")
    async with house(tmp_path) as here:
        wish(here, projects=[root], workspaces=[str(tmp_path / "work")])
        roster = Roster(here.services)
        await roster.load()

        await Enrolment(here.services, roster).named()

        assert {root} == roster.roots()
        assert found not in roster.roots()
        roster.close()
