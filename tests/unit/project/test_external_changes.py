"""A look at what others wrote for one track: what is told, and what is only found out."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.support.eventually import eventually
from tests.support.house import NOW, House, at, house, make_project
from tests.unit.project.living import at_level_1, edit, shown

from handoffd.clock import rfc3339
from handoffd.engine.events import Noted
from handoffd.errors import InvalidFile
from handoffd.files.state_file import MAIN, Seen, read_state, write_state
from handoffd.project.external_changes import AT_ONCE, Before, ExternalChanges
from handoffd.project.project import Project

PASS = "---\nstep: bdd\nstatus: pass\n---\n"


def look(here: House, project: Project, asked: list[str]) -> ExternalChanges:
    """Return a look at a project that notes when it wants another one."""
    return ExternalChanges(project.root, project.files, here.services, lambda: asked.append("again"))


def seen_in(project: Project) -> tuple[Seen | None, Before]:
    """Return STATE.json as it lies there, and how the track stood before it was read."""
    before = Before.of(project.main)
    return read_state(Path(project.root)), before


async def look_at(here: House, project: Project, asked: list[str]) -> None:
    """Look once at what lies there."""
    await look(here, project, asked).at(project.main, *seen_in(project))


async def test_who_only_looks_tells_nobody(tmp_path: Path) -> None:
    """An edit is read and left as it is, for whoever holds the project."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, human_note="Look!")
        before = here.journal.newest

        await look(here, project, []).inspect(project.main, read_state(Path(project.root)))

        assert ("Look!", before) == (shown(project)["human_note"], here.journal.newest)


async def test_what_is_wrong_is_raised_with_its_place(tmp_path: Path) -> None:
    """To the one who only looks and to the one who tells, alike."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, attempt=0)
        one, (seen, before) = look(here, project, []), seen_in(project)

        for looking in (one.inspect(project.main, seen), one.at(project.main, seen, before)):
            with pytest.raises(InvalidFile, match="attempt"):
                await looking


async def test_a_text_that_was_read_before_a_decision_is_read_again_after_it(tmp_path: Path) -> None:
    """It is our own of a moment ago: neither an edit, nor something to be mended."""
    asked: list[str] = []
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        seen, before = seen_in(project)
        await project.main.give(Noted(text="Meanwhile.", by="a test"))
        newest = here.journal.newest

        await look(here, project, asked).at(project.main, seen, before)

        assert (["again"], newest) == (asked, here.journal.newest)


async def test_a_near_miss_is_adopted_as_what_it_means(tmp_path: Path) -> None:
    """And the file says it properly afterwards."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, status="Failed", reason="scope-warning")

        await look_at(here, project, [])

        assert ("failing", "scope_warning") == (shown(project)["status"], shown(project)["reason"])


async def test_an_edit_after_the_edit_is_looked_at_too(tmp_path: Path) -> None:
    """It is not written over with the answer to the first one."""
    asked, root = list[str](), make_project(tmp_path, settings="external_edits: refuse\n")
    async with house(tmp_path) as here, at_level_1(here, root) as project:
        await project.look()
        edit(project, human_note="One.")
        seen, before = seen_in(project)
        edit(project, human_note="The other.")

        await look(here, project, asked).at(project.main, seen, before)
        assert ("The other.", ["again"]) == (shown(project)["human_note"], asked)

        await look_at(here, project, asked)
        assert (None, ["again"]) == (shown(project)["human_note"], asked)


async def test_of_a_storm_of_edits_only_some_are_events(tmp_path: Path) -> None:
    """What a loop of another tool writes to and fro is taken in its time, and the last of it counts."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        one, before = (
            ExternalChanges(project.root, project.files, here.services, lambda: None, pace_s=900),
            here.journal.newest,
        )

        for number in range(3 * AT_ONCE):
            edit(project, human_note=f"{number % 2}")
            await one.at(project.main, *seen_in(project))
        assert AT_ONCE == here.journal.newest - before
        edit(project, human_note="The last one.")

        here.clock.ahead_s += 900
        await one.at(project.main, *seen_in(project))
        state = project.main.track.state
        assert "The last one." == (state.human_note if state else None)


async def test_after_a_storm_of_edits_one_looks_again(tmp_path: Path) -> None:
    """By itself, and not only when something is written next."""
    asked: list[str] = []
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        one = ExternalChanges(
            project.root, project.files, here.services, lambda: asked.append("again"), pace_s=0.2
        )

        with anyio.fail_after(60):
            while not asked:
                edit(project, human_note=f"{anyio.current_time()}")
                await one.at(project.main, *seen_in(project))
                await checkpoint()


async def test_a_file_that_is_about_to_be_written_is_read_again_after_that(tmp_path: Path) -> None:
    """What lies there may be of before the latest commit: an agent's own, that has ended since."""
    asked: list[str] = []
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, status="pass")
        seen, before = seen_in(project)

        await look(here, project, asked).at(project.main, seen, replace(before, behind=True))

        assert (["again"], "pending") == (asked, project.main.track.state and project.main.track.state.status)


async def test_an_older_text_of_ours_that_is_put_back_at_a_decision_is_an_edit(tmp_path: Path) -> None:
    """`git checkout .ai/STATE.json`, a moment before the decision is shown: it is not written over unseen."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        file = at(project.root, ".ai/STATE.json")
        await project.main.give(Noted(text="First.", by="a test"))
        older = file.read_bytes()
        await project.main.give(Noted(text="Second.", by="a test"))
        await project.look()
        file.write_bytes(older)

        await project.main.give(Noted(text="Third.", by="a test"))
        assert older == file.read_bytes()
        await look_at(here, project, [])

        state = project.main.track.state
        assert ("First.", "First.") == (shown(project)["human_note"], state.human_note if state else None)
        assert "state_edited" == (await here.journal.events())[-1].kind


async def test_an_older_text_of_ours_that_could_not_be_written_over_is_no_edit(tmp_path: Path) -> None:
    """The disk refused the latest text: it is written at the next look."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        await project.look()
        folder = at(project.root, ".ai")
        older = at(project.root, ".ai/STATE.json").read_bytes()
        folder.rename(at(project.root, ".ai.away"))
        folder.symlink_to(at(project.root, ".ai.away"))

        await project.main.give(Noted(text="Not shown.", by="a test"))
        folder.unlink()
        at(project.root, ".ai.away").rename(folder)
        assert older == at(project.root, ".ai/STATE.json").read_bytes()
        await look_at(here, project, [])

        assert "Not shown." == shown(project)["human_note"]


@pytest.mark.parametrize(("written_s", "status"), [(-1, "pending"), (1, "pass")])
async def test_a_text_that_a_decision_before_the_crash_overtook_is_undone(
    tmp_path: Path, written_s: int, status: str
) -> None:
    """It was there before that decision, whose own text was never written; a later one is an edit."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        project.main.committed.inherited_at = NOW
        edit(project, status="pass")
        written = NOW.timestamp() + written_s
        os.utime(at(project.root, ".ai/STATE.json"), (written, written))

        await look_at(here, project, [])

        assert status == shown(project)["status"]


async def test_an_older_text_that_we_wrote_after_the_last_decision_is_no_edit(tmp_path: Path) -> None:
    """The daemon was killed with it on its way: the file is dated by the decision that it shows."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        await project.main.give(Noted(text="First.", by="a test"))
        committed, root = project.main.committed, Path(project.root)
        older, decided_at = read_state(root), committed.decided_at
        assert older is not None
        assert decided_at is not None
        assert decided_at.timestamp() == older.mtime_ns / 1e9
        here.clock.ahead_s += 1
        await project.main.give(Noted(text="Second.", by="a test"))
        write_state(root, MAIN, older.text, decided_at=decided_at)
        committed.inherited_at = committed.decided_at  # as after a crash

        await look_at(here, project, [])

        assert "First.\n\nSecond." == shown(project)["human_note"]
        (*_, latest) = await here.journal.events()
        assert "noted" == latest.kind


async def test_a_handoff_that_is_still_being_written_is_looked_at_again(tmp_path: Path) -> None:
    """It counts once it has not changed for a moment."""
    async with house(tmp_path, settle_s=0.1) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, status="running", dispatched_at=rfc3339(NOW))
        await project.look()
        handoff, asked = at(project.root, ".ai/HANDOFF.md"), list[str]()
        handoff.write_text(PASS)

        async def go_on_writing() -> None:
            while True:
                with handoff.open("a") as file:
                    file.write("More to come.\n")
                await anyio.sleep(0.005)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(go_on_writing)
            await look_at(here, project, asked)
            await eventually(lambda: asked == ["again"])
            tasks.cancel_scope.cancel()
        assert "running" == shown(project)["status"]

        await look_at(here, project, asked)
        await eventually(lambda: shown(project)["status"] == "pass")
