"""One project: its loop, its hints and its deadlines."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from pathlib import Path

import anyio
from tests.support.eventually import eventually
from tests.support.house import NOW, at, daemon, house, make_project
from tests.unit.project.living import at_level_1, edit, living, shown

from handoffd.clock import rfc3339
from handoffd.engine.events import Initialised, Started
from handoffd.engine.track import TrackKey
from handoffd.project.project import Project
from handoffd.track.services import Home


async def test_the_daemons_executor_is_stopped_at_its_deadline(tmp_path: Path) -> None:
    """By the clock in its start record; the status follows after its last process has ended."""
    async with house(tmp_path, "sleep 600") as here, living(here, make_project(tmp_path)) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001"))
        await eventually(lambda: project.main.pid() is not None)
        await project.poll()
        assert "running" == shown(project)["status"]

        here.clock.ahead_s += 61
        await project.poll()

        await eventually(lambda: shown(project)["status"] == "timeout")
        assert "ran out of time" in str(shown(project)["last_error"])
        assert 0 == project.live_runs


async def test_a_hint_makes_it_look(tmp_path: Path) -> None:
    """A hint does not say what changed."""
    async with house(tmp_path) as here, at_level_1(here, make_project(tmp_path)) as project:
        edit(project, human_note="Look!")

        project.touched()

        await eventually(lambda: project.main.track.state.human_note == "Look!")  # type: ignore[union-attr]


CHECKED = """\
steps:
  bdd: {next_on_pass: review, timeout_min: 1, tests: green, post_check: 'echo checked >> checks'}
  review: {next_on_pass: update-memory}
"""


async def test_the_first_look_handles_changes_from_before_the_daemon(tmp_path: Path) -> None:
    """It checks a hand-off, and reports a held edit."""
    async with house(tmp_path) as here:
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


async def test_checks_wait_until_the_project_was_read(tmp_path: Path) -> None:
    """A mount may come later, and the checks need its rules and files."""
    # The baseline ends at once; the check after the claim ends only when the project is away.
    tests = f"test -e .ai/HANDOFF.md || exit 1; until test -e {tmp_path}/tested; do sleep 0.05; done; exit 1"
    settings = json.dumps({"test": {"command": ["/bin/sh", "-c", tests]}})
    async with house(tmp_path) as here:
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


async def test_a_released_project_leaves_no_objects(tmp_path: Path) -> None:
    """Even if they were excluded from garbage collection at the daemon's start."""
    async with house(tmp_path) as here:
        async with living(here, make_project(tmp_path)) as project:
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


async def test_a_project_implements_home(tmp_path: Path) -> None:
    """Each member of the protocol, for a project without a loop."""
    async with house(tmp_path) as here:
        project = Project(make_project(tmp_path), here.services, ())
        home: Home = project

        assert (True, False, frozenset()) == (home.workable, home.ending, home.stories_done())
        assert not home.is_aborted(TrackKey(str(tmp_path / "shop")))
        assert home.files.rules.steps
        project.dismiss()
