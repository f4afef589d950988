"""Reading everything again that people write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from tests.support.eventually import eventually
from tests.support.house import House, at, daemon, house, make_project

from handoffd.errors import StoreError
from handoffd.fleet.enrolment import Enrolment
from handoffd.fleet.reloading import Reloading, Renewal
from handoffd.fleet.roster import Roster
from handoffd.settings.loading import Given


@asynccontextmanager
async def renewing(
    tmp_path: Path, reloaded: type[Roster] = Roster
) -> AsyncIterator[tuple[House, Roster, Renewal, Path]]:
    """Lend a daemon that follows its settings, and their file; a change reloads the roster `reloaded`."""
    async with house(tmp_path) as here, daemon(here) as roster:
        file = tmp_path / "handoffd.yaml"
        write(here, file, "")
        given = Given(flags={"config": str(file)}, environ={"HOME": str(tmp_path)})
        here.services.settings = given.load().settings
        enrolling = Enrolment(here.services, roster)
        reloading = Reloading(here.services, given, file, look_s=0.01)
        renewal = Renewal(reloading, enrolling, roster if reloaded is Roster else reloaded(here.services))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enrolling.run)
            tasks.start_soon(renewal.follow)
            yield here, roster, renewal, file
            tasks.cancel_scope.cancel()


def write(here: House, file: Path, text: str) -> None:
    """Replace the settings."""
    new = file.with_suffix(".new")
    base = f"state_dir: {here.services.settings.state_dir}\nruntime_dir: {here.base / 'run'}\n"
    new.write_text(base + text)
    new.rename(file)


async def test_a_reload_reads_everything_again(tmp_path: Path) -> None:
    """The settings, the places of projects, and the projects' own files."""
    root = make_project(tmp_path)
    async with renewing(tmp_path) as (here, roster, renewal, file):
        write(here, file, f"projects: [{root}]\n")

        first = await renewal.renew()

        assert {root} == roster.roots()
        assert ((), ()) == (first.settings.problems, first.problems)
        at(root, ".ai/handoffd.yaml").write_text("auto: maybe\n")
        write(here, file, "execute: {slots: 0}\n")
        second = await renewal.renew()
        assert ["execute.slots"] == [problem.key for problem in second.settings.problems]
        assert [root] == [problem.partition(":")[0] for problem in second.problems]
        assert (0, frozenset({root})) == (second.let_go, roster.roots())
        assert "1 problem (handoffd config check)" == renewal.trouble
        assert "execute.slots" in renewal.warnings[0]

        write(here, file, "")
        third = await renewal.renew()
        assert (1, frozenset()) == (third.let_go, roster.roots())
        assert [None] == [renewal.trouble, *renewal.warnings]


async def test_the_settings_file_is_followed(tmp_path: Path) -> None:
    """Without a request."""
    root = make_project(tmp_path)
    async with renewing(tmp_path) as (here, roster, _, file):
        write(here, file, f"projects: [{root}]\n")
        await eventually(lambda: roster.roots() == {root})

        write(here, file, f"projects: [{root}]\nlanguage: zh-TW\n")
        await eventually(lambda: here.services.settings.language == "zh-TW")
        assert {root} == roster.roots()


class Deaf(Roster):
    """A roster that fails to reload."""

    async def reload(self) -> tuple[str, ...]:
        """Fail like an unreadable journal."""
        raise StoreError("the journal cannot be read")


async def test_an_unreadable_journal_does_not_stop_following(tmp_path: Path) -> None:
    """Later changes of the settings apply."""
    async with renewing(tmp_path, Deaf) as (here, _, _, file):
        write(here, file, "language: zh-TW\n")
        await eventually(lambda: here.services.settings.language == "zh-TW")
        write(here, file, "execute: {slots: 7}\n")
        await eventually(lambda: here.services.settings.execute.slots == 7)
