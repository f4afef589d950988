"""A look at the files that other tools and agents wrote for one track."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace
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
    """Return the look at a project; it appends to `asked` when it wants another one."""
    return ExternalChanges(project.root, project.files, here.services, lambda: asked.append("again"))


def seen_in(project: Project) -> tuple[Seen | None, Before]:
    """Return the current STATE.json, and the track from before it was read."""
    before = Before.of(project.main)
    return read_state(Path(project.root)), before


async def look_at(here: House, project: Project, asked: list[str]) -> None:
    """Look once at the current files."""
    await look(here, project, asked).at(project.main, *seen_in(project))


async def test_inspecting_records_nothing(here: House, root: str) -> None:
    """The edit is left for the daemon that has the project. An invalid one is an error, also for that."""
    async with at_level_1(here, root) as project:
        edit(project, human_note="Look!")
        before, one = here.journal.newest, look(here, project, [])

        await one.inspect(project.main, seen_in(project)[0])

        assert ("Look!", before) == (shown(project)["human_note"], here.journal.newest)
        edit(project, attempt=0)
        seen, known = seen_in(project)
        for looking in (one.inspect(project.main, seen), one.at(project.main, seen, known)):
            with pytest.raises(InvalidFile, match="attempt"):
                await looking


async def test_a_text_read_before_a_decision_is_read_again(here: House, root: str) -> None:
    """It is the daemon's own former text, and not an edit."""
    asked: list[str] = []
    async with at_level_1(here, root) as project:
        seen, before = seen_in(project)
        await project.main.give(Noted(text="Meanwhile.", by="a test"))
        newest = here.journal.newest

        await look(here, project, asked).at(project.main, seen, before)

        assert (["again"], newest) == (asked, here.journal.newest)


async def test_a_misspelt_status_is_adopted_and_corrected(here: House, root: str) -> None:
    """The file has the proper spelling afterwards."""
    async with at_level_1(here, root) as project:
        edit(project, status="Failed", reason="scope-warning")

        await look_at(here, project, [])

        assert ("failing", "scope_warning") == (shown(project)["status"], shown(project)["reason"])


async def test_a_second_edit_during_a_look_is_not_overwritten(here: House, tmp_path: Path) -> None:
    """Another look follows for it."""
    asked, root = list[str](), make_project(tmp_path, settings="external_edits: refuse\n")
    async with at_level_1(here, root) as project:
        await project.look()
        edit(project, human_note="One.")
        seen, before = seen_in(project)
        edit(project, human_note="The other.")

        await look(here, project, asked).at(project.main, seen, before)
        assert ("The other.", ["again"]) == (shown(project)["human_note"], asked)

        await look_at(here, project, asked)
        assert (None, ["again"]) == (shown(project)["human_note"], asked)


async def test_a_storm_of_edits_is_rate_limited(here: House, root: str) -> None:
    """The last edit counts in the end."""
    async with at_level_1(here, root) as project:
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


async def test_a_look_follows_a_storm_of_edits(here: House, root: str) -> None:
    """Without a further write."""
    asked: list[str] = []
    async with at_level_1(here, root) as project:
        one = ExternalChanges(
            project.root, project.files, here.services, lambda: asked.append("again"), pace_s=0.2
        )

        with anyio.fail_after(60):
            while not asked:
                edit(project, human_note=f"{anyio.current_time()}")
                await one.at(project.main, *seen_in(project))
                await checkpoint()


async def test_a_file_with_a_pending_write_is_read_again_after_it(here: House, root: str) -> None:
    """It may be older than the latest commit: written by an agent that has ended since."""
    asked: list[str] = []
    async with at_level_1(here, root) as project:
        edit(project, status="pass")
        seen, before = seen_in(project)

        await look(here, project, asked).at(project.main, seen, replace(before, behind=True))

        assert (["again"], "pending") == (asked, project.main.track.state and project.main.track.state.status)


async def test_restoring_an_older_state_is_an_edit(here: House, root: str) -> None:
    """`git checkout .ai/STATE.json` just before a decision is written must not be lost."""
    async with at_level_1(here, root) as project:
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


async def test_a_state_that_could_not_be_written_is_not_an_edit(here: House, root: str) -> None:
    """The disk refused the latest text, and the next look writes it."""
    async with at_level_1(here, root) as project:
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
async def test_an_edit_from_before_the_last_decision_is_undone(
    here: House, root: str, written_s: int, status: str
) -> None:
    """The crash came before the decision was written; a later edit counts."""
    async with at_level_1(here, root) as project:
        project.main.committed.inherited_at = NOW
        edit(project, status="pass")
        written = NOW.timestamp() + written_s
        os.utime(at(project.root, ".ai/STATE.json"), (written, written))

        await look_at(here, project, [])

        assert status == shown(project)["status"]


async def test_an_older_text_that_we_wrote_after_the_last_decision_is_no_edit(
    here: House, tmp_path: Path
) -> None:
    """The daemon was killed with it on its way: the file is dated by the decision that it shows."""
    async with at_level_1(here, make_project(tmp_path)) as project:
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


async def test_an_unfinished_handoff_is_read_again(root: str, tmp_path: Path) -> None:
    """It counts once it has not changed for a moment."""
    async with house(tmp_path, settle_s=0.1) as here, at_level_1(here, root) as project:
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
