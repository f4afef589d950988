"""The loops of all projects: begun, ended, and made anew from the journal after a crash."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import anyio
import anyio.lowlevel
from structlog.testing import capture_logs
from tests.support.eventually import eventually
from tests.unit.supervise.making import House, house, make_project

from handoffd.engine.requests import Initialised, Noted
from handoffd.errors import HandoffdError
from handoffd.supervise.loops import Loops
from handoffd.supervise.project import Project
from handoffd.supervise.register import Register


class Watch:
    """Keeps the roots it hints about."""

    def __init__(self) -> None:
        self.roots: set[str] = set()
        self.degraded: dict[str, str] = {}

    def add(self, root: str) -> None:
        """Hint about this root from now on."""
        self.roots.add(root)

    def remove(self, root: str) -> None:
        """Hint about it no more."""
        self.roots.discard(root)


@asynccontextmanager
async def looping(here: House, projects: dict[str, Project], watch: Watch) -> AsyncIterator[Loops]:
    """Lend the running loops of `projects`."""
    register = Register()
    register.awake = projects
    loops = Loops(here.services, register)
    # The traceback of a crash is not printed: making it pretty holds up everybody for seconds.
    with capture_logs():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.services.notifier.run)
            tasks.start_soon(loops.run, watch)
            for root in tuple(projects):
                await projects[root].begun.wait()
            yield loops
            tasks.cancel_scope.cancel()
    for project in projects.values():
        project.dismiss()


async def test_every_project_has_its_loop_and_is_watched(tmp_path: Path) -> None:
    """From the start, and until its end."""
    async with house(tmp_path) as here:
        root, watch = make_project(tmp_path), Watch()
        projects = {root: Project(root, here.services, ())}
        async with looping(here, projects, watch) as loops:
            assert (True, {root}, True) == (loops.run_here, watch.roots, projects[root].main.lasting)

            await loops.end(root)
            await loops.end(root)

            assert (set(), False) == (watch.roots, projects[root].main.lasting)
        assert not loops.run_here


async def test_what_cannot_be_watched_is_told_with_what_happens_instead(tmp_path: Path) -> None:
    """A delay of half a minute is not to be taken for a hang; without a daemon nothing is watched at all."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        watch = Watch()
        async with looping(here, {root: Project(root, here.services, ())}, watch) as loops:
            assert loops.unwatched(root) is None
            watch.degraded[root] = ".ai is not a folder"

            told = "changes are seen by the sweep every 30 s, not at once: .ai is not a folder"
            assert (told, ".ai is not a folder") == (loops.unwatched(root), loops.swept(root))
        assert loops.unwatched(root) is None


async def test_a_crashed_project_is_made_anew_from_what_was_recorded(tmp_path: Path) -> None:
    """What it had in memory is not believed; people are told once, and see it in the status."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        before = Project(root, here.services, ())
        projects = {root: before}
        async with looping(here, projects, Watch()) as loops:
            await before.main.give(Initialised(project="shop"))

            before.main.post(Noted(text=b"no text"))  # type: ignore[arg-type]  # no reader lets it through

            await eventually(lambda: projects[root] is not before and projects[root].begun.is_set())
            after = projects[root]
            assert (1, "bootstrap") == (loops.crashes, after.main.track.state.step)  # type: ignore[union-attr]
            assert "started again" in (after.crash or "")
            assert "accepted" == (await after.main.give(Noted(text="still here"))).result.type
            await eventually(lambda: [notice.kind for notice in here.told.notices] == ["warning"])


async def test_a_crash_in_the_middle_of_a_commit_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Whoever waited for the commit did not hear of it; what was recorded counts."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        before = Project(root, here.services, ())
        projects = {root: before}

        async def note() -> None:
            with suppress(HandoffdError):
                await before.main.give(Noted(text="Mind the rounding."))

        async def fail() -> None:
            raise RuntimeError("a broken invariant of ours")

        async with looping(here, projects, Watch()):
            await before.main.give(Initialised(project="shop"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(note)
                for _ in range(4):  # until it waits for the journal
                    await anyio.lowlevel.checkpoint()
                before.main.begin("fail", fail)

            await eventually(lambda: projects[root] is not before and projects[root].begun.is_set())
            (stored,) = await here.journal.tracks()
            assert stored.track == projects[root].main.track


async def test_a_journal_that_cannot_be_read_ends_no_daemon(tmp_path: Path) -> None:
    """A project that crashed waits for it, and the others go on."""
    async with house(tmp_path) as here:
        root, other = make_project(tmp_path / "a"), make_project(tmp_path / "b")
        projects = {name: Project(name, here.services, ()) for name in (root, other)}
        before = projects[root]
        async with looping(here, projects, Watch()):
            await before.main.give(Initialised(project="shop"))
            body = _replace_body(here, "{}")
            before.main.post(Noted(text=b"no text"))  # type: ignore[arg-type]
            await eventually(lambda: before.dismissed)
            await eventually(lambda: before.crash)
            assert "accepted" == (await projects[other].main.give(Initialised(project="b"))).result.type
            _replace_body(here, body)

            await eventually(lambda: projects[root] is not before and projects[root].begun.is_set())
            assert projects[other].begun.is_set()


def _replace_body(here: House, body: str) -> str:
    """Write over what the journal has of the first track; return what was there."""
    with closing(sqlite3.connect(here.services.settings.journal, timeout=60)) as database:
        ((before,),) = database.execute("SELECT body FROM tracks LIMIT 1").fetchall()
        database.execute("UPDATE tracks SET body = ? WHERE body = ?", (body, before))
        database.commit()
    return str(before)


async def test_without_a_daemon_nothing_is_begun(tmp_path: Path) -> None:
    """A verb does its own work and leaves the rest."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        project = Project(root, here.services, ())
        register = Register()
        register.awake[root] = project
        loops = Loops(here.services, register)

        loops.begin(root)
        await anyio.wait_all_tasks_blocked()

        assert (False, False) == (loops.run_here, project.main.lasting)
        project.dismiss()
