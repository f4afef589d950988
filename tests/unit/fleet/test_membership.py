"""Projects that arrive and leave, many at a time, by a person or by the settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.eventually import eventually
from tests.support.house import HAND_OVER, INITIALISED, House, at, daemon, house, make_project, unwritable

from handoffd.engine.events import Started
from handoffd.errors import HandoffdError, InvalidFile, NotFound, Refused, StoreError
from handoffd.fleet.membership import LetGo
from handoffd.fleet.roster import Roster
from handoffd.journal.records import Origins
from handoffd.project.project import Project

HOLD = "while ! test -e $HOME/release; do sleep 0.02; done\n" + HAND_OVER
COMMAND = "auto: true\ntest: {command: [make, test]}\n"


def up(roster: Roster, root: str) -> Project:
    """Return a project that is up."""
    return roster._register.awake[root]


async def looked_at(roster: Roster, root: str) -> None:
    """Wait until the files of a project have been read."""
    found = await roster._loops.awake(root)
    await eventually(lambda: found.files.loaded)


async def test_a_found_project_is_supervised_without_trust(here: House, tmp_path: Path) -> None:
    """Dangerous settings in its files are held, also by the next daemon. An unusable path is left out."""
    root = make_project(tmp_path, settings=COMMAND)
    async with daemon(here) as roster:
        found = {f"{tmp_path}/caf\udce9": "/projects", root: "/projects"}
        assert (root,) == await roster.membership.bring(found)
        assert () == await roster.membership.bring({root: "/projects"})
        await looked_at(roster, root)
        assert "/projects" == (await roster.view(root)).brought_by
        assert {"auto", "test.command"} <= set(up(roster, root).files.held)

    async with daemon(here) as roster:
        await looked_at(roster, root)
        assert {"auto", "test.command"} <= set(up(roster, root).files.held)
        await roster.trust(root)
        assert () == up(roster, root).files.held


async def test_adding_a_found_project_makes_it_a_persons(here: House, tmp_path: Path) -> None:
    """It is trusted, and the settings do not remove it."""
    root = make_project(tmp_path, settings=COMMAND)
    async with daemon(here) as roster:
        await roster.membership.bring({root: "/projects"})

        view = await roster.add(root)

        assert (None, ("make", "test")) == (view.brought_by, view.test_command)
        assert LetGo() == await roster.membership.let_go([root])
        assert [root] == sorted(roster.roots())


async def test_the_settings_do_not_bring_back_a_removed_project(here: House, root: str) -> None:
    """Only `add` does, also in the next daemon."""
    async with daemon(here) as roster:
        await roster.membership.bring({root: "/projects"})
        await roster.remove(root)
        assert () == await roster.membership.bring({root: "/projects"})

    async with daemon(here) as roster:
        assert () == await roster.membership.bring({root: "/projects"})
        assert await roster.enrol(root, root) is None
        await roster.add(root)
        assert Origins(brought_by={}, kept_out=frozenset()) == await here.journal.origins()


async def test_a_project_that_left_returns_with_its_history(here: House, tmp_path: Path) -> None:
    """And with its trusted files."""
    root = make_project(tmp_path, settings=COMMAND)
    async with daemon(here) as roster:
        await roster.membership.bring({root: "/projects"})
        await roster.trust(root)
        await roster.give(root, INITIALISED)

        assert LetGo(gone=frozenset({root})) == await roster.membership.let_go([root])
        assert (0, ()) == (roster.count, await here.journal.projects())
        await roster.membership.bring({root: "/more"})

        await looked_at(roster, root)
        view = await roster.view(root)
        assert ("shop", "/more", 1) == (view.name, view.brought_by, len(view.tracks))
        assert () == up(roster, root).files.held


async def test_a_running_project_leaves_after_its_run(root: str, tmp_path: Path) -> None:
    """It starts nothing more; if the settings cover it again before, it stays."""
    async with house(tmp_path, HOLD) as here, daemon(here) as roster:
        await roster.membership.bring({root: "/projects"})
        await roster.trust(root)
        await roster.give(root, INITIALISED)
        await roster.give(root, Started(story="US-001", bootstrapped=True, by="eve"))
        await eventually(lambda: up(roster, root).executing)

        assert LetGo(busy=frozenset({root})) == await roster.membership.let_go([root])
        assert any("no longer name it" in warning for warning in (await roster.view(root)).warnings)
        roster.membership.keep([root])
        assert () == tuple(one for one in (await roster.view(root)).warnings if "no longer name it" in one)

        await roster.membership.let_go([root])
        (tmp_path / "release").touch()
        await eventually(lambda: not up(roster, root).running)
        assert LetGo(gone=frozenset({root})) == await roster.membership.let_go([root])


async def test_the_view_of_a_leaving_project_says_why(here: House, root: str) -> None:
    """And which command keeps it."""
    async with daemon(here) as roster:
        await roster.membership.bring({root: "/projects"})
        await roster.give(root, INITIALISED)
        (await roster._loops.awake(root)).leaving = True

        (track,) = (await roster.view(root)).tracks

        assert "no longer name it" in (track.waits_for or "")
        assert f"handoffd add {root}" == track.next_command


async def test_an_unwritable_journal_changes_nothing(here: House, root: str, tmp_path: Path) -> None:
    """A leaving project stays, with its loop; a new one does not arrive, and its caller gets the error."""
    other = project(tmp_path, "other")
    async with daemon(here) as roster:
        await roster.membership.bring({root: "/projects"})
        with unwritable(here, "projects", "UPDATE"), pytest.raises(StoreError):
            await roster.membership.let_go([root])
        bring = roster.membership.bring({other: "/projects"})
        with unwritable(here, "projects"):
            for arrival in (bring, roster.add(other), roster.enrol(other, other)):
                with pytest.raises(StoreError):
                    await arrival

        assert {root} == roster.roots()
        await roster._loops.awake(root)
        await eventually(up(roster, root).begun.is_set)
        assert other == (await roster.add(other)).project


async def test_many_projects_arrive_and_leave_together(here: House, tmp_path: Path) -> None:
    """In several transactions, also without a daemon."""
    found = {}
    for number in range(450):
        root = tmp_path / f"p{number:03}"
        (root / ".ai").mkdir(parents=True)
        found[str(root)] = "/projects"
    roster = Roster(here.services)
    await roster.load()

    assert tuple(found) == await roster.membership.bring(found)
    assert 450 == len(await here.journal.projects())
    assert LetGo(gone=frozenset(found)) == await roster.membership.let_go(list(found))
    assert () == await here.journal.projects()
    roster.close()


# --- projects that a person names -------------------------------------------------------------------
def project(base: Path, name: str, settings: str = "") -> str:
    """Make a project with settings of its own."""
    (base / name / ".ai").mkdir(parents=True)
    (base / name / ".ai/handoffd.yaml").write_text(settings)
    return str(base / name)


async def test_many_projects_are_added_and_trusted(here: House, tmp_path: Path) -> None:
    """A missing folder or unusable files stop only their own project; two paths of one folder are one."""
    roots = [project(tmp_path, f"p{number}", "test: {command: [make]}") for number in range(3)]
    broken, gone, link = (
        project(tmp_path, "broken", "auto: maybe\n"),
        str(tmp_path / "gone"),
        tmp_path / "link",
    )
    link.symlink_to(roots[0])
    async with daemon(here) as roster:
        outcome = await roster.add_many([str(link), *roots, broken, gone, roots[0]])

        errors = {root: type(error) for root, error in outcome.items() if isinstance(error, HandoffdError)}
        assert {broken: InvalidFile, gone: NotFound} == errors
        assert {str(link): roots[0], **dict(zip(roots, roots, strict=True))} == {
            path: root for path, root in outcome.items() if path not in errors
        }
        assert set(roots) == roster.roots()
        assert 3 == len(await here.journal.projects())
        trusted = await here.journal.trusted()
        assert all(trusted[root][".ai/handoffd.yaml"] for root in roots)


async def test_system_folders_and_own_state_are_refused(here: House, tmp_path: Path) -> None:
    """Also behind a link, from the settings, or in a workspace."""
    async with daemon(here) as roster:
        state = here.services.settings.state_dir
        (tmp_path / "link").symlink_to("/proc")
        for place in ("/proc", "/proc/self/task", str(tmp_path / "link"), str(state), str(state.parent)):
            with pytest.raises(Refused, match="can be no project"):
                await roster.add(place)
        with pytest.raises(Refused, match="handoffd keeps its own state there"):
            await roster.enrol(str(state), "/entry")

        assert () == await roster.membership.bring({str(state): "/entry"})
        assert 0 == roster.count


async def test_a_project_listed_in_the_settings_is_trusted(here: House, tmp_path: Path) -> None:
    """Like one that a person adds; but it leaves with its entry."""
    root = project(tmp_path, "shop", "test: {command: [make]}")
    async with daemon(here) as roster:
        assert root == await roster.enrol(root, "/entry")
        assert await roster.enrol(root, "/entry") is None

        view = await roster.view(root)
        assert ("/entry", ("make",)) == (view.brought_by, view.test_command)
        assert () == roster._register.awake[root].files.held
        assert {root} == (await roster.membership.let_go([root])).gone


async def test_adding_a_project_again_trusts_no_later_edit(here: House, tmp_path: Path) -> None:
    """An agent may have written it."""
    root = project(tmp_path, "shop")
    async with daemon(here) as roster:
        await roster.add(root)
        at(root, ".ai/handoffd.yaml").write_text("auto: true\n")

        await roster.add(root)

        assert "" == (await here.journal.trusted())[root][".ai/handoffd.yaml"]


@pytest.mark.parametrize("goes", ["removed", "let go"])
async def test_adding_a_former_found_project_trusts_it(here: House, tmp_path: Path, goes: str) -> None:
    """Although it was found before without trust."""
    root = project(tmp_path, "shop", "test: {command: [make]}")
    async with daemon(here) as roster:
        await roster.membership.bring({root: "/entry"})
        if goes == "removed":
            await roster.remove(root)
        else:
            await roster.membership.let_go([root])

        view = await roster.add(root)

        assert (("make",), ()) == (view.test_command, view.warnings)
        assert "test: {command: [make]}" == (await here.journal.trusted())[root][".ai/handoffd.yaml"]
