"""Projects that a person names, one or many at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.house import at, daemon, house, unwritable

from handoffd.errors import HandoffdError, InvalidFile, NotFound, Refused, StoreError


def project(base: Path, name: str, settings: str = "") -> str:
    """Make a project with settings of its own."""
    (base / name / ".ai").mkdir(parents=True)
    (base / name / ".ai/handoffd.yaml").write_text(settings)
    return str(base / name)


async def test_many_are_added_and_trusted_and_the_rest_is_told_of(tmp_path: Path) -> None:
    """One that is no folder, or whose files cannot be used, keeps no other one out."""
    roots = [project(tmp_path, f"p{number}", "test: {command: [make]}") for number in range(3)]
    broken = project(tmp_path, "broken", "auto: maybe\n")
    gone = str(tmp_path / "gone")
    async with house(tmp_path) as here, daemon(here) as roster:
        outcome = await roster.add_many([*roots, broken, gone, roots[0]])

        errors = {root: type(error) for root, error in outcome.items() if isinstance(error, HandoffdError)}
        assert {broken: InvalidFile, gone: NotFound} == errors
        assert set(roots) == roster.roots()
        trusted = await here.journal.trusted()
        assert all(trusted[root][".ai/handoffd.yaml"] for root in roots)


async def test_two_names_of_one_folder_are_one_project(tmp_path: Path) -> None:
    """Each is answered with where it lies."""
    root = project(tmp_path, "shop")
    (tmp_path / "link").symlink_to(root)
    async with house(tmp_path) as here, daemon(here) as roster:
        outcome = await roster.add_many([str(tmp_path / "link"), root])

        assert {str(tmp_path / "link"): root, root: root} == outcome
        assert 1 == len(await here.journal.projects())


async def test_what_is_no_place_for_agents_is_not_supervised(tmp_path: Path) -> None:
    """Nor where a link leads there, the settings name it, or a workspace finds it; nothing is written."""
    async with house(tmp_path) as here, daemon(here) as roster:
        state = here.services.settings.state_dir
        (tmp_path / "link").symlink_to("/proc")
        for place in ("/proc", "/proc/self/task", str(tmp_path / "link"), str(state), str(state.parent)):
            with pytest.raises(Refused, match="can be no project"):
                await roster.add(place)
        with pytest.raises(Refused, match="handoffd keeps its own state there"):
            await roster.enrol(str(state), "/entry")

        assert () == await roster.membership.bring({str(state): "/entry"})
        assert 0 == roster.count


async def test_one_that_is_named_in_the_settings_is_trusted(tmp_path: Path) -> None:
    """As if a person had added it; but it is let go when its entry goes."""
    root = project(tmp_path, "shop", "test: {command: [make]}")
    async with house(tmp_path) as here, daemon(here) as roster:
        assert root == await roster.enrol(root, "/entry")
        assert await roster.enrol(root, "/entry") is None

        view = await roster.view(root)
        assert ("/entry", ("make",)) == (view.brought_by, view.test_command)
        assert () == roster._register.awake[root].files.held
        assert {root} == (await roster.membership.let_go([root])).gone


async def test_naming_it_again_trusts_nothing_anew(tmp_path: Path) -> None:
    """An agent may have edited what a person's own project says since."""
    root = project(tmp_path, "shop")
    async with house(tmp_path) as here, daemon(here) as roster:
        await roster.add(root)
        at(root, ".ai/handoffd.yaml").write_text("auto: true\n")

        await roster.add(root)

        assert "" == (await here.journal.trusted())[root][".ai/handoffd.yaml"]


@pytest.mark.parametrize("goes", ["removed", "let go"])
async def test_one_that_comes_again_by_a_person_is_trusted(tmp_path: Path, goes: str) -> None:
    """Though it was found before, and trusted by nobody."""
    root = project(tmp_path, "shop", "test: {command: [make]}")
    async with house(tmp_path) as here, daemon(here) as roster:
        await roster.membership.bring({root: "/entry"})
        if goes == "removed":
            await roster.remove(root)
        else:
            await roster.membership.let_go([root])

        view = await roster.add(root)

        assert (("make",), ()) == (view.test_command, view.warnings)
        assert "test: {command: [make]}" == (await here.journal.trusted())[root][".ai/handoffd.yaml"]


async def test_what_cannot_be_recorded_is_not_supervised(tmp_path: Path) -> None:
    """Whoever asked is told, in both ways of asking."""
    root = project(tmp_path, "shop")
    async with house(tmp_path) as here, daemon(here) as roster:
        with unwritable(here, "projects"):
            with pytest.raises(StoreError):
                await roster.add(root)
            with pytest.raises(StoreError):
                await roster.enrol(root, root)

        assert frozenset() == roster.roots()
        assert root == (await roster.add(root)).project
