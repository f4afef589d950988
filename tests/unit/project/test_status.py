"""The view for `status`: recorded facts, live ones, and a person's next command."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.house import (
    INITIALISED,
    NOW,
    STARTED,
    House,
    at,
    begun,
    bid,
    daemon,
    dispatch_of,
    house,
    make_project,
    supervised,
    track_of,
)
from tests.unit.report.nights import night

from handoffd.cli.status_report import screen
from handoffd.cli.wording import unstyled
from handoffd.engine.decision import Blocked
from handoffd.engine.events import (
    Aborted,
    Advanced,
    Approved,
    Discarded,
    DispatchFailed,
    Event,
    Initialised,
    Paused,
    Resumed,
    Skipped,
    Started,
)  # fmt: skip
from handoffd.engine.run import POLICIES, End
from handoffd.engine.views import TrackView
from handoffd.errors import NotFound
from handoffd.fleet.roster import Roster
from handoffd.project.project import Project
from handoffd.project.status import peek_of, story_of, view_of
from handoffd.protocol.state import Status, plain
from handoffd.protocol.story_text import story_text
from handoffd.report.building import Asked, Fleet, build


@asynccontextmanager
async def project_in(here: House, *verbs: Event) -> AsyncIterator[Project]:
    """Lend an initialised project without its loop, after `verbs`."""
    project = Project(make_project(here.base), here.services, ())
    await project.files.trust()
    await project.look()
    for verb in (Initialised(project="shop"), *verbs):
        await project.main.give(verb)
    yield project
    project.dismiss()


async def main(here: House, project: Project) -> TrackView:
    """Return the view of its main track."""
    return (await view_of(project, here.services.slots)).tracks[0]


async def test_a_project_without_state_has_level_0(here: House, root: str) -> None:
    """The name of its folder, and no track."""
    project = Project(root, here.services, ())

    view = await view_of(project, here.services.slots)

    assert ("shop", 0, "not_initialized", ()) == (view.name, view.level, view.condition, view.tracks)
    project.dismiss()


@pytest.mark.parametrize(
    ("verbs", "level", "waits_for", "command"),
    [
        ((), 1, "a start: the project is at level 1", "handoffd start {} STORY"),
        ((Resumed(by="auto: true"),), 2, "a start", "handoffd start {} STORY"),
        (
            (Started(story="US-1", automatic=False),),
            1,
            "you or another tool to dispatch it: the project is at level 1",
            "handoffd dispatch {}",
        ),
        ((Started(story="US-1"), Paused(by="me")), 2, "paused by me", "handoffd resume {}"),
        ((Paused(by="me"),), 1, "paused by me", "handoffd resume {}"),
        (
            (
                Started(story="US-1"),
                DispatchFailed(code="?", message="gone", end=End.MISSING_BINARY, executor="agent"),
            ),
            2,
            "paused by handoffd: agent is not to be found",
            f"{POLICIES[End.MISSING_BINARY].remedy.format(executor='agent')} && handoffd resume {{}}",
        ),
        ((Started(story="US-1"), Aborted(by="me")), 2, "aborted by me", "handoffd start {} STORY"),
        ((Started(story="US-1"),), 2, None, None),
    ],
)
async def test_a_view_has_the_reason_for_waiting_and_the_next_command(
    here: House, verbs: tuple[Event, ...], level: int, waits_for: str | None, command: str | None
) -> None:
    """The command can be pasted."""
    async with project_in(here, *verbs) as project:
        view = await view_of(project, here.services.slots)

        expected = None if command is None else command.format(project.root)
        assert (level, waits_for, expected) == (
            view.level, view.tracks[0].waits_for, view.tracks[0].next_command
        )  # fmt: skip


BLOCKED = Started(story="US-1", blocked_by=("US-0", "US-9"))


@pytest.mark.parametrize(
    ("verbs", "needs"),
    [
        ((Resumed(by="auto: true"),), False),
        ((Started(story="US-1", automatic=False),), False),
        ((Started(story="US-1"), Paused(by="me")), False),
        (
            (
                Started(story="US-1"),
                DispatchFailed(code="?", message="gone", end=End.MISSING_BINARY, executor="agent"),
            ),
            True,
        ),
        ((Started(story="US-1"), DispatchFailed(code="?", message="no such agent")), True),
        ((Started(story="US-1"), Aborted(by="me")), False),
        ((Started(story="US-1"),), False),
        ((BLOCKED,), True),
    ],
)
async def test_a_story_that_a_person_has_paused_or_aborted_does_not_wait_for_one(
    here: House, verbs: tuple[Event, ...], needs: bool
) -> None:
    """Nor one that is dispatched by hand; a pause of ours does. The report and the screen say the same."""
    async with project_in(here, *verbs) as project:
        view = await view_of(project, here.services.slots)

        assert needs == view.tracks[0].needs_you
        fleet = Fleet(views=(view,), schedules=(), caps=(), alive=True)
        assert needs == bool(build(night(), fleet, Asked(project=None, at=NOW)).waiting)
        lines = screen({"projects": [plain(view)], "daemon": True}, width=80, height=None)
        assert needs == ("1 needs you:" in map(unstyled, lines))


async def test_a_discarded_story_is_called_so_until_it_is_taken_up_again(here: House) -> None:
    """With the ref that keeps it; an older release did not note that."""
    kept = "refs/handoffd/US-1/discarded-1"
    verbs = (Started(story="US-1"), Aborted(by="me"))
    async with project_in(here, *verbs) as project:
        await project.main.give(Discarded(story="US-1", kept=kept))
        assert (await main(here, project)).discarded is None
        await project.main.give(Discarded(story="US-1", kept=kept, notes_ref=True))
        view = await view_of(project, here.services.slots)
        assert kept == view.tracks[0].discarded
        shown = {"projects": [plain(view)], "daemon": True}
        assert "discarded" in "".join(screen(shown, width=80, height=None))
        await project.main.give(Started(story="US-1"))
        assert (await main(here, project)).discarded is None


async def test_an_aborted_story_keeps_its_text_behind_the_next_one(here: House) -> None:
    """The track is about another one by then."""
    wanted = story_text("Dark mode\n\nA toggle.")
    verbs = (Started(story="US-1", described=wanted), Aborted(by="me"), Started(story="US-2"))
    async with project_in(here, *verbs) as project:
        told = story_of(project, "US-1")
        assert ("closed", "Dark mode", wanted.text) == (told.standing, told.title, told.text)
        with pytest.raises(NotFound, match="'US-7'"):
            story_of(project, "US-7")


@pytest.mark.parametrize(
    ("verbs", "command"),
    [
        ((BLOCKED,), "handoffd start {0} US-0 --force"),
        ((replace(BLOCKED, automatic=False),), "handoffd start {0} US-0 --force --manual"),
        # The story that it waits for waits itself; a story that was set aside continues.
        (
            (BLOCKED, Started(story="US-0", queue=True, blocked_by=("US-7",))),
            "handoffd start {0} US-7 --force",
        ),
        ((Started(story="US-0"), replace(BLOCKED, force=True)), "handoffd start {0} US-0 --force"),
        # It can start as soon as the other one has ended.
        ((BLOCKED, Started(story="US-0", force=True), Aborted(by="me")), "handoffd start {0} US-1"),
        # While the project is paused nothing goes on.
        ((BLOCKED, Paused(by="me")), "handoffd resume {0}"),
    ],
)
async def test_the_next_command_of_a_blocked_story_starts_its_blocker(
    here: House, verbs: tuple[Event, ...], command: str
) -> None:
    """A `status` would lead nowhere."""
    async with project_in(here, *verbs) as project:
        told = await main(here, project)
        peek = await peek_of(project, bootstrapped=True)

        assert command.format(project.root) == told.next_command
        assert isinstance(peek.result, Blocked)
        assert command.format("{project}") == peek.result.next_command
        assert peek.result.caller_instruction.endswith(f"next: {peek.result.next_command}")


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize(
    ("blocked_by", "told"),
    [(("US-0",), "blocked by US-0, which is not done"), (("US-0", "US-9"), "blocked by US-0, US-9")],
)
async def test_a_blocked_story_names_its_blockers_at_both_levels(
    here: House, blocked_by: tuple[str, ...], told: str, automatic: bool
) -> None:
    """A manual dispatch would get the same answer."""
    blocked = Started(story="US-1", blocked_by=blocked_by, automatic=automatic)
    async with project_in(here, blocked) as project:
        assert told == (await main(here, project)).waits_for


async def test_a_broken_file_is_the_next_thing_to_repair(here: House) -> None:
    """The project waits for that, whatever its track waits for."""
    async with project_in(here, Started(story="US-1"), Paused(by="me")) as project:
        at(project.root, ".ai/STATE.json").write_text("{")
        await project.look()

        view = await view_of(project, here.services.slots)

        look = f"${{EDITOR:-vi}} {project.root}/.ai/STATE.json"
        assert ("invalid_state", look) == (view.condition, view.tracks[0].next_command)
        assert view.detail == view.tracks[0].waits_for


async def test_an_edit_that_waits_is_trusted_before_the_step_is_tried_again(here: House) -> None:
    """It may be what repairs the test command that failed."""
    async with project_in(here, Started(story="US-1"), Skipped(by="me")) as project:
        edited = project.main.track.with_state(status=Status.TIMEOUT)
        project.main.committed.track = edited
        at(project.root, ".ai/handoffd.yaml").write_text("test: {command: [make]}\n")
        await project.look()

        both = f"handoffd trust {project.root} && handoffd retry {project.root}"
        assert both == (await main(here, project)).next_command


async def test_broken_settings_are_repaired_before_another_story_starts(here: House) -> None:
    """A pause or a decision of a person comes first: the last good ones still apply."""
    async with project_in(here, Started(story="US-1"), Aborted(by="me")) as project:
        at(project.root, ".ai/handoffd.yaml").write_text("tset: {}\n")
        await project.look()
        ended = await main(here, project)
        await project.main.give(Started(story="US-2"))
        await project.main.give(Paused(by="me"))

        assert f"handoffd rules check {project.root}" == ended.next_command
        assert f"handoffd resume {project.root}" == (await main(here, project)).next_command


@pytest.mark.parametrize(("bootstrapped", "step"), [(False, "bootstrap"), (True, "bdd")])
async def test_a_peek_without_a_story_shows_its_first_step(
    here: House, bootstrapped: bool, step: str
) -> None:
    """The step at which `start` would begin; STATE.json has `bootstrap` in either case."""
    async with project_in(here) as project:
        shown = await peek_of(project, bootstrapped=bootstrapped)

        assert isinstance(shown.result, Blocked)
        assert (step, step, None) == (shown.step, shown.result.step, shown.prompt)
        assert "no story was started" == shown.why
        assert "handoffd start {project} STORY" == shown.result.next_command
        await project.main.give(Started(story="US-1", bootstrapped=bootstrapped))
        assert step == (await peek_of(project, bootstrapped=bootstrapped)).step


async def test_a_wait_for_a_slot_has_the_place_in_the_queue(tmp_path: Path) -> None:
    """So that it does not look stuck."""
    async with house(tmp_path, slots=1) as here, project_in(here, Started(story="US-1")) as project:
        here.services.slots.occupy(bid("/srv/other"))
        here.services.slots.ask(bid(project.root), lambda: None)

        assert "1st for a slot (1 of 1 in use: other)" == (await main(here, project)).waits_for


@pytest.mark.parametrize(("group", "warned"), [("web", False), ("wbe", True)])
async def test_an_unknown_group_is_a_warning(tmp_path: Path, group: str, warned: bool) -> None:
    """It would limit nothing."""
    scheduling = {"groups": {"web": {"slots": 1}}}
    async with house(tmp_path, scheduling=scheduling) as here:
        project = Project(make_project(tmp_path, settings=f"group: {group}\n"), here.services, ())
        await project.files.refresh()

        warnings = (await view_of(project, here.services.slots)).warnings

        assert warned == any(warning.startswith("group: wbe is none of") for warning in warnings)
        project.dismiss()


async def test_the_checks_of_steps_are_shown_by_step_and_name(here: House) -> None:
    """A single one by its step alone."""
    async with project_in(here) as project:
        rules = "steps: {impl: {post_check: make lint}, verify: {post_check: {lint: ruff, types: mypy}}}\n"
        at(project.root, ".ai/step-rules.yaml").write_text(rules)
        await project.trust()

        found = (await view_of(project, here.services.slots)).post_checks
        assert {"impl": "make lint", "verify.lint": "ruff", "verify.types": "mypy"} == found


async def test_a_held_edit_or_a_deleted_file_is_a_warning(here: House) -> None:
    """With the command that accepts it; trusting the deletion would mean to do without the file."""
    async with project_in(here) as project:
        rules, trust = at(project.root, ".ai/step-rules.yaml"), f"`handoffd trust {project.root}`"
        rules.write_text("steps: {impl: {post_check: make lint}}\n")
        await project.look()
        view = await view_of(project, here.services.slots)
        assert "steps.impl.post_check" in view.held
        assert view.warnings[0].startswith(f"edits wait for {trust}: steps.")

        rules.unlink()
        await project.look()
        gone = ".ai/step-rules.yaml is gone, bring it back; to do without it: "
        assert (gone + trust,) == (await view_of(project, here.services.slots)).warnings


async def test_a_deleted_pipeline_hides_no_edit(here: House) -> None:
    """Status names both: an agent could delete the one to have the other overlooked."""
    async with project_in(here) as project:
        folder = at(project.root, ".ai/pipelines")
        folder.mkdir()
        (folder / "docs.yaml").write_text("language: 1\n")
        await project.trust()
        (folder / "docs.yaml").unlink()
        at(project.root, ".ai/step-rules.yaml").write_text("steps: {impl: {post_check: make lint}}\n")

        await project.look()

        gone, held, *_ = (await view_of(project, here.services.slots)).warnings
        assert gone.startswith(".ai/pipelines/docs.yaml is gone, bring it back; ")
        assert held.startswith("edits wait for ")
        (folder / "docs.yaml").symlink_to("elsewhere")
        for number in range(201):
            (folder / f"p{number:03}.yaml").write_text("language: 1\n")
        await project.look()
        unread, crowded, *_ = (await view_of(project, here.services.slots)).warnings
        assert unread.startswith(".ai/pipelines/docs.yaml cannot be read: ")
        assert crowded.startswith(".ai/pipelines has 202 pipelines, of which only 200 count")


async def test_the_activity_and_usage_of_an_executor_are_shown(root: str, tmp_path: Path) -> None:
    """From its output; without a daemon, the last recorded values."""
    line = json.dumps({
        "type": "assistant", "session_id": "s-1", "message": {
            "id": "m1", "model": "opus", "content": [{"type": "text", "text": "Tea."}],
            "usage": {"input_tokens": 10, "output_tokens": 20},
        },
    })  # fmt: skip
    async with house(tmp_path, f"echo '{line}'; exec sleep 600") as here:
        book = here.services.executors.executors
        stream = {"output": "stream-json", "stream": book["claude"].stream}
        book["agent"] = book["agent"].model_copy(update=stream)  # type: ignore[index]
        async with daemon(here) as roster, anyio.create_task_group() as tasks:
            tasks.start_soon(here.services.meters.run)
            await begun(roster, root, STARTED)
            await eventually(lambda: [one.tokens for one in roster.usage().values()] == [30])

            told = (await roster.view(root)).tracks[0]
            assert ("says Tea.", 30, None, "s-1") == (told.activity, told.tokens, told.cost_usd, told.session)
            assert told.last_output_at is not None
            tasks.cancel_scope.cancel()

        afterwards = Roster(here.services)
        await afterwards.load()
        assert told.activity == (await afterwards.view(root)).tracks[0].activity
        assert 30 == (await afterwards.view(root)).tracks[0].tokens
        afterwards.close()


async def test_a_running_attempt_has_live_facts_and_no_next_command(tmp_path: Path) -> None:
    """Afterwards there is a next command."""
    async with supervised(tmp_path, INITIALISED, STARTED, agent="sleep 600") as (_, roster, root):

        async def track() -> TrackView:
            return (await roster.view(root)).tracks[0]

        async def is_running() -> bool:
            return (await track()).pid is not None

        begun: bool = await eventually(is_running)
        running = await track()
        assert (True, "agent", "running", None, None) == (
            begun, running.executor, running.status, running.waits_for, running.next_command
        )  # fmt: skip
        assert running.elapsed_min is not None

        await roster.give(root, Aborted(by="me"))
        await eventually(lambda: "needs_human" in at(root, ".ai/STATE.json").read_text())

        stopped = await track()
        assert ("needs_human", "aborted by me", None, f"handoffd start {root} STORY") == (
            stopped.status, stopped.waits_for, stopped.pid, stopped.next_command
        )  # fmt: skip


async def test_a_view_shows_one_moment(here: House) -> None:
    """A decision while the attempt's age is being read is shown completely, without an age."""
    running = track_of(Status.RUNNING, dispatch=dispatch_of(), dispatched_at=NOW)
    paused = track_of(Status.PENDING, last_error="Not logged in").with_ledger(paused_by="me")
    async with project_in(here) as project, anyio.create_task_group() as tasks:
        project.main.committed.track = running
        told: list[TrackView] = []

        async def look() -> None:
            told.append(await main(here, project))

        tasks.start_soon(look)
        await checkpoint()
        assert not told, "it reads in a thread"
        project.main.committed.track = paused
        await eventually(lambda: bool(told))

        (view,) = told
        assert ("pending", "Not logged in", "paused by me", None) == (
            view.status, view.last_error, view.waits_for, view.elapsed_min
        )  # fmt: skip


async def test_a_gate_is_marked_in_the_view(here: House) -> None:
    """Also while the project is paused; not before and not after the decision."""
    async with project_in(here, Started(story="US-1"), Skipped(by="me")) as project:
        assert not (await main(here, project)).gate
        await project.main.give(Advanced(dispatch="d1", executor="agent"))
        assert ("review", "needs_human", True) == (
            (told := await main(here, project)).step,
            told.status,
            told.gate,
        )

        await project.main.give(Paused(by="me"))
        assert (await main(here, project)).gate
        await project.main.give(Approved(by="me"))
        assert not (await main(here, project)).gate
