"""Steps done by hand, with a daemon's loops and without."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.eventually import eventually
from tests.support.house import SHORT, House, at, house, make_project
from tests.unit.project.living import at_level_1, shown

from handoffd.engine.events import Initialised, Started
from handoffd.engine.views import Applied, Tried
from handoffd.errors import Refused
from handoffd.project.manual import Manual
from handoffd.project.project import Project

PASS = "---\nstep: bdd\nstatus: pass\n---\n"
CHECKED = """\
steps:
  bdd: {{next_on_pass: update-memory, post_check: "{command}"}}
"""


@asynccontextmanager
async def alone(here: House, root: str) -> AsyncIterator[Project]:
    """Lend a project in the way of a verb without a daemon."""
    project = Project(root, here.services, ())
    await project.files.trust()
    await project.look()
    await project.main.give(Initialised(project="shop"))
    await project.main.give(Started(story="US-001", automatic=False))
    yield project
    project.dismiss()


@asynccontextmanager
async def handed_out(
    tmp_path: Path, rules: str | None = SHORT
) -> AsyncIterator[tuple[House, Project, Manual]]:
    """Lend such a project whose first attempt was handed out, and its manual steps."""
    async with house(tmp_path) as here, alone(here, make_project(tmp_path, rules=rules)) as project:
        manual = Manual(project, here.services)
        await manual.hand_out("mei")
        yield here, project, manual


async def test_a_handed_out_prompt_is_also_a_file(here: House, root: str) -> None:
    """In the folder of the attempt, with the id that the result must name."""
    async with alone(here, root) as project:
        result, prompt = await Manual(project, here.services).hand_out("mei")

        assert ("dispatched", "running") == (result.type, shown(project)["status"])
        assert prompt is not None
        assert result.type == "dispatched"
        assert result.dispatch in prompt
        assert prompt == at(project.root, f".ai/runs/{result.dispatch}/prompt.md").read_text()


async def test_without_a_state_there_is_no_prompt(here: House, root: str) -> None:
    """The error has a code."""
    project = Project(root, here.services, ())
    with pytest.raises(Refused, match=r"no STATE\.json") as refused:
        await Manual(project, here.services).hand_out("mei")

    assert "NOT_INITIALIZED" == refused.value.code


async def test_a_handoff_is_applied_once(tmp_path: Path) -> None:
    """A second `apply` reports that it was taken already."""
    async with handed_out(tmp_path) as (here, project, manual):
        assert "pending" == (await manual.apply(None)).type

        at(project.root, ".ai/HANDOFF.md").write_text(PASS)
        applied = await manual.apply(None)

        assert ("applied", "pass", False) == (applied.type, applied.state.status.value, applied.checking)
        again = await manual.apply(None)

        assert ("taken", "taken already: bdd attempt 1 of US-001 is pass") == (again.type, again.message)
        assert "handoffd dispatch {project}" == again.next_command
        assert 1 == len([run for run in await here.journal.runs() if run.result == "pass"])


async def test_apply_reports_a_taken_handoff_at_any_later_step(here: House, tmp_path: Path) -> None:
    """In an attempt of the next step, and at a gate; a later hand-off is stale."""
    rules = "steps:\n  bdd: {next_on_pass: sdd-delta}\n  sdd-delta: {next_on_pass: review}\n"
    async with alone(here, make_project(tmp_path, rules=rules)) as project:
        manual, handoff = Manual(project, here.services), at(project.root, ".ai/HANDOFF.md")
        said = []
        for step in ("bdd", "sdd-delta", "review"):
            await manual.hand_out("mei")
            said.append(await manual.apply(None))
            handoff.write_text(PASS.replace("bdd", step))
            await manual.apply(None)
        late = await manual.apply(None)

        assert ["pending", "taken", "taken"] == [one.type for one in said]
        assert (
            "taken already: what is in .ai/ was handed over by bdd attempt 1 of US-001, which is over; "
            "sdd-delta attempt 1 of US-001 runs, and its hand-off is awaited" == said[1].message
        )
        assert ["apply {project}", "apply {project}", "approve {project} --story US-001"] == [
            str(one.next_command).removeprefix("handoffd ") for one in said
        ]
        assert "stale" == late.type


async def test_a_stale_or_unreadable_handoff_changes_nothing(tmp_path: Path) -> None:
    """It names another dispatch, or the error names the file; a corrected one counts."""
    async with handed_out(tmp_path) as (_, project, manual):
        handoff = at(project.root, ".ai/HANDOFF.md")
        handoff.write_text("---\nstep: bdd\ndispatch: d-0\nstatus: pass\n---\n")
        assert ("stale", "running") == ((await manual.apply(None)).type, shown(project)["status"])

        handoff.write_text("---\nstatus: [pass\n---\n")
        answer = await manual.apply(None)
        assert ("error", "MALFORMED_HANDOFF") == (answer.type, answer.code)
        assert "HANDOFF.md" in answer.message
        handoff.write_text(PASS)
        assert "applied" == (await manual.apply(None)).type


async def test_without_a_handoff_apply_reports_it_missing(here: House, root: str) -> None:
    """The state stays as it is; without a test command nothing is tried, either."""
    async with alone(here, root) as project:
        manual = Manual(project, here.services)
        assert ("missing", "pending") == ((await manual.apply(None)).type, shown(project)["status"])
        assert Tried() == await manual.try_tests()


@pytest.mark.parametrize(("command", "status"), [("true", "pass"), ("echo broken; false", "failing")])
async def test_claims_are_checked_without_a_daemon(tmp_path: Path, command: str, status: str) -> None:
    """By the same checks, under a launcher; `apply` waits for their result. The next verb is accepted."""
    rules = CHECKED.format(command=command)
    async with handed_out(tmp_path, rules=rules) as (_, project, manual):
        at(project.root, ".ai/HANDOFF.md").write_text(PASS)
        applied = await manual.apply(None)

        assert ("applied", status) == (applied.type, applied.state.status.value)
        assert (status == "pass") == json.loads(at(project.root, ".ai/STATE.json").read_text())["lint_pass"]
        result, prompt = await manual.hand_out("mei")
        assert ("dispatched", True) == (result.type, prompt is not None)


async def test_interrupted_checks_are_repeated(tmp_path: Path) -> None:
    """The next `apply` carries out the recorded orders of a killed one."""
    rules = CHECKED.format(command="true")
    async with handed_out(tmp_path, rules=rules) as (here, project, manual):
        at(project.root, ".ai/HANDOFF.md").write_text(PASS)
        assert await manual._take_in() is None
        assert "running" == shown(project)["status"]
        project.dismiss()

        stored = await here.journal.tracks()
        later = Project(project.root, here.services, stored)
        await later.look()
        applied = await Manual(later, here.services).apply(None)
        later.dismiss()

        assert ("applied", "pass") == (applied.type, applied.state.status.value)


@pytest.mark.parametrize("first", [True, False], ids=["after the daemon", "together with the daemon"])
async def test_a_handoff_counts_once_beside_a_daemon(root: str, tmp_path: Path, first: bool) -> None:
    """The daemon's look applies it after a moment, a person at once."""
    async with house(tmp_path, settle_s=0.05) as here, at_level_1(here, root) as project:
        manual = Manual(project, here.services)
        await manual.hand_out("mei")
        at(project.root, ".ai/HANDOFF.md").write_text(PASS)
        await project.look()
        if first:
            await eventually(lambda: shown(project)["status"] == "pass")
        applied = await manual.apply(1)

        assert applied.type in ({"taken"} if first else {"applied", "taken"})
        assert not first or "taken already: bdd attempt 1 of US-001 is pass" == applied.message
        await eventually(lambda: shown(project)["status"] == "pass")
        assert 1 == len(await here.journal.runs())


@pytest.mark.parametrize(("command", "passed"), [("true", True), ("echo broken; false", False), (None, None)])
async def test_a_post_check_is_run_and_recorded(
    here: House, tmp_path: Path, command: str | None, passed: bool | None
) -> None:
    """With the end of its output, if the step has one; the status stays."""
    rules = SHORT if command is None else CHECKED.format(command=command)
    async with alone(here, make_project(tmp_path, rules=rules)) as project:
        ran, ended = await Manual(project, here.services).post_check("mei")

        assert (command, [] if passed is None else [passed]) == (ran, [one.passed for one in ended])
        assert all(one.passed or "broken" in one.tail for one in ended)
        assert (passed, "pending") == (shown(project).get("lint_pass"), shown(project)["status"])


async def test_several_post_checks_are_run_and_recorded(here: House, tmp_path: Path) -> None:
    """By name, with exit codes; all run. The output stays out of the journal."""
    commands = {"a": "true", "b": "echo broken; exit 3", "c": "exit 7"}
    rules = json.dumps({"steps": {"bdd": {"next_on_pass": "update-memory", "post_check": commands}}})
    async with alone(here, make_project(tmp_path, rules=rules)) as project:
        ran, ended = await Manual(project, here.services).post_check("mei")

        assert commands == ran
        assert [("a", 0), ("b", 3), ("c", 7)] == [(one.name, one.code) for one in ended]
        assert ["", "broken", ""] == [one.tail.strip() for one in ended]
        assert (False, "pending") == (shown(project)["lint_pass"], shown(project)["status"])
        last = (await here.journal.events())[-1]
        assert [("a", 0, ""), ("b", 3, ""), ("c", 7, "")] == [
            (one["name"], one["code"], one["tail"]) for one in last.event["checks"]
        ]


TRIED = "test: {{command: [sh, -c, {command}]}}\n"


@pytest.mark.parametrize(
    ("command", "passed", "fault"),
    [
        ('test -z "$DAEMONS_OWN" && test "$HANDOFFD_STEP" = trial', True, False),
        ("exit 3", False, False),
        ("exit 127", None, True),
    ],
)
async def test_trying_the_tests_records_nothing(
    here: House, tmp_path: Path, command: str, passed: bool | None, fault: bool
) -> None:
    """It leaves no run behind; the tests see the environment of checks."""
    root = make_project(tmp_path, settings=TRIED.format(command=json.dumps(command)))
    async with alone(here, root) as project:
        here.services.environment.update(DAEMONS_OWN="x", PATH="/usr/bin:/bin")
        before = project.main.track
        tried = await Manual(project, here.services).try_tests()

        assert tried.evidence is not None
        assert (("sh", "-c", command), fault) == (tried.command, tried.evidence.fault is not None)
        assert fault or passed == (not tried.evidence.failing)
        assert ("/usr/bin:/bin", before) == (tried.path, project.main.track)
        assert [] == [path.name for path in here.services.settings.runs_dir.iterdir()]


async def test_an_edited_test_command_is_not_tried_before_a_person_trusts_it(
    here: House, tmp_path: Path
) -> None:
    """But it is not the same as none at all."""
    root = make_project(tmp_path)
    async with alone(here, root) as project:
        none = await Manual(project, here.services).try_tests()
        at(root, ".ai/handoffd.yaml").write_text("test: {command: [make]}\n")
        await project.look()
        held = await Manual(project, here.services).try_tests()

    assert [(None, False), (None, True)] == [(one.command, one.held) for one in (none, held)]


async def test_tests_are_not_tried_beside_an_attempt(tmp_path: Path) -> None:
    """They could disturb each other."""
    async with handed_out(tmp_path) as (here, project, _):
        with pytest.raises(Refused, match="bdd attempt 1 of US-001 is running") as refused:
            await Manual(project, here.services).try_tests()

        assert "ALREADY_RUNNING" == refused.value.code


async def _handed_in(here: House, root: str, text: str) -> Applied:
    """Apply a hand-off with this text in a new process, and return its answer."""
    at(root, ".ai/HANDOFF.md").write_text(PASS + text)
    project = Project(root, here.services, await here.journal.tracks())
    await project.look()
    applied = await Manual(project, here.services).apply(None)
    project.dismiss()
    return applied


async def test_a_failed_handoff_may_be_corrected(tmp_path: Path) -> None:
    """Each new hand-off counts as the next attempt, once."""
    rules = CHECKED.format(command="test -e good")
    async with handed_out(tmp_path, rules=rules) as (here, project, _):
        project.dismiss()
        failed = await _handed_in(here, project.root, "")
        still = await _handed_in(here, project.root, "Second try.\n")
        at(project.root, "good").touch()
        good = await _handed_in(here, project.root, "Now it is good.\n")

        assert ["applied"] * 3 == [one.type for one in (failed, still, good)]
        assert [("failing", 1), ("failing", 2), ("pass", 3)] == [
            (one.state.status.value, one.state.attempt) for one in (failed, still, good)
        ]


async def test_after_the_last_attempt_a_person_decides(tmp_path: Path) -> None:
    """A further hand-off is stale."""
    rules = CHECKED.format(command="false").replace("}", ", max_attempts: 1}")
    async with handed_out(tmp_path, rules=rules) as (here, project, _):
        project.dismiss()
        await _handed_in(here, project.root, "")
        again = await _handed_in(here, project.root, "Second try.\n")

        assert ("stale", "failing", 1) == (again.type, again.state.status.value, again.state.attempt)
