"""Steps that are done by hand, with a daemon's loops and without."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.eventually import eventually
from tests.support.house import House, at, house, make_project
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
    """Lend a project as a verb has it that is given without a daemon."""
    project = Project(root, here.services, ())
    await project.admit()
    await project.look()
    await project.main.give(Initialised(project="shop"))
    await project.main.give(Started(story="US-001", automatic=False))
    yield project
    project.dismiss()


async def test_a_prompt_is_taken_and_kept(tmp_path: Path) -> None:
    """Its text is what the result is about, and lies where people look for it."""
    async with house(tmp_path) as here, alone(here, make_project(tmp_path)) as project:
        result, prompt = await Manual(project, here.services).hand_out("mei")

        assert ("dispatched", "running") == (result.type, shown(project)["status"])
        assert prompt is not None
        assert result.type == "dispatched"
        assert result.dispatch in prompt
        assert prompt == at(project.root, f".ai/runs/{result.dispatch}/prompt.md").read_text()


async def test_without_a_state_there_is_nothing_to_take(tmp_path: Path) -> None:
    """The error says what to type."""
    async with house(tmp_path) as here:
        project = Project(make_project(tmp_path), here.services, ())
        with pytest.raises(Refused, match=r"no STATE\.json") as refused:
            await Manual(project, here.services).hand_out("mei")

        assert "NOT_INITIALIZED" == refused.value.code


async def test_a_handoff_is_applied_once(tmp_path: Path) -> None:
    """At once, and the second time it is told that nothing waits for it."""
    async with house(tmp_path) as here, alone(here, make_project(tmp_path)) as project:
        manual = Manual(project, here.services)
        await manual.hand_out("mei")
        assert "pending" == (await manual.apply(None)).type

        at(project.root, ".ai/HANDOFF.md").write_text(PASS)
        applied = await manual.apply(None)

        assert ("applied", "pass", False) == (applied.type, applied.state.status.value, applied.checking)
        again = await manual.apply(None)

        assert ("taken", "taken already: bdd attempt 1 of US-001 is pass") == (again.type, again.message)
        assert "handoffd dispatch {project}" == again.next_command
        assert 1 == len([run for run in await here.journal.runs() if run.result == "pass"])


async def test_what_was_taken_is_told_wherever_the_story_has_come_since(tmp_path: Path) -> None:
    """In an attempt of its next step, and at a gate; what is written later is no part of it."""
    rules = "steps:\n  bdd: {next_on_pass: sdd-delta}\n  sdd-delta: {next_on_pass: review}\n"
    async with house(tmp_path) as here, alone(here, make_project(tmp_path, rules=rules)) as project:
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


async def test_a_handoff_of_another_attempt_is_stale(tmp_path: Path) -> None:
    """It names another dispatch than the one that was taken."""
    async with house(tmp_path) as here, alone(here, make_project(tmp_path)) as project:
        manual = Manual(project, here.services)
        await manual.hand_out("mei")
        at(project.root, ".ai/HANDOFF.md").write_text("---\nstep: bdd\ndispatch: d-0\nstatus: pass\n---\n")

        assert ("stale", "running") == ((await manual.apply(None)).type, shown(project)["status"])


async def test_what_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    """The line that is wrong is named; once mended, it counts."""
    async with house(tmp_path) as here, alone(here, make_project(tmp_path)) as project:
        manual = Manual(project, here.services)
        await manual.hand_out("mei")
        handoff = at(project.root, ".ai/HANDOFF.md")
        handoff.write_text("---\nstatus: [pass\n---\n")
        told = await manual.apply(None)

        assert ("error", "MALFORMED_HANDOFF") == (told.type, told.code)
        assert "HANDOFF.md" in told.message
        handoff.write_text(PASS)
        assert "applied" == (await manual.apply(None)).type


async def test_nothing_there_and_nothing_running_is_missing(tmp_path: Path) -> None:
    """The state stays as it is."""
    async with house(tmp_path) as here, alone(here, make_project(tmp_path)) as project:
        assert ("missing", "pending") == (
            (await Manual(project, here.services).apply(None)).type,
            shown(project)["status"],
        )


@pytest.mark.parametrize(("command", "status"), [("true", "pass"), ("echo broken; false", "failing")])
async def test_claims_are_checked_without_a_daemon(tmp_path: Path, command: str, status: str) -> None:
    """By the same runs, under a launcher; the result is waited for."""
    rules = CHECKED.format(command=command)
    async with house(tmp_path) as here, alone(here, make_project(tmp_path, rules=rules)) as project:
        manual = Manual(project, here.services)
        await manual.hand_out("mei")
        at(project.root, ".ai/HANDOFF.md").write_text(PASS)
        applied = await manual.apply(None)

        assert ("applied", status) == (applied.type, applied.state.status.value)
        assert (status == "pass") == json.loads(at(project.root, ".ai/STATE.json").read_text())["lint_pass"]


async def test_checks_that_were_cut_off_are_taken_up_again(tmp_path: Path) -> None:
    """Whoever handed in was killed meanwhile: the next one who asks carries out what was ordered."""
    rules = CHECKED.format(command="true")
    async with house(tmp_path) as here, alone(here, make_project(tmp_path, rules=rules)) as project:
        manual = Manual(project, here.services)
        await manual.hand_out("mei")
        at(project.root, ".ai/HANDOFF.md").write_text(PASS)
        assert await manual._hear() is None
        assert "running" == shown(project)["status"]
        project.dismiss()

        stored = await here.journal.tracks()
        later = Project(project.root, here.services, stored)
        await later.look()
        applied = await Manual(later, here.services).apply(None)
        later.dismiss()

        assert ("applied", "pass") == (applied.type, applied.state.status.value)


async def test_what_the_daemon_has_heard_is_told_as_taken(tmp_path: Path) -> None:
    """Whoever hands in later reads what came of it."""
    async with house(tmp_path, settle_s=0.05) as here, at_level_1(here, make_project(tmp_path)) as project:
        manual = Manual(project, here.services)
        await manual.hand_out("mei")
        at(project.root, ".ai/HANDOFF.md").write_text(PASS)
        await project.look()
        await eventually(lambda: shown(project)["status"] == "pass")

        assert "taken already: bdd attempt 1 of US-001 is pass" == (await manual.apply(1)).message


async def test_with_loops_a_handoff_counts_once_whoever_hears_it(tmp_path: Path) -> None:
    """The look hears it after a moment, a person at once."""
    async with house(tmp_path, settle_s=0.05) as here, at_level_1(here, make_project(tmp_path)) as project:
        manual = Manual(project, here.services)
        await manual.hand_out("mei")
        at(project.root, ".ai/HANDOFF.md").write_text(PASS)
        await project.look()
        applied = await manual.apply(1)

        assert applied.type in {"applied", "taken"}
        await eventually(lambda: shown(project)["status"] == "pass")
        assert 1 == len(await here.journal.runs())


@pytest.mark.parametrize(("command", "passed"), [("true", True), ("echo broken; false", False)])
async def test_a_post_check_is_run_and_noted(tmp_path: Path, command: str, passed: bool) -> None:
    """With the end of what it printed; the status stays."""
    rules = CHECKED.format(command=command)
    async with house(tmp_path) as here, alone(here, make_project(tmp_path, rules=rules)) as project:
        ran, ended = await Manual(project, here.services).post_check("mei")

        assert ended is not None
        assert (command, passed) == (ran, ended.passed)
        assert passed or "broken" in ended.tail
        assert (passed, "pending") == (shown(project)["lint_pass"], shown(project)["status"])


async def test_a_step_without_a_post_check_has_nothing_to_run(tmp_path: Path) -> None:
    """Which is no failure."""
    async with house(tmp_path) as here, alone(here, make_project(tmp_path)) as project:
        assert (None, None) == await Manual(project, here.services).post_check("mei")


TRIED = "test: {{command: [sh, -c, {command}]}}\n"


@pytest.mark.parametrize(
    ("command", "passed", "fault"),
    [("exit 0", True, False), ("exit 3", False, False), ("exit 127", None, True)],
)
async def test_tests_are_tried_for_no_story(
    tmp_path: Path, command: str, passed: bool | None, fault: bool
) -> None:
    """Nothing is recorded of it, and nothing stays where runs are kept."""
    root = make_project(tmp_path, settings=TRIED.format(command=json.dumps(command)))
    async with house(tmp_path) as here, alone(here, root) as project:
        before = project.main.track
        tried = await Manual(project, here.services).try_tests()

        assert tried.evidence is not None
        assert (("sh", "-c", command), fault) == (tried.command, tried.evidence.fault is not None)
        assert fault or passed == (not tried.evidence.failing)
        assert tried.path
        assert before == project.main.track
        assert [] == [path.name for path in here.services.settings.runs_dir.iterdir()]


async def test_tests_see_the_environment_of_checks(tmp_path: Path) -> None:
    """What is allowed, and what tells them where they run; nothing else of the daemon's."""
    command = 'test -z "$DAEMONS_OWN" && test "$HANDOFFD_STEP" = trial && test "$PATH" = /usr/bin:/bin'
    root = make_project(tmp_path, settings=TRIED.format(command=json.dumps(command)))
    async with house(tmp_path) as here, alone(here, root) as project:
        here.services.environment.update(DAEMONS_OWN="x", PATH="/usr/bin:/bin")
        tried = await Manual(project, here.services).try_tests()

        assert tried.evidence is not None
        assert ((), None, "/usr/bin:/bin") == (tried.evidence.failing, tried.evidence.fault, tried.path)


async def test_without_a_test_command_nothing_is_tried(tmp_path: Path) -> None:
    """Nor is it an error."""
    async with house(tmp_path) as here, alone(here, make_project(tmp_path)) as project:
        assert Tried() == await Manual(project, here.services).try_tests()


async def test_tests_are_not_tried_beside_an_attempt(tmp_path: Path) -> None:
    """They could disturb its work, and it theirs."""
    async with house(tmp_path) as here, alone(here, make_project(tmp_path)) as project:
        await Manual(project, here.services).hand_out("mei")
        with pytest.raises(Refused, match="bdd attempt 1 of US-001 is running") as refused:
            await Manual(project, here.services).try_tests()

        assert "ALREADY_RUNNING" == refused.value.code


async def _handed_in(here: House, root: str, text: str) -> Applied:
    """Return what a process says that applies a hand-off with this text, and is gone then."""
    at(root, ".ai/HANDOFF.md").write_text(PASS + text)
    project = Project(root, here.services, await here.journal.tracks())
    await project.look()
    applied = await Manual(project, here.services).apply(None)
    project.dismiss()
    return applied


async def test_what_failed_is_put_right_and_handed_in_again(tmp_path: Path) -> None:
    """As the next attempt, and each hand-off once."""
    rules = CHECKED.format(command="test -e good")
    async with house(tmp_path) as here, alone(here, make_project(tmp_path, rules=rules)) as project:
        await Manual(project, here.services).hand_out("mei")
        project.dismiss()
        failed = await _handed_in(here, project.root, "")
        still = await _handed_in(here, project.root, "Once more.\n")
        at(project.root, "good").touch()
        mended = await _handed_in(here, project.root, "Now it is good.\n")

        assert ["applied"] * 3 == [one.type for one in (failed, still, mended)]
        assert [("failing", 1), ("failing", 2), ("pass", 3)] == [
            (one.state.status.value, one.state.attempt) for one in (failed, still, mended)
        ]


async def test_after_the_last_attempt_a_person_decides(tmp_path: Path) -> None:
    """Whoever goes on mending by themselves is not heard."""
    rules = CHECKED.format(command="false").replace("}", ", max_attempts: 1}")
    async with house(tmp_path) as here, alone(here, make_project(tmp_path, rules=rules)) as project:
        await Manual(project, here.services).hand_out("mei")
        project.dismiss()
        await _handed_in(here, project.root, "")
        again = await _handed_in(here, project.root, "Once more.\n")

        assert ("stale", "failing", 1) == (again.type, again.state.status.value, again.state.attempt)


async def test_after_checks_without_a_daemon_the_next_verb_is_taken(tmp_path: Path) -> None:
    """A message may mean both: hear the hand-off, and take the next prompt."""
    rules = CHECKED.format(command="true")
    async with house(tmp_path) as here, alone(here, make_project(tmp_path, rules=rules)) as project:
        manual = Manual(project, here.services)
        await manual.hand_out("mei")
        at(project.root, ".ai/HANDOFF.md").write_text(PASS)
        assert "applied" == (await manual.apply(None)).type

        result, prompt = await manual.hand_out("mei")

        assert ("dispatched", True) == (result.type, prompt is not None)
