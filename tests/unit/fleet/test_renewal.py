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
    tmp_path: Path, told: type[Roster] = Roster
) -> AsyncIterator[tuple[House, Roster, Renewal, Path]]:
    """Lend a daemon that keeps up with its settings, and their file. `told`: who hears of a change."""
    async with house(tmp_path) as here, daemon(here) as roster:
        file = tmp_path / "handoffd.yaml"
        write(here, file, "")
        given = Given(flags={"config": str(file)}, environ={"HOME": str(tmp_path)})
        here.services.settings = given.load().settings
        enrolling = Enrolment(here.services, roster)
        renewal = Renewal(
            Reloading(here.services, given, file),
            enrolling,
            roster if told is Roster else told(here.services),
        )
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


async def test_all_of_it_is_read_again_when_asked(tmp_path: Path) -> None:
    """Settings, where projects lie, and what projects' own files say."""
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


async def test_what_the_file_says_is_followed(tmp_path: Path) -> None:
    """Nobody has to ask."""
    root = make_project(tmp_path)
    async with renewing(tmp_path) as (here, roster, _, file):
        write(here, file, f"projects: [{root}]\n")
        await eventually(lambda: roster.roots() == {root})

        write(here, file, f"projects: [{root}]\nlanguage: zh-TW\n")
        await eventually(lambda: here.services.settings.language == "zh-TW")
        assert {root} == roster.roots()


class Deaf(Roster):
    """A roster that cannot be told to look again."""

    async def reload(self) -> tuple[str, ...]:
        """Fail as a journal does that cannot be read."""
        raise StoreError("the journal cannot be read")


async def test_a_journal_that_cannot_be_read_is_no_end(tmp_path: Path) -> None:
    """What changes in the settings after that is followed as ever."""
    async with renewing(tmp_path, Deaf) as (here, _, _, file):
        write(here, file, "language: zh-TW\n")
        await eventually(lambda: here.services.settings.language == "zh-TW")
        write(here, file, "execute: {slots: 7}\n")
        await eventually(lambda: here.services.settings.execute.slots == 7)
