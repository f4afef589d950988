"""All projects: added, removed, restarted after a crash, and limited together."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.house import (
    AT_ITS_LIMIT,
    HAND_OVER,
    INITIALISED,
    LIMIT_S,
    NOW,
    STARTED,
    House,
    NoWatch,
    at,
    begun,
    bid,
    daemon,
    house,
    make_project,
    supervised,
    unwritable,
)  # fmt: skip
from tests.support.runs import end_processes, processes
from tests.unit.project.living import edit, shown

from handoffd.capacity.accounts import Accounts, Lifted
from handoffd.clock import rfc3339
from handoffd.engine.events import Aborted, Initialised, Noted, Started
from handoffd.engine.track import TrackKey
from handoffd.errors import HandoffdError, NotFound, Refused, StoreError
from handoffd.fleet.roster import Roster
from handoffd.protocol.story_text import story_text


async def until_started(here: House, count: int) -> None:
    """Wait until `count` runs have begun."""
    await eventually(lambda: count == len(list(here.services.settings.runs_dir.glob("*/start.json"))))


async def test_adding_a_project_dispatches_nothing_and_trusts_its_files(here: House, root: str) -> None:
    """Adding it again changes nothing."""
    async with daemon(here) as roster:
        first, second = await roster.add(root), await roster.add(f"{root}/../shop")

        assert (root, "not_initialized", 1) == (first.project, first.condition, roster.count)
        assert first == second
        assert [root] == [project.root for project in await here.journal.projects()]
        assert ".ai/step-rules.yaml" in (await here.journal.trusted())[root]


async def test_a_project_with_a_running_executor_is_not_removed(tmp_path: Path) -> None:
    """Its end would be lost."""
    async with supervised(tmp_path, INITIALISED, STARTED, agent="sleep 600") as (_, roster, root):
        await eventually(lambda: roster.running == 1)

        with pytest.raises(Refused):
            await roster.remove(root)
        await roster.end_executors("the test")


async def test_a_verb_looks_at_the_disk_first(tmp_path: Path) -> None:
    """An edit from before the verb is applied before the verb."""
    async with supervised(tmp_path, INITIALISED) as (_, roster, root):
        edit(root, human_note="first")

        await roster.give(root, Noted(text="second"))

        assert "first\n\nsecond" == shown(root)["human_note"]


async def test_a_story_without_a_text_is_shown_as_the_memory_describes_it(tmp_path: Path) -> None:
    """As README starts one. A person's own text comes first."""
    async with supervised(tmp_path, INITIALISED, STARTED, agent="sleep 600") as (_, roster, root):
        Path(root, "PROJECT_MEMORY.md").write_text("## NEXT\n- US-001 Dark mode\n  At night.\n")  # noqa: ASYNC240
        told = await roster.story(root, "US-001")
        assert ("Dark mode", "Dark mode\n  At night.", "PROJECT_MEMORY.md") == (
            told.title, told.text, told.source,
        )  # fmt: skip
        await roster.give(root, Started(story="US-002", queue=True, described=story_text("Refunds")))
        Path(root, "PROJECT_MEMORY.md").write_text("## NEXT\n- US-002 Something else\n")  # noqa: ASYNC240
        assert ("Refunds", None) == ((other := await roster.story(root, "US-002")).title, other.source)
        assert (await roster.story(root, "US-001")).title is None
        await roster.end_executors("the test")


async def test_a_crash_leaves_other_projects_running(here: House, tmp_path: Path) -> None:
    """The crash is counted, and the caller of the verb gets the error."""
    async with daemon(here) as roster:
        good, bad = make_project(tmp_path / "good"), make_project(tmp_path / "bad")
        for root in (good, bad):
            await roster.add(root)
            await roster.give(root, Initialised(project=root))
        # No reader lets such a note through: it represents a bug in the daemon.
        with pytest.raises(TypeError):
            await roster.give(bad, Noted(text=b"no text"))  # type: ignore[arg-type]

        assert "accepted" == (await roster.give(good, Noted(text="still here"))).type
        await eventually(lambda: roster.crashes == 1)


async def test_begun_waits_for_the_first_look_at_every_project(here: House, root: str) -> None:
    """It never returns for a project without a loop."""
    async with daemon(here) as roster:
        await roster.add(root)
        with anyio.fail_after(60):
            await roster.begun()
        assert "not_initialized" == (await roster.view(root)).condition

    idle = Roster(here.services)
    await idle.load()
    with anyio.move_on_after(0.1) as limit:
        await idle.begun()
    assert limit.cancelled_caught


async def test_the_status_warns_about_an_unwatched_project(here: House, root: str) -> None:
    """Half a minute must not look like a hang. Without a daemon nothing is watched, and nothing warns."""
    roster, watch, why = Roster(here.services), NoWatch(), ".ai is not a folder"

    async def told() -> tuple[bool, str | None]:
        view = await roster.view(root)
        return f"changes are seen by the sweep every 30 s, not at once: {why}" in view.warnings, view.swept

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(roster.run, watch)
        await roster.add(root)
        assert (False, None) == await told()
        watch.degraded = {root: why}
        assert (True, why) == await told()
        tasks.cancel_scope.cancel()
    assert (False, None) == await told()


async def test_ended_executors_cost_no_attempt(root: str, tmp_path: Path) -> None:
    """The next daemon repeats the attempt with the same number."""
    async with house(tmp_path, f"test -e go || sleep 600\n{HAND_OVER}") as here:
        async with daemon(here) as roster:
            await begun(roster, root, STARTED)
            await eventually(lambda: roster.running == 1)

            await roster.end_executors("the test")
            # The clock does not move here: a STATE.json not yet written would look like an older edit.
            await eventually(lambda: shown(root)["status"] == "pending")

        at(root, "go").touch()
        async with daemon(here) as roster:
            await eventually(lambda: shown(root)["step"] == "review")
        assert [1, 1] == [run.attempt for run in await here.journal.runs()]


async def test_without_a_daemon_a_verb_is_recorded_for_the_next_daemon(here: House, root: str) -> None:
    """The next daemon carries out its consequences."""
    alone = Roster(here.services)
    await alone.add(root)
    await alone.give(root, INITIALISED)
    assert "accepted" == (await alone.give(root, STARTED)).type
    alone.close()
    assert ("bdd", "pending") == (shown(root)["step"], shown(root)["status"])

    async with daemon(here):
        await eventually(lambda: shown(root)["step"] == "review")


async def test_trust_returns_the_changed_keys(tmp_path: Path) -> None:
    """A reload does not trust them."""
    async with supervised(tmp_path) as (_, roster, root):
        at(root, ".ai/handoffd.yaml").write_text("test: {command: [make]}\n")
        assert () == await roster.reload()
        assert ("test.command",) == await roster.trust(root)


async def test_a_peek_needs_a_state(tmp_path: Path) -> None:
    """With one, it shows the next turn."""
    async with supervised(tmp_path) as (_, roster, root):
        with pytest.raises(Refused):
            await roster.peek(root, bootstrapped=True)
        await roster.give(root, INITIALISED)

        peek = await roster.peek(root, bootstrapped=True)

        assert ("bdd", "agent", None) == (peek.step, peek.executor, peek.prompt)


async def test_simultaneous_adds_make_one_project(here: House, root: str) -> None:
    """Its loop decides a verb given at once."""
    async with daemon(here) as roster:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(roster.add, root)
        given = await roster.give(root, INITIALISED)

        assert (1, "ok", "accepted") == (roster.count, (await roster.view(root)).condition, given.type)
        assert 0 == roster.crashes


async def test_slots_of_ended_executors_stay_free(tmp_path: Path) -> None:
    """Queued tracks do not start while the running ones are being ended."""
    async with house(tmp_path, "sleep 600") as here, daemon(here) as roster:
        roots = [make_project(tmp_path / str(number)) for number in range(here.services.slots.total + 2)]
        for root in roots:
            await begun(roster, root, STARTED)
        await eventually(lambda: roster.running == here.services.slots.total)

        await roster.end_executors("the test")

        assert 0 == roster.running


async def test_inspecting_beside_a_daemon_reports_problems(here: House, root: str) -> None:
    """It repairs nothing."""
    async with daemon(here) as roster:
        await begun(roster, root)
    at(root, ".ai/STATE.json").write_text("{broken")

    async with daemon(here):
        looking = Roster(here.services)
        await looking.load()
        await looking.inspect()
        condition = (await looking.view(root)).condition
        looking.close()

    assert "invalid_state" == condition


@pytest.mark.parametrize("note", [None, "mine"])
async def test_inspecting_reports_an_edit_and_adopts_nothing(
    here: House, root: str, note: str | None
) -> None:
    """A STATE.json that is as the journal has it needs no warning."""
    async with daemon(here) as roster:
        await begun(roster, root)
    state = at(root, ".ai/STATE.json")
    state.write_text(
        text := json.dumps(json.loads(state.read_text()) | {"human_note": note}, indent=2) + "\n"
    )

    looking = Roster(here.services)
    await looking.load()
    await looking.inspect()
    warnings = (await looking.view(root)).warnings
    looking.close()

    assert [note is not None] == [one.startswith("STATE.json was changed") for one in warnings or ("",)]
    assert text == state.read_text()


async def test_a_queued_project_that_is_removed_leaves_the_queue(tmp_path: Path) -> None:
    """The freed slot does not go to it."""
    waiting = f"until test -e {tmp_path}/go; do sleep 0.05; done"
    async with house(tmp_path, f"{waiting}\n{HAND_OVER}", slots=1) as here, daemon(here) as roster:
        first, second = make_project(tmp_path / "a"), make_project(tmp_path / "b")
        await begun(roster, first, STARTED)
        await eventually(lambda: roster.running == 1)
        await begun(roster, second, STARTED)
        await eventually(lambda: here.services.slots.place(TrackKey(second)) == 1)

        await roster.remove(second)
        (tmp_path / "go").touch()

        await eventually(lambda: shown(first)["step"] == "review")
        await eventually(lambda: here.services.slots.in_use == 0)
        assert 0 == roster.crashes


async def test_a_removal_during_a_start_keeps_no_slot(tmp_path: Path) -> None:
    """The project is either removed and idle, or stays and works."""
    async with supervised(tmp_path, INITIALISED, agent="sleep 600") as (here, roster, root):

        async def start() -> None:
            with suppress(HandoffdError):
                await roster.give(root, STARTED)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await eventually(lambda: here.services.slots.in_use)
            with suppress(Refused):
                await roster.remove(root)

        await eventually(lambda: here.services.slots.in_use == roster.running)
        await roster.end_executors("the test")


async def test_verbs_during_a_removal_are_answered(tmp_path: Path) -> None:
    """Each is accepted or gets an error."""
    async with supervised(tmp_path, INITIALISED) as (_, roster, root):
        told: list[str] = []

        async def note() -> None:
            try:
                told.append((await roster.give(root, Noted(text="Still there?"))).type)
            except HandoffdError as error:
                told.append(error.code)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(note)
                await anyio.lowlevel.checkpoint()
                await roster.remove(root)
        assert {"accepted", "RESTARTING", "NOT_FOUND"} >= set(told)
        assert 5 == len(told)


async def test_a_project_can_be_added_again_while_it_is_being_removed(tmp_path: Path) -> None:
    """It keeps its history."""
    async with supervised(tmp_path, INITIALISED) as (_, roster, root):
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(roster.remove, root)
                tasks.start_soon(roster.add, root)

        await roster.add(root)
        assert "accepted" == (await roster.give(root, Noted(text="Here again."))).type
        assert ("ok", "bootstrap") == ((await roster.view(root)).condition, shown(root)["step"])


async def test_a_deleted_project_can_be_removed(root: str, tmp_path: Path) -> None:
    """Even with an attempt in flight from before a power failure."""
    async with house(tmp_path, "sleep 600") as here:
        async with daemon(here) as roster:
            await begun(roster, root, STARTED)
            await until_started(here, 1)
        end_processes(tmp_path)
        shutil.rmtree(root)

        async with daemon(here) as roster:
            await eventually(lambda: roster.running == 1)
            with pytest.raises(StoreError, match="gone"):
                await roster.give(root, Aborted())
            await roster.remove(root)
            assert 0 == roster.count


async def test_a_poll_records_its_progress(here: House) -> None:
    """By the injected clock; before the first poll there is no record."""
    async with daemon(here) as roster:
        assert roster.polled is None

        await roster.poll()
        first, here.clock.ahead_s = roster.polled, 100
        await roster.poll()

        assert first is not None
        assert roster.polled >= first + 100


async def test_a_project_with_unreadable_records_does_not_stop_the_poll(tmp_path: Path) -> None:
    """The attempts of others still time out."""
    async with house(tmp_path, "sleep 600") as here, daemon(here) as roster:
        bad, good = make_project(tmp_path / "a"), make_project(tmp_path / "b")
        for root in (bad, good):
            await begun(roster, root, STARTED)
        await until_started(here, 2)
        (run, *_) = await here.journal.runs(bad)
        claim = here.services.run_dir(run.id) / "claim"
        claim.unlink()
        claim.mkdir()

        here.clock.ahead_s += 61
        await roster.poll()

        await eventually(lambda: shown(good)["status"] == "timeout")
        claim.rmdir()


async def test_a_broken_file_is_never_overwritten(here: House, root: str) -> None:
    """A verb is refused with the place of the fault, and a deadline leaves the file alone."""
    async with daemon(here) as roster:
        await begun(roster, root, Started(story="US-001", automatic=False))
        edit(root, status="running", dispatched_at=rfc3339(NOW))
        await roster.reload()
        at(root, ".ai/STATE.json").write_text('{"made": "by hand",')

        with pytest.raises(StoreError, match=r"STATE\.json:1"):
            await roster.give(root, Noted(text="Go on."))
        here.clock.ahead_s += 3600
        await roster.poll()
        await roster.reload()

        assert '{"made": "by hand",' == at(root, ".ai/STATE.json").read_text()


async def test_executors_are_ended_even_if_the_journal_cannot_record_it(tmp_path: Path) -> None:
    """A fault of the journal does not keep a process alive."""
    async with house(tmp_path, "sleep 600") as here, daemon(here, record_limit_s=0.1) as roster:
        for name in ("a", "b"):
            await begun(roster, make_project(tmp_path / name), STARTED)
        await until_started(here, 2)

        with unwritable(here), anyio.fail_after(60):
            await roster.end_executors("the test")

            await eventually(lambda: not processes(f"{tmp_path}/agent.sh"))


# --- limited accounts -----------------------------------------------------------------------------


async def until_it_waits(here: House, roster: Roster, *roots: str) -> None:
    """Start a story in these projects; wait until each waits for the agent's account, as its view shows."""
    for root in roots:
        await begun(roster, root, STARTED)
        await eventually(lambda root=root: here.services.accounts.waits(TrackKey(root)))  # type: ignore[misc]
        assert "purse's usage limit, until" in str((await roster.view(root)).tracks[0].waits_for)
        await eventually(lambda root=root: shown(root)["status"] == "pending")  # type: ignore[misc]


async def until_at_gate(*roots: str) -> None:
    """Wait until the stories of these projects have reached their gate."""
    await eventually(lambda: {"review"} == {shown(root)["step"] for root in roots})


async def test_a_limit_holds_and_is_lifted_for_all_projects(tmp_path: Path) -> None:
    """Also for one that never met it; every project that met it records the end."""
    async with house(tmp_path, AT_ITS_LIMIT) as here, daemon(here) as roster:
        met, other = make_project(tmp_path / "a"), make_project(tmp_path / "b")
        await until_it_waits(here, roster, met, other)
        assert (1, ()) == (len(roster.limits()), await here.journal.runs(other, 10))

        at(str(tmp_path), "paid").touch()
        assert Lifted(projects=(met,)) == await roster.lift_limit("purse", "mei")
        await until_at_gate(met, other)
        assert "limit_lifted" in {event.kind for event in await here.journal.events(0, met, 100)}
        with pytest.raises(NotFound, match=r"'purse' is not limited \(limited: none\)"):
            await roster.lift_limit("purse", "mei")


async def test_a_track_without_a_slot_does_not_block_the_trial_of_an_account(tmp_path: Path) -> None:
    """After a limit one track tries alone, but never one that cannot start."""
    first, other = make_project(tmp_path / "a"), make_project(tmp_path / "b")
    scheduling = {"groups": {"full": {"slots": 1, "projects": [first]}}}
    async with house(tmp_path, AT_ITS_LIMIT, scheduling=scheduling) as here, daemon(here) as roster:
        await until_it_waits(here, roster, first, other)
        here.services.slots.occupy(bid("/srv/full", group="full"))

        at(str(tmp_path), "paid").touch()
        here.clock.ahead_s += LIMIT_S + 300
        await roster.look_at_accounts()
        await until_at_gate(other)

        waits_for = str((await roster.view(first)).tracks[0].waits_for)
        assert waits_for.startswith("1st in group full (1 of 1 in use: ")


async def test_lifting_a_limit_reports_a_broken_project(tmp_path: Path) -> None:
    """The other projects go on."""
    async with house(tmp_path, AT_ITS_LIMIT) as here, daemon(here) as roster:
        broken, other = make_project(tmp_path / "a"), make_project(tmp_path / "b")
        await until_it_waits(here, roster, broken, other)
        at(broken, ".ai/STATE.json").write_text("{ broken")
        roster.touched(broken)

        async def seen() -> bool:
            return (await roster.view(broken)).condition == "invalid_state"

        found: bool = await eventually(seen)
        assert found, "its agent would begin first, and the edit be undone"
        at(str(tmp_path), "paid").touch()
        lifted = await roster.lift_limit("purse", "mei")
        assert ((), [broken]) == (lifted.projects, [line.split(":")[0] for line in lifted.problems])
        await until_at_gate(other)


async def test_without_a_daemon_an_unrecorded_lift_fails(root: str, tmp_path: Path) -> None:
    """No daemon would act on it."""
    async with house(tmp_path, AT_ITS_LIMIT) as here:
        async with daemon(here) as roster:
            await until_it_waits(here, roster, root)
        at(root, ".ai/STATE.json").write_text("{ broken")
        alone = Roster(here.services)
        await alone.load()
        with pytest.raises(StoreError):
            await alone.lift_limit("purse", "mei")
        alone.close()


async def test_the_next_daemon_restores_limits(root: str, tmp_path: Path) -> None:
    """From the journal, before it dispatches anything; a read-only roster does the same."""
    async with house(tmp_path, AT_ITS_LIMIT) as here:
        async with daemon(here) as roster:
            await until_it_waits(here, roster, root)
            known = roster.limits()

        again = replace(here, services=replace(here.services, accounts=Accounts()))
        alone = Roster(again.services)
        await alone.load()
        await alone.inspect()
        assert known == tuple(replace(view, waiting=1) for view in alone.limits())
        assert "purse's usage limit, until" in str((await alone.view(root)).tracks[0].waits_for)
        alone.close()
        async with daemon(again) as roster:
            await eventually(lambda: known == roster.limits())
            assert 1 == len(await here.journal.runs(root, 10))


async def test_executors_are_listed_by_name_with_auto(here: House) -> None:
    """The base `command` cannot be chosen."""
    choices = Roster(here.services).executors()
    assert {"auto", "agent", "claude", "rehearsal"} <= set(choices)
    assert "command" not in choices
