"""What a look at a project causes: facts for its tracks, rules that apply, or a condition."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
from tests.support.eventually import eventually
from tests.support.house import NOW, at, house, make_project
from tests.unit.project.living import at_level_1, edit, living, shown

from handoffd.clock import rfc3339
from handoffd.engine.events import EditConfirmed, Initialised, Started
from handoffd.files.locks import acquire_project, project_lock_path
from handoffd.project.project import Project
from handoffd.project.reconciler import LASTING_S


async def test_an_edit_between_attempts_is_adopted(tmp_path: Path) -> None:
    """With its unknown keys, and recorded as an event."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, human_note="Mind the rounding.", mine=1)

        await project.look()

        assert ("Mind the rounding.", 1) == (shown(project)["human_note"], shown(project)["mine"])
        assert "Mind the rounding." == project.main.track.state.human_note  # type: ignore[union-attr]
        assert "state_edited" == (await here.journal.events())[-1].kind


async def test_an_edit_past_a_gate_is_held(tmp_path: Path) -> None:
    """The file shows the former state again."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, step="update-memory", status="pending")

        await project.look()

        assert "bdd" == shown(project)["step"]
        assert project.main.track.ledger.held_edit is not None


async def test_an_invalid_state_stops_the_project_until_it_is_repaired(tmp_path: Path) -> None:
    """The file stays as it is, the detail names the place, and a lasting fault is reported."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        good = at(project.root, ".ai/STATE.json").read_text()
        edit(project, status="half-done")
        bad = at(project.root, ".ai/STATE.json").read_text()

        await project.look()

        assert ("invalid_state", False) == (project.condition, project.workable)
        assert "status" in (project.detail or "")
        assert bad == at(project.root, ".ai/STATE.json").read_text()
        here.clock.ahead_s += LASTING_S
        await project.look()
        await eventually(lambda: [notice.kind for notice in here.told.notices] == ["blocked"])

        at(project.root, ".ai/STATE.json").write_text(good)
        await project.look()
        assert ("ok", True) == (project.condition, project.workable)


async def test_a_deleted_state_is_written_again(tmp_path: Path) -> None:
    """From the journal."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        before = shown(project)
        at(project.root, ".ai/STATE.json").unlink()

        await project.look()

        assert before == shown(project)


async def test_restoring_an_old_state_is_an_edit(tmp_path: Path) -> None:
    """Even if the text is exactly that of an earlier one."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        state = at(project.root, ".ai/STATE.json")
        old = state.read_text()
        await project.main.give(Started(story="US-002", automatic=False, force=True))
        state.write_text(old)

        await project.look()

        await eventually(lambda: project.main.track.state is not None)
        assert "US-001" == shown(project)["story"]
        assert project.main.track.state is not None
        assert "US-001" == project.main.track.state.story


async def test_a_later_edit_replaces_a_held_one(tmp_path: Path) -> None:
    """A late confirmation does not bring the held one back."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        begun = at(project.root, ".ai/STATE.json").read_text()
        edit(project, step="review", status="needs_human")
        await project.look()
        edit(project, status="pass")
        await project.look()
        assert project.main.track.ledger.held_edit is not None

        at(project.root, ".ai/STATE.json").write_text(begun)
        await project.look()

        assert project.main.track.ledger.held_edit is None
        assert "NOTHING_HELD" == getattr((await project.main.give(EditConfirmed())).result, "code", None)


async def test_a_project_waits_for_its_missing_folder(tmp_path: Path) -> None:
    """It goes on when the folder is back."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        moved = tmp_path / "away"
        shutil.move(project.root, moved)

        await project.look()
        assert ("missing", False) == (project.condition, project.workable)

        shutil.move(moved, project.root)
        await project.poll()  # looks again by itself
        await eventually(lambda: project.workable)


async def test_one_project_has_one_writer(tmp_path: Path) -> None:
    """The condition names the process that has the lock."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        lock = acquire_project(project_lock_path(here.base / "another state", Path(root)), Path(root))
        async with living(here, root) as project:
            assert ("locked", False) == (project.condition, project.workable)
            assert "process" in (project.detail or "")

            lock.release()
            await project.look()
            assert project.workable


async def test_invalid_rules_do_not_stop_a_project(tmp_path: Path) -> None:
    """The last valid ones still apply."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        at(project.root, ".ai/step-rules.yaml").write_text("steps: {bdd: {max_attempts: 0}}\n")

        await project.look()

        assert ("invalid_rules", True) == (project.condition, project.workable)
        assert "steps.bdd.max_attempts" in (project.detail or "")


async def test_a_handoff_of_an_external_attempt_is_applied(tmp_path: Path) -> None:
    """Level 1: a person or a hook sets it running, an agent hands over, and the daemon decides."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, status="running", dispatched_at=rfc3339(NOW))
        at(project.root, ".ai/HANDOFF.md").write_text("---\nstep: bdd\nstatus: pass\n---\n")

        await project.look()

        await eventually(lambda: (shown(project)["step"], shown(project)["status"]) == ("bdd", "pass"))
        (run,) = await here.journal.runs()
        assert ("external", "pass") == (run.executor, run.result)


async def test_a_handoff_is_applied_once(tmp_path: Path) -> None:
    """The ledger records the last one."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        at(project.root, ".ai/HANDOFF.md").write_text("---\nstatus: failing\n---\n")
        edit(project, status="running", dispatched_at=rfc3339(NOW))
        await project.look()
        await eventually(lambda: shown(project)["status"] == "failing")

        edit(project, status="running", attempt=2)
        await project.look()
        applied = project.main.track.ledger.last_mark
        await project.look()

        assert "running" == shown(project)["status"]
        assert applied == project.main.track.ledger.last_mark


async def test_an_edit_while_an_executor_runs_is_undone(tmp_path: Path) -> None:
    """Even an invalid one; the executor goes on."""
    async with house(tmp_path, "sleep 600") as here, living(here, make_project(tmp_path)) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: project.main.pid() is not None)
        before = shown(project)

        for text in ('{"project": "shop", "step": "done", "status": "pass"}', "{"):
            at(project.root, ".ai/STATE.json").write_text(text)
            await project.look()
            assert before == shown(project)

        assert project.main.pid() is not None
        await project.end_executors("the test")
        await eventually(lambda: project.live_runs == 0)


async def test_trusted_auto_settings_take_a_project_to_level_2(tmp_path: Path) -> None:
    """At its next look."""
    async with (
        house(tmp_path) as here,
        living(here, make_project(tmp_path, settings="auto: true\n")) as project,
    ):
        await project.main.give(Initialised(project="shop"))
        assert not project.main.track.ledger.automatic

        await project.look()

        assert project.main.track.ledger.automatic


async def test_an_unwritable_state_is_a_condition(tmp_path: Path) -> None:
    """It is reported once, and the project goes on later."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        project.main.committed.stuck = "cannot record this: disk full"
        for _ in range(3):
            await project.look()
            here.clock.ahead_s += LASTING_S
        assert ("io_error", False) == (project.condition, project.workable)
        await eventually(lambda: [notice.kind for notice in here.told.notices] == ["blocked"])

        project.main.committed.stuck = None
        await project.poll()
        await eventually(lambda: project.workable)


async def test_a_moved_project_can_be_added_at_its_new_path(tmp_path: Path) -> None:
    """Its lock belongs to the folder, not to the path."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        moved = shutil.move(project.root, tmp_path / "moved")
        await project.look()

        other = Project(str(moved), here.services, ())
        await other.look()

        assert ("missing", "ok") == (project.condition, other.condition)
        other.dismiss()


async def test_a_look_after_dismissal_takes_no_lock(tmp_path: Path) -> None:
    """The next object can lock the project."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        before, after = Project(root, here.services, ()), Project(root, here.services, ())
        before.dismiss()

        await before.look()
        await after.look()

        assert "ok" == after.condition
        after.dismiss()


async def test_a_dismissal_during_a_look_leaves_no_lock(tmp_path: Path) -> None:
    """A removal or a crash may overtake the look of a verb."""
    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        root, asking = make_project(tmp_path), here.services.asking
        project = Project(root, here.services, ())
        busy = [object() for _ in range(int(asking.total_tokens))]
        for one in busy:
            asking.acquire_on_behalf_of_nowait(one)
        tasks.start_soon(project.look)
        await anyio.wait_all_tasks_blocked()
        project.dismiss()
        for one in busy:
            asking.release_on_behalf_of(one)
        await eventually(lambda: 0 == asking.borrowed_tokens)
        await anyio.wait_all_tasks_blocked()

        next_one = Project(root, here.services, ())
        await next_one.look()
        assert ("ok", None) == (next_one.condition, next_one.detail)
        next_one.dismiss()
