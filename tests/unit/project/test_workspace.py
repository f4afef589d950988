"""A track that works outside its project's root: everything that is the agent's is in the workspace alone.

The root has files of the same names and says the opposite, so that whatever reads the wrong folder is seen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.house import HAND_OVER, House, at, house, make_project
from tests.unit.project.living import living, shown

from handoffd.engine.decision import MeasureBaseline, RunChecks
from handoffd.engine.events import Initialised, Started, TestEvidence
from handoffd.engine.track import Ledger, Track, TrackKey, Workspace
from handoffd.execute.base import RunSpec
from handoffd.journal.records import StoredTrack
from handoffd.project.manual import Manual
from handoffd.project.project import Project
from handoffd.project.status import peek_of, view_of
from handoffd.track.ai_folder import HandoffFiles
from handoffd.track.checks import Checks

FAILING = "---\nstep: bdd\nstatus: failing\nreason: scope_warning\n---\n"
PASS = "---\nstep: bdd\nstatus: pass\n---\n"
SHORT = "steps: {bdd: {next_on_pass: update-memory, timeout_min: 1, claude_reads: [docs/brief.md]}}\n"
CHECKING = """\
steps:
  bdd: {next_on_pass: update-memory, timeout_min: 1, tests: green, post_check: 'pwd >> $HOME/checks'}
"""
TESTING = """\
test:
  command: [/bin/sh, -c, 'pwd >> "$HOME/tests"; cp "$HOME/report.xml" "$1"', tests, '{report}']
  report: junit
"""
WORKING = f'echo "$PWD" >> "$HOME/agents"\necho done > work.txt\n{HAND_OVER}'


def cloned(base: Path, *, rules: str = SHORT, settings: str | None = None) -> tuple[str, Path, StoredTrack]:
    """Return a project's root, the clone that its track works in, and that track as a journal has it."""
    root = make_project(base, rules=rules, settings=settings)
    (clone := base / "clone").joinpath(".ai").mkdir(parents=True)
    ledger = Ledger(workspace=Workspace(kind="clone", folder=str(clone)))
    return root, clone, StoredTrack(key=TrackKey(root), track=Track(ledger=ledger), seq=0, digest=None)


@asynccontextmanager
async def at_work(here: House, root: str, track: StoredTrack, *, automatic: bool) -> AsyncIterator[Project]:
    """Lend the project with its loop and a story."""
    async with living(here, root, (track,)) as project:
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001", automatic=automatic))
        yield project


async def test_a_story_outside_the_root_leaves_the_root_alone(tmp_path: Path) -> None:
    """Agents work, tests run and hand-offs are read in the clone; people find the records in the root."""
    root, clone, outside = cloned(tmp_path, rules=CHECKING, settings=TESTING)
    (tmp_path / "report.xml").write_text('<testsuite><testcase name="t"/></testsuite>')
    at(root, ".ai/HANDOFF.md").write_text(FAILING)
    async with house(tmp_path, WORKING) as here, at_work(here, root, outside, automatic=True) as project:
        await eventually(lambda: shown(project)["step"] == "done")

        assert [str(clone)] * 2 == (tmp_path / "agents").read_text().split()
        assert {str(clone)} == set((tmp_path / "tests").read_text().split())
        assert [str(clone)] == (tmp_path / "checks").read_text().split()
        assert not at(root, "work.txt").exists()
        assert FAILING == at(root, ".ai/HANDOFF.md").read_text()
        assert {"CHECKLIST.md", "HANDOFF.md"} == {path.name for path in (clone / ".ai").iterdir()}
        assert 2 == len(list(at(root, ".ai/runs").glob("*/output.log")))
        specs = [path.read_text() for path in here.services.settings.runs_dir.glob("*/spec.json")]
        assert {(str(clone), root)} == {(spec.cwd, spec.home) for spec in map(RunSpec.from_json, specs)}
        (stored,) = await here.journal.tracks()
        assert str(clone) == stored.track.works_in(root).folder


async def test_what_is_left_in_the_workspace_from_before_is_not_the_agents(tmp_path: Path) -> None:
    """An agent that hands nothing over has failed, whatever was there when it was started."""
    root, clone, outside = cloned(tmp_path)
    clone.joinpath(".ai/HANDOFF.md").write_text(PASS)
    async with house(tmp_path, "true") as here, at_work(here, root, outside, automatic=True) as project:
        await eventually(lambda: shown(project)["status"] == "needs_human")

        outcomes = [run.outcome for run in await here.journal.runs()]
        assert ("bdd", {"failing", "no_handoff"}) == (shown(project)["step"], set(outcomes))


async def test_nothing_is_started_in_a_clone_that_is_gone(tmp_path: Path) -> None:
    """No attempt is used up, people learn of it, and it goes on when the clone is back."""
    root, clone, outside = cloned(tmp_path)
    away = clone.rename(tmp_path / "away")
    async with house(tmp_path, WORKING) as here, at_work(here, root, outside, automatic=True) as project:
        await eventually(lambda: project.main.shortage is not None)
        view = (await view_of(project, here.services.slots)).tracks[0]
        assert (f"its clone {clone} is gone", f"ls -ld {clone}") == (view.waits_for, view.next_command)
        assert ("pending", ()) == (view.status, await here.journal.runs())

        away.rename(clone)
        project.main.remind()
        await eventually(lambda: shown(project)["step"] == "done")


async def test_an_agent_that_rests_after_its_handoff_is_ended(tmp_path: Path) -> None:
    """The hand-off of the workspace is the one that is waited for."""
    root, _, outside = cloned(tmp_path)
    lingering = f"{HAND_OVER}\nexec sleep 600"
    async with house(tmp_path, lingering) as here, at_work(here, root, outside, automatic=True) as project:
        await eventually(lambda: shown(project)["step"] == "done")


async def test_a_handoff_of_others_is_heard_in_the_workspace(tmp_path: Path) -> None:
    """Of a session that a person started there."""
    root, clone, outside = cloned(tmp_path)
    at(root, ".ai/HANDOFF.md").write_text(FAILING)
    async with house(tmp_path) as here, at_work(here, root, outside, automatic=False) as project:
        await Manual(project, here.services).hand_out("mei")
        clone.joinpath(".ai/HANDOFF.md").write_text(PASS)
        await project.look()

        await eventually(lambda: shown(project)["status"] == "pass")


async def test_a_handoff_in_the_workspace_is_applied(tmp_path: Path) -> None:
    """And the one in the root is not even looked at."""
    root, clone, outside = cloned(tmp_path)
    async with house(tmp_path) as here:
        project = Project(root, here.services, (outside,))
        await project.look()
        await project.main.give(Initialised(project="shop"))
        await project.main.give(Started(story="US-001", automatic=False))
        manual = Manual(project, here.services)
        await manual.hand_out("mei")
        at(root, ".ai/HANDOFF.md").write_text(FAILING)
        assert "pending" == (await manual.apply(None)).type
        clone.joinpath(".ai/HANDOFF.md").write_text(PASS)
        assert "applied" == (await manual.apply(None)).type
        project.dismiss()

    assert "pass" == shown(root)["status"]


@pytest.mark.parametrize("where", ["clone", "root"])
async def test_what_a_step_reads_is_looked_for_in_the_workspace(tmp_path: Path, where: str) -> None:
    """The prompt lists what is missing there."""
    root, clone, outside = cloned(tmp_path)
    folder = {"clone": clone, "root": Path(root)}[where]
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "docs/brief.md").touch()
    async with house(tmp_path) as here, at_work(here, root, outside, automatic=False) as project:
        warnings = (await peek_of(project, bootstrapped=True)).warnings

    assert (where == "root") == ("docs/brief.md is missing" in warnings)


async def test_tests_are_judged_by_the_files_of_the_workspace(tmp_path: Path) -> None:
    """A new file that cannot be loaded is the step's own; the mark before it is of the workspace, too."""
    settings = TESTING.replace('"$HOME/report.xml" "$1"', 'report.xml "$1"; ! grep -q "<error" report.xml')
    root, clone, _ = cloned(tmp_path, settings=settings)
    clone.joinpath(".ai/HANDOFF.md").write_text(PASS)
    clone.joinpath("test_new.py").touch()
    clone.joinpath("report.xml").write_text('<testsuite><testcase classname="t" name="a"/></testsuite>')
    async with house(tmp_path) as here, living(here, root) as project:
        checks = Checks(
            TrackKey(root), project, here.services, {}, lambda: Workspace(kind="clone", folder=str(clone))
        )
        before = await checks.baseline(MeasureBaseline(dispatch="d1", story="US-001"), 10)
        said = f"ImportError while importing test module '{clone}/test_new.py'"
        clone.joinpath("report.xml").write_text(
            '<testsuite><testcase classname="" name="test_new">'
            f'<error message="collection failure">{said}</error></testcase></testsuite>'
        )
        with anyio.fail_after(60):
            after = await checks.measure(
                RunChecks(
                    dispatch="d1", story="US-001", step="impl", attempt=1, tests="red", check_timeout_min=1,
                    post_check=None, post_check_timeout_s=10,
                ),
                1,
            )  # fmt: skip

    assert HandoffFiles(str(clone)).mark() == before.mark
    assert isinstance(after.tests, TestEvidence)
    assert (("test_new.py",), 1, ()) == (after.tests.failing, after.tests.new_failing, after.tests.regressed)
