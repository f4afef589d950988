"""One project: its loop, its hints, and what a look at its files causes."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from pathlib import Path

import anyio
from tests.support.eventually import eventually
from tests.support.house import NOW, House, at, daemon, house, make_project
from tests.unit.project.living import at_level_1, edit, living, shown

from handoffd.clock import rfc3339
from handoffd.engine.events import EditConfirmed, Initialised, Started
from handoffd.files.locks import acquire_project, project_lock_path
from handoffd.inspection.own_files import SETTINGS
from handoffd.project.project import Project
from handoffd.project.reconciler import LASTING_S


async def test_a_hint_makes_it_look(here: House, root: str) -> None:
    """A hint does not say what changed."""
    async with at_level_1(here, root) as project:
        edit(project, human_note="Look!")

        project.touched()

        await eventually(lambda: project.main.track.state.human_note == "Look!")  # type: ignore[union-attr]


CHECKED = """\
steps:
  bdd: {next_on_pass: review, timeout_min: 1, tests: green, post_check: 'echo checked >> checks'}
  review: {next_on_pass: update-memory}
"""


async def test_the_first_look_handles_changes_from_before_the_daemon(here: House, tmp_path: Path) -> None:
    """It checks a hand-off, and reports a held edit."""
    root = make_project(tmp_path, rules=CHECKED)
    async with at_level_1(here, root) as project:
        edit(project, status="running", dispatched_at=rfc3339(NOW))
        await project.look()
    at(root, ".ai/HANDOFF.md").write_text("---\nstep: bdd\nstatus: pass\n---\n")

    async with living(here, root, await here.journal.tracks()) as project:
        await eventually(lambda: shown(project)["status"] == "pass")
        assert "checked\n" == at(root, "checks").read_text()
        state = shown(project)
    at(root, ".ai/STATE.json").write_text(json.dumps(state | {"step": "update-memory"}))

    async with living(here, root, await here.journal.tracks()):
        await eventually(lambda: "needs_human" in [notice.kind for notice in here.told.notices])


async def test_checks_wait_until_the_project_was_read(here: House, tmp_path: Path) -> None:
    """A mount may come later, and the checks need its rules and files."""
    # The baseline ends at once; the check after the claim ends only when the project is away.
    tests = f"test -e .ai/HANDOFF.md || exit 1; until test -e {tmp_path}/tested; do sleep 0.05; done; exit 1"
    settings = json.dumps({"test": {"command": ["/bin/sh", "-c", tests]}})
    root, away = make_project(tmp_path, rules=CHECKED, settings=settings), tmp_path / "away"
    async with daemon(here) as roster:
        await roster.add(root)
        await roster.give(root, Initialised(project="shop"))
        await roster.give(root, Started(story="US-001"))
        await eventually(lambda: list(here.services.settings.runs_dir.glob("*.tests/start.json")))
    shutil.move(root, away)
    (tmp_path / "tested").touch()
    await eventually(lambda: list(here.services.settings.runs_dir.glob("*.tests/exit.json")))

    async with daemon(here) as roster:
        await eventually(lambda: "missing" in roster.conditions())
        view = await roster.view(root)
        assert ("missing", "running", 1) == (
            view.condition, view.tracks[0].status, here.services.slots.in_use
        )  # fmt: skip

        shutil.move(away, root)
        await roster.poll()

        await eventually(lambda: json.loads(at(root, ".ai/STATE.json").read_text())["attempt"] == 2)
    assert "failing" == (await here.journal.runs())[-1].result


async def test_a_released_project_leaves_no_objects(here: House, root: str) -> None:
    """Even if they were excluded from garbage collection at the daemon's start."""
    async with living(here, root) as project:
        await project.main.give(Initialised(project="shop"))
        parts = [weakref.ref(part) for part in (project, project.main, project.files)]
        gc.collect()
        gc.freeze()
    try:
        del project
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        assert [None] * len(parts) == [part() for part in parts]
    finally:
        gc.unfreeze()


# --- what a look causes: facts for its tracks, rules that apply, or a condition ---------------------
async def test_an_edit_between_attempts_is_adopted(here: House, root: str) -> None:
    """With its unknown keys, and recorded as an event."""
    async with at_level_1(here, root) as project:
        edit(project, human_note="Mind the rounding.", mine=1)

        await project.look()

        assert ("Mind the rounding.", 1) == (shown(project)["human_note"], shown(project)["mine"])
        assert "Mind the rounding." == project.main.track.state.human_note  # type: ignore[union-attr]
        assert "state_edited" == (await here.journal.events())[-1].kind


async def test_an_invalid_state_stops_the_project_until_it_is_repaired(here: House, root: str) -> None:
    """The file stays as it is, the detail names the place, and a lasting fault is reported."""
    async with at_level_1(here, root) as project:
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


async def test_an_edit_past_a_gate_is_held_until_a_later_edit(here: House, root: str) -> None:
    """The file shows the former state again; a late confirmation does not bring the held edit back."""
    async with at_level_1(here, root) as project:
        begun = at(project.root, ".ai/STATE.json").read_text()
        edit(project, step="review", status="needs_human")
        await project.look()
        edit(project, step="update-memory", status="pending")
        await project.look()
        assert ("review", "needs_human") == (shown(project)["step"], shown(project)["status"])
        assert project.main.track.ledger.held_edit is not None

        at(project.root, ".ai/STATE.json").write_text(begun)
        await project.look()

        assert project.main.track.ledger.held_edit is None
        assert "NOTHING_HELD" == getattr((await project.main.give(EditConfirmed())).result, "code", None)


async def test_a_project_waits_for_its_missing_folder(here: House, root: str, tmp_path: Path) -> None:
    """It goes on when the folder is back; its lock belongs to the folder, not to the path."""
    async with at_level_1(here, root) as project:
        moved = str(tmp_path / "moved")
        shutil.move(root, moved)

        await project.look()
        assert ("missing", False) == (project.condition, project.workable)
        other = Project(moved, here.services, ())
        await other.look()
        assert "ok" == other.condition
        other.dismiss()

        shutil.move(moved, root)
        await project.poll()  # looks again by itself
        await eventually(lambda: project.workable)


async def test_one_project_has_one_writer(here: House, root: str) -> None:
    """The condition names the process that has the lock."""
    lock = acquire_project(project_lock_path(here.base / "another state", Path(root)), Path(root))
    async with living(here, root) as project:
        assert ("locked", False) == (project.condition, project.workable)
        assert "process" in (project.detail or "")

        lock.release()
        await project.look()
        assert project.workable


async def test_invalid_rules_do_not_stop_a_project(here: House, root: str) -> None:
    """The last valid ones still apply."""
    async with at_level_1(here, root) as project:
        at(project.root, ".ai/step-rules.yaml").write_text("steps: {bdd: {max_attempts: 0}}\n")

        await project.look()

        assert ("invalid_rules", True) == (project.condition, project.workable)
        assert "steps.bdd.max_attempts" in (project.detail or "")


async def test_a_handoff_of_an_external_attempt_is_applied(here: House, root: str) -> None:
    """Level 1: a person or a hook sets it running, an agent hands over, and the daemon decides."""
    async with at_level_1(here, root) as project:
        edit(project, status="running", dispatched_at=rfc3339(NOW))
        at(project.root, ".ai/HANDOFF.md").write_text("---\nstep: bdd\nstatus: pass\n---\n")

        await project.look()

        await eventually(lambda: (shown(project)["step"], shown(project)["status"]) == ("bdd", "pass"))
        (run,) = await here.journal.runs()
        assert ("external", "pass") == (run.executor, run.result)


async def test_a_handoff_is_applied_once(here: House, root: str) -> None:
    """The ledger records the last one."""
    async with at_level_1(here, root) as project:
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


async def test_an_edit_while_an_executor_runs_is_undone(root: str, tmp_path: Path) -> None:
    """Even an invalid one; the executor goes on."""
    async with house(tmp_path, "sleep 600") as here, living(here, root) as project:
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


async def test_an_unwritable_state_is_a_condition(here: House, root: str) -> None:
    """It is reported once, and the project goes on later."""
    async with at_level_1(here, root) as project:
        project.main.committed.stuck = "cannot record this: disk full"
        for _ in range(3):
            await project.look()
            here.clock.ahead_s += LASTING_S
        assert ("io_error", False) == (project.condition, project.workable)
        await eventually(lambda: [notice.kind for notice in here.told.notices] == ["blocked"])

        project.main.committed.stuck = None
        await project.poll()
        await eventually(lambda: project.workable)


async def test_a_look_during_or_after_dismissal_takes_no_lock(here: House, root: str) -> None:
    """A removal or a crash may overtake the look of a verb; the next object can lock the project."""
    asking, project = here.services.asking, Project(root, here.services, ())
    busy = [object() for _ in range(int(asking.total_tokens))]
    for one in busy:
        asking.acquire_on_behalf_of_nowait(one)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(project.look)
        await anyio.wait_all_tasks_blocked()
        project.dismiss()
        for one in busy:
            asking.release_on_behalf_of(one)
    await project.look()

    next_one = Project(root, here.services, ())
    await next_one.look()
    assert ("ok", None) == (next_one.condition, next_one.detail)
    next_one.dismiss()


async def test_texts_that_were_written_vouch_for_no_other_folder(
    here: House, root: str, tmp_path: Path
) -> None:
    """`init` in an empty folder, such as one whose disk is not mounted, does not make it the project."""
    async with at_level_1(here, root) as project:
        shutil.move(root, f"{root}-away")
        (tmp_path / "shop/.ai").mkdir(parents=True)
        await project.look()
        found = [str(project.condition)]
        for written in ({SETTINGS: "language: en\n"}, None):
            await project.trust(written)
            await project.look()
            found.append(str(project.condition))

        assert ["missing", "missing", "ok"] == found
