"""Projects that the settings bring and let go, many at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.eventually import eventually
from tests.support.house import HAND_OVER, INITIALISED, at, daemon, house, make_project, unwritable

from handoffd.engine.events import Started
from handoffd.errors import StoreError
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


async def test_what_is_found_is_supervised_and_not_trusted(tmp_path: Path) -> None:
    """What could do harm in its files is held, now and by the next daemon."""
    root = make_project(tmp_path, settings=COMMAND)
    async with house(tmp_path) as here:
        async with daemon(here) as roster:
            assert (root,) == await roster.membership.bring({root: "/projects"})
            assert () == await roster.membership.bring({root: "/projects"})
            await looked_at(roster, root)
            assert "/projects" == (await roster.view(root)).brought_by
            assert {"auto", "test.command"} <= set(up(roster, root).files.held)

        async with daemon(here) as roster:
            await looked_at(roster, root)
            assert {"auto", "test.command"} <= set(up(roster, root).files.held)
            await roster.trust(root)
            assert () == up(roster, root).files.held


async def test_a_persons_word_makes_it_theirs(tmp_path: Path) -> None:
    """It is trusted as what a person adds is, and the settings do not let it go."""
    root = make_project(tmp_path, settings=COMMAND)
    async with house(tmp_path) as here, daemon(here) as roster:
        await roster.membership.bring({root: "/projects"})

        view = await roster.add(root)

        assert (None, ("make", "test")) == (view.brought_by, view.test_command)
        assert LetGo() == await roster.membership.let_go([root])
        assert [root] == sorted(roster.roots())


async def test_what_a_person_removed_is_not_brought_back(tmp_path: Path) -> None:
    """By nothing but an `add`, also by the next daemon."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here:
        async with daemon(here) as roster:
            await roster.membership.bring({root: "/projects"})
            await roster.remove(root)
            assert () == await roster.membership.bring({root: "/projects"})

        async with daemon(here) as roster:
            assert () == await roster.membership.bring({root: "/projects"})
            assert await roster.enrol(root, root) is None
            await roster.add(root)
            assert Origins(brought_by={}, kept_out=frozenset()) == await here.journal.origins()


async def test_what_was_let_go_comes_back_with_its_history(tmp_path: Path) -> None:
    """And with what a person trusted."""
    root = make_project(tmp_path, settings=COMMAND)
    async with house(tmp_path) as here, daemon(here) as roster:
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


async def test_what_runs_goes_when_that_is_over(tmp_path: Path) -> None:
    """Nothing more is started meanwhile; what is meant again before stays and goes on."""
    root = make_project(tmp_path)
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


async def test_a_project_that_leaves_says_so(tmp_path: Path) -> None:
    """What it waits for, and what keeps it."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here, daemon(here) as roster:
        await roster.membership.bring({root: "/projects"})
        await roster.give(root, INITIALISED)
        (await roster._loops.awake(root)).leaving = True

        (track,) = (await roster.view(root)).tracks

        assert "no longer name it" in (track.waits_for or "")
        assert f"handoffd add {root}" == track.next_command


async def test_a_journal_that_takes_nothing_changes_nothing(tmp_path: Path) -> None:
    """Whoever was to go stays, with its loop; whoever was to come does not."""
    root, other = make_project(tmp_path), str(tmp_path / "other")
    async with house(tmp_path) as here, daemon(here) as roster:
        await roster.membership.bring({root: "/projects"})
        with unwritable(here, "projects", "UPDATE"), pytest.raises(StoreError):
            await roster.membership.let_go([root])
        with unwritable(here, "projects"), pytest.raises(StoreError):
            await roster.membership.bring({other: "/projects"})

        assert {root} == roster.roots()
        await roster._loops.awake(root)
        await eventually(up(roster, root).begun.is_set)


async def test_many_come_and_go_at_once(tmp_path: Path) -> None:
    """More than one transaction holds, without a daemon too."""
    async with house(tmp_path) as here:
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


async def test_a_name_that_cannot_be_recorded_is_left_out(tmp_path: Path) -> None:
    """The others come all the same."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here, daemon(here) as roster:
        assert (root,) == await roster.membership.bring(
            {f"{tmp_path}/caf\udce9": "/projects", root: "/projects"}
        )
        assert at(root, ".ai").is_dir()
