"""Hints about projects at rest: visits, their findings, and waking."""

from __future__ import annotations

from pathlib import Path

import anyio
from tests.support.eventually import eventually
from tests.support.house import NOW, House, at, daemon, make_project

from handoffd.engine.events import Initialised
from handoffd.errors import NotFound, StoreError
from handoffd.fleet.loops import VISITED_AT_ONCE, Rounds
from handoffd.fleet.register import Register, load
from handoffd.project.rest import Row


class Woken:
    """Records woken roots; with an `error`, waking fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.roots: list[str] = []
        self.error = error

    async def __call__(self, root: str) -> None:
        """Wake a project."""
        self.roots.append(root)
        if self.error is not None:
            raise self.error


class Walk:
    """The rounds of a house, and the projects that they woke."""

    def __init__(self, here: House, error: Exception | None = None) -> None:
        self.register = Register()
        self.woken = Woken(error)
        self.rounds = Rounds(here.services, self.register, self.woken, retry_s=0.01)
        self._here = here

    async def load(self) -> None:
        """Load the journal's projects like a new daemon."""
        await load(self.register, self._here.services)

    async def look(self, *roots: str) -> list[str]:
        """Hint at these; return the woken ones."""
        self.woken.roots.clear()
        async with anyio.create_task_group() as tasks:
            for root in roots:
                self.rounds.hint(root)
            self.rounds.been = anyio.Event()
            tasks.start_soon(self.rounds.run)
            await self.rounds.been.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        return self.woken.roots


async def known(here: House, *roots: str) -> None:
    """Record initialised projects in the journal."""
    async with daemon(here) as roster:
        for root in roots:
            await roster.add(root)
            await roster.give(root, Initialised(project=root[-6]))


async def test_the_first_visit_records_the_folder(here: House, tmp_path: Path) -> None:
    """Later visits compare with that; no project wakes for the first one."""
    root = make_project(tmp_path / "a")
    await known(here, root)
    walk = Walk(here)
    await walk.load()

    assert [] == await walk.look(root)
    row = walk.register.resting[root]
    assert (True, None) == (row.trace is not None, row.states)
    assert row.folder is not None
    assert row.folder.endswith(".lock")
    assert [] == await walk.look(root)

    at(root, ".ai/STATE.json").write_text("{}")
    assert [root] == await walk.look(root)


async def test_changes_between_two_daemons_wake_a_project(here: House, tmp_path: Path) -> None:
    """An edit, a missing file, half a write, a missing project."""
    edited, bare, half, gone, same = (make_project(tmp_path / name) for name in "abcde")
    await known(here, edited, bare, half, gone, same)
    at(edited, ".ai/STATE.json").write_text("{}")
    at(bare, ".ai/STATE.json").unlink()
    at(half, ".ai/.STATE.json.x.tmp~").write_text("{")
    at(gone, ".").rename(tmp_path / "moved")
    walk = Walk(here)
    await walk.load()

    assert {edited, bare, gone} <= set(await walk.look(edited, bare, half, gone, same))
    assert walk.register.resting[same].trace is not None


async def test_files_that_need_an_action_wake_their_project(here: House, tmp_path: Path) -> None:
    """Trusted and unchanged files do not, so most projects are never built at the start."""
    plain = make_project(tmp_path / "a", settings="language: zh-TW\n")
    broken = make_project(tmp_path / "b")
    auto = make_project(tmp_path / "c")
    held = make_project(tmp_path / "d")
    await known(here, plain, broken, auto, held)
    at(held, ".ai/handoffd.yaml").write_text("test: {command: [make]}\n")
    at(broken, ".ai/handoffd.yaml").write_text("tset: {}\n")
    for name in (".ai/handoffd.yaml",):
        at(auto, name).write_text("auto: true\n")
        await here.journal.trust(auto, name, "auto: true\n", NOW)
    walk = Walk(here)
    await walk.load()

    assert {broken, auto, held} == set(await walk.look(plain, broken, auto, held))


async def test_the_second_path_to_a_folder_wakes_its_project(here: House, tmp_path: Path) -> None:
    """It wakes to report the conflict."""
    root = make_project(tmp_path / "a", rules=None)
    other = tmp_path / "other"
    other.symlink_to(root)
    walk = Walk(here)
    for path in (root, str(other)):
        walk.register.lay_down(path, Row(name="x", automatic=True, tracks=("main",), states={"main": None}))

    assert [str(other)] == await walk.look(root, str(other))


async def test_many_projects_are_visited_in_batches(here: House) -> None:
    """Each once."""
    walk = Walk(here)
    roots = [f"/srv/gone/{number}" for number in range(2 * VISITED_AT_ONCE + 1)]
    for root in roots:
        row = Row(name=root, automatic=True, tracks=("main",), states={"main": None})
        walk.register.lay_down(root, row)

    assert sorted(roots) == sorted(await walk.look(*roots))
    walk.woken.roots.clear()
    await walk.rounds.visit_all()
    assert sorted(roots) == sorted(walk.woken.roots)


async def test_a_hint_drops_the_cached_view(here: House) -> None:
    """The files may have changed since; one about an unknown project may be late, and is ignored."""
    walk = Walk(here)
    assert [] == await walk.look("/srv/gone")
    row = Row(name="x", automatic=True, tracks=("main",), states=None, trace=b"")
    walk.register.lay_down("/a", row)
    walk.rounds.hint("/a")
    assert (None, 1) == (row.view, row.hints)


async def test_a_project_that_cannot_be_built_is_tried_again(here: House) -> None:
    """Unless it was removed meanwhile."""
    for error, tries in ((StoreError("the journal cannot be read"), 3), (NotFound("gone"), 1)):
        walk = Walk(here, error)
        row = Row(name="x", automatic=True, tracks=("main",), states={"main": "d"})
        walk.register.lay_down("/srv/gone", row)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(walk.rounds.run)
            walk.rounds.hint("/srv/gone")
            await eventually(lambda: len(walk.woken.roots) >= tries)  # noqa: B023
            await walk.rounds.been.wait()
            tasks.cancel_scope.cancel()
        assert ["/srv/gone"] == walk.woken.roots or tries > 1


async def test_hints_wait_for_an_unreadable_journal(here: House, root: str) -> None:
    """They are followed later."""
    walk = Walk(here)
    walk.register.lay_down(root, Row(name="x", automatic=True, tracks=("main",), states={"main": None}))
    await here.journal.close()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(walk.rounds.run)
        walk.rounds.hint(root)
        await eventually(lambda: walk.register.resting[root].hints > 2)
        tasks.cancel_scope.cancel()
    assert (None, []) == (walk.register.resting[root].trace, walk.woken.roots)
