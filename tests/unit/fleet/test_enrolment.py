"""Projects that come and go as the settings change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.house import House, daemon, house, unwritable

from handoffd.fleet.enrolment import Enrolment, Placed, arrivals, departures
from handoffd.fleet.roster import Roster
from handoffd.inspection.discovery import Wanted, wanted_of
from handoffd.settings.model import Settings


def project(root: Path) -> str:
    """Make a project of the protocol."""
    (root / ".ai").mkdir(parents=True)
    (root / ".ai/handoffd.yaml").touch()
    return str(root)


def wish(here: House, **sections: Any) -> None:
    """Apply other settings."""
    values = here.services.settings.model_dump() | {"roster": {"scan_s": 0.05}} | sections
    here.services.settings = Settings.model_validate(values)


@asynccontextmanager
async def enrolling(tmp_path: Path, **sections: Any) -> AsyncIterator[tuple[House, Roster, Enrolment]]:
    """Lend a daemon that follows the projects of its settings."""
    async with house(tmp_path) as here, daemon(here) as roster:
        wish(here, **sections)
        looking = Enrolment(here.services, roster)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(looking.run)
            yield here, roster, looking
            tasks.cancel_scope.cancel()


async def test_a_workspace_is_scanned_repeatedly(tmp_path: Path) -> None:
    """New projects arrive, and projects that it no longer covers leave."""
    first = project(tmp_path / "work" / "a")
    async with enrolling(tmp_path, workspaces=[str(tmp_path / "work")]) as (here, roster, looking):
        await eventually(lambda: roster.roots() == {first})
        second = project(tmp_path / "work" / "team" / "b")
        await eventually(lambda: roster.roots() == {first, second})
        await eventually(lambda: (looking.brought, looking.gone) == (2, 0))

        wish(here, workspaces=[{"path": str(tmp_path / "work"), "depth": 1}])
        await eventually(lambda: roster.roots() == {first})
        await eventually(lambda: looking.gone == 1)


async def test_a_scan_on_request_starts_at_once(tmp_path: Path) -> None:
    """The answer comes after the whole scan, or says that the time was too short."""
    async with enrolling(tmp_path, roster={"scan_s": 3600}) as (here, roster, looking):
        assert await looking.look_now(60)
        root = project(tmp_path / "work" / "a")
        wish(here, workspaces=[str(tmp_path / "work")], roster={"scan_s": 3600})

        assert await looking.look_now(60)

        assert {root} == roster.roots()
        assert not await looking.look_now(0)


async def test_missing_entries_are_noted_and_tried_again(tmp_path: Path) -> None:
    """A path, a pattern and a workspace that do not exist hold up nothing else."""
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


async def test_a_project_that_a_person_removed_is_only_noted(tmp_path: Path) -> None:
    """The note has the command that brings it back."""
    root = project(tmp_path / "there")
    async with enrolling(tmp_path, projects=[root]) as (_, roster, looking):
        await eventually(lambda: roster.roots() == {root})
        await roster.remove(root)

        (note,) = await eventually(lambda: looking.notes)

        assert "removed by a person" in note
        assert f"`handoffd add {root}`" in note
        assert frozenset() == roster.roots()


async def test_a_workspace_may_only_suggest_projects(tmp_path: Path) -> None:
    """A person adds them; the suggested command has the same depth and exclusions."""
    work = tmp_path / "my work"
    root, _ = project(work / "a/b/c"), project(work / "old/x")
    space = {"path": str(work), "depth": 3, "exclude": ["old/"], "add": "ask"}
    async with enrolling(tmp_path, workspaces=[space]) as (_, roster, looking):
        (note,) = await eventually(lambda: looking.notes)
        assert f"`handoffd scan '{work}' --depth 3 --exclude old/ --add`" in note
        assert "old/x" not in note
        assert frozenset() == roster.roots()

        await roster.add(root)
        assert () == looking.notes  # at once, not with the next scan


async def test_a_long_walk_is_not_restarted(here: House, tmp_path: Path) -> None:
    """A note reports its progress, and its result counts once it is there."""
    root = project(tmp_path / "work/zz/a")
    for number in range(3000):
        (tmp_path / f"work/{number}").mkdir()
    async with daemon(here) as roster:
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


async def test_an_unwritable_journal_is_noted_and_tried_again(here: House, tmp_path: Path) -> None:
    """For arrivals and for departures."""
    found, named = project(tmp_path / "work" / "a"), project(tmp_path / "named")
    wanted = {"workspaces": [str(tmp_path / "work")], "projects": [named]}
    async with daemon(here) as roster:
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


async def test_listed_projects_need_no_scan(here: House, root: str, tmp_path: Path) -> None:
    """A daemon that is ready supervises them."""
    found = project(tmp_path / "work" / "a")
    wish(here, projects=[root], workspaces=[str(tmp_path / "work")])
    roster = Roster(here.services)
    await roster.load()

    await Enrolment(here.services, roster).named()

    assert {root} == roster.roots()
    assert found not in roster.roots()
    roster.close()


# --- entries as values -----------------------------------------------------------------------------
def wanted(**sections: object) -> tuple[Wanted, ...]:
    """Return the entries of these settings."""
    return wanted_of(Settings.model_validate({"state_dir": "/s", "runtime_dir": "/r", **sections}))


def placed(base: str | None, **sections: object) -> Placed:
    """Return the only entry of these settings, with its base."""
    (one,) = wanted(**sections)
    return Placed(wanted=one, base=base)


WORK = placed("/projects", workspaces=["/projects"])
LISTED = placed("/srv/c", projects=["/srv/c"])
FLAT = placed("/projects", workspaces=[{"path": "/projects", "depth": 1}])
WITHOUT_X = placed("/projects", workspaces=[{"path": "/projects", "exclude": ["/x/"]}])
UNMOUNTED = placed(None, workspaces=["/projects"])
LINKED = placed("/data", workspaces=["/projects"])
NESTED = {"/projects/a": "/projects", "/projects/x/b": "/projects", "/srv/c": "/srv/*"}


@pytest.mark.parametrize(
    ("brought_by", "entries", "leaving"),
    [
        pytest.param(
            {"/projects/a": "/projects", "/projects/b": "/gone/*", "/srv/c": "/srv/c"}, (WORK, LISTED), set(),
            id="covered by its own or another entry",
        ),
        pytest.param(NESTED, (FLAT,), {"/projects/x/b", "/srv/c"}, id="too deep"),
        pytest.param(NESTED, (WITHOUT_X,), {"/projects/x/b", "/srv/c"}, id="excluded"),
        pytest.param(NESTED, (), set(NESTED), id="no entry left"),
        pytest.param({"/data/a": "/projects", "/data/b": "/other"}, (UNMOUNTED,), {"/data/b"}, id="no disk"),
        pytest.param({"/data/a": "/projects"}, (LINKED,), set(), id="behind a link"),
    ],
)  # fmt: skip
def test_only_projects_without_an_entry_leave(
    brought_by: dict[str, str], entries: tuple[Placed, ...], leaving: set[str]
) -> None:
    """A missing base does not count: the settings have not changed."""
    assert leaving == departures(brought_by, entries)


def test_thousands_of_listed_projects_are_not_compared_with_each_other() -> None:
    """Each is looked up: comparing all pairs took minutes."""
    roots = [f"/srv/{number}" for number in range(20_000)]
    entries = tuple(Placed(wanted=one, base=one.base) for one in wanted(projects=roots[1:]))

    assert {roots[0]} == departures(dict(zip(roots, roots, strict=True)), entries)


def test_new_projects_arrive_in_the_order_of_the_scan() -> None:
    """Without known projects and projects that a person removed; a listed path covers no folder below it."""
    assert ("/b", "/d") == arrivals(["/b", "/a", "/c", "/d"], {"/a"}, {"/c"})
    assert (True, False) == (LISTED.covers("/srv/c"), LISTED.covers("/srv/c/d"))
