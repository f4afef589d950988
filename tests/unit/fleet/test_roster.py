"""All projects: found, added, removed, and each crashing for itself."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.support.eventually import eventually
from tests.support.house import (
    AT_ITS_LIMIT,
    HAND_OVER,
    LIMIT_S,
    NOW,
    House,
    at,
    bid,
    daemon,
    house,
    make_project,
    unwritable,
)
from tests.support.runs import end_processes, processes

from handoffd.capacity.accounts import Accounts
from handoffd.clock import rfc3339
from handoffd.engine.events import Aborted, Initialised, Noted, Started, Verb
from handoffd.engine.track import TrackKey
from handoffd.engine.views import Lifted
from handoffd.errors import HandoffdError, NotFound, Refused, StoreError
from handoffd.fleet.roster import Roster
from handoffd.notify.sink_workers import GivenUp
from handoffd.settings.model import WatchSettings
from handoffd.watch.watcher import Watcher


def shown(root: str) -> dict[str, object]:
    """Return what STATE.json says."""
    found: dict[str, object] = json.loads(at(root, ".ai/STATE.json").read_text())
    return found


async def test_adding_a_project_dispatches_nothing_and_trusts_its_files(tmp_path: Path) -> None:
    """Adding it again changes nothing."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path)

        first, second = await roster.add(root), await roster.add(f"{root}/../shop")

        assert (root, "not_initialized", 1) == (first.project, first.condition, roster.count)
        assert first == second
        assert [root] == [project.root for project in await here.journal.projects()]
        assert ".ai/step-rules.yaml" in (await here.journal.trusted())[root]


async def test_what_is_no_folder_is_not_added(tmp_path: Path) -> None:
    """And leaves nothing behind."""
    async with house(tmp_path) as here, daemon(here) as roster:
        with pytest.raises(NotFound):
            await roster.add(str(tmp_path / "nowhere"))
        assert (0, ()) == (roster.count, await here.journal.projects())


async def test_a_project_is_found_by_path_by_a_path_inside_and_by_name(tmp_path: Path) -> None:
    """An unknown one names those there are; an ambiguous name wants a path."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path / "a")
        await roster.add(root)
        assert [root] * 3 == [roster.find(name) for name in (root, f"{root}/docs/bdd", "shop")]
        with pytest.raises(NotFound) as unknown:
            roster.find("shpo")
        assert "(known: shop)" in unknown.value.message

        await roster.add(make_project(tmp_path / "b"))
        with pytest.raises(Refused):
            roster.find("shop")


async def test_a_removed_project_keeps_its_files_and_its_history(tmp_path: Path) -> None:
    """Added again, it stands where it stood."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await roster.add(root)
        await roster.give(root, Initialised(project="shop"))

        await roster.remove(root)

        assert (0, "bootstrap") == (roster.count, shown(root)["step"])
        with pytest.raises(NotFound):
            await roster.view(root)
        assert "bootstrap" == (await roster.add(root)).tracks[0].step


async def test_a_project_with_a_running_executor_is_not_removed(tmp_path: Path) -> None:
    """Nobody would hear its end."""
    async with house(tmp_path, "sleep 600") as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await roster.add(root)
        await roster.give(root, Initialised(project="shop"))
        await roster.give(root, Started(story="US-001"))
        await eventually(lambda: roster.running == 1)

        with pytest.raises(Refused):
            await roster.remove(root)
        await roster.end_executors("the test")


async def test_a_verb_looks_at_the_disk_first(tmp_path: Path) -> None:
    """What somebody wrote before the verb was written before it."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await roster.add(root)
        await roster.give(root, Initialised(project="shop"))
        at(root, ".ai/STATE.json").write_text(json.dumps(shown(root) | {"human_note": "first"}))

        await roster.give(root, Noted(text="second"))

        assert "first\n\nsecond" == shown(root)["human_note"]


async def test_a_project_that_crashes_is_restarted_and_no_other_one_notices(tmp_path: Path) -> None:
    """The crash is counted, and the project goes on where it stood."""
    async with house(tmp_path) as here, daemon(here) as roster:
        good, bad = make_project(tmp_path / "good"), make_project(tmp_path / "bad")
        for root in (good, bad):
            await roster.add(root)
            await roster.give(root, Initialised(project=root))
        # No reader lets such a note through: it stands for a broken invariant of our own.
        with pytest.raises(TypeError):
            await roster.give(bad, Noted(text=b"no text"))  # type: ignore[arg-type]

        assert "accepted" == (await roster.give(good, Noted(text="still here"))).type
        await eventually(lambda: roster.crashes == 1)


async def test_it_has_begun_when_every_project_was_looked_at(tmp_path: Path) -> None:
    """Not before: a project without its loop has not."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
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


async def test_a_project_that_is_not_watched_says_so_until_it_is(tmp_path: Path) -> None:
    """Its changes are seen later: who waits for one shall know why."""
    async with house(tmp_path) as here:
        roster = Roster(here.services)
        watcher = Watcher(roster.touched, WatchSettings(backend="watchfiles", sweep_s=0.1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(roster.run, watcher)
            tasks.start_soon(watcher.run)
            root = make_project(tmp_path)
            await roster.add(root)
            strange = os.fsencode(at(root, ".ai/")) + b"/\xff"

            async def told() -> bool:
                view = await roster.view(root)
                says = any("not at once" in warning for warning in view.warnings)
                assert says == (view.swept is not None)
                return says

            def swept_only() -> bool:
                os.close(os.open(strange, os.O_CREAT | os.O_WRONLY | os.O_TRUNC))
                return root in watcher.degraded

            assert not await told()
            await eventually(swept_only, within_s=60)
            assert await told()
            os.unlink(strange)
            await eventually(lambda: root not in watcher.degraded, within_s=60)
            assert not await told()
            tasks.cancel_scope.cancel()


async def test_ended_executors_cost_no_attempt(tmp_path: Path) -> None:
    """The next daemon repeats the attempt, under its old number."""
    async with house(tmp_path, f"test -e go || sleep 600\n{HAND_OVER}") as here:
        root = make_project(tmp_path)
        async with daemon(here) as roster:
            await roster.add(root)
            await roster.give(root, Initialised(project="shop"))
            await roster.give(root, Started(story="US-001"))
            await eventually(lambda: roster.running == 1)

            await roster.end_executors("the test")
            # The daemon's clock stands still here: what it had not shown yet would look like an older edit.
            await eventually(lambda: shown(root)["status"] == "pending")

        at(root, "go").touch()
        async with daemon(here) as roster:
            await eventually(lambda: shown(root)["step"] == "review")
        assert [1, 1] == [run.attempt for run in await here.journal.runs()]


async def test_an_executor_is_adopted_by_the_next_daemon(tmp_path: Path) -> None:
    """One start, and its result is applied."""
    waiting = "echo x >> starts; until test -e go; do sleep 0.05; done"
    async with house(tmp_path, f"{waiting}\n{HAND_OVER}") as here:
        root = make_project(tmp_path)
        async with daemon(here) as roster:
            await roster.add(root)
            await roster.give(root, Initialised(project="shop"))
            await roster.give(root, Started(story="US-001"))
            await eventually(at(root, "starts").exists)

        async with daemon(here):
            assert 1 == here.services.slots.in_use
            at(root, "go").touch()
            await eventually(lambda: shown(root)["step"] == "review")
        assert "x\n" == at(root, "starts").read_text()


async def test_without_loops_a_verb_is_taken_and_left_to_the_daemon(tmp_path: Path) -> None:
    """The same objects, the same locks; what follows happens when a daemon comes."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        alone = Roster(here.services)
        await alone.add(root)
        await alone.give(root, Initialised(project="shop"))
        assert "accepted" == (await alone.give(root, Started(story="US-001"))).type
        alone.close()
        assert ("bdd", "pending") == (shown(root)["step"], shown(root)["status"])

        async with daemon(here):
            await eventually(lambda: shown(root)["step"] == "review")


async def test_trust_and_reload_tell_what_they_found(tmp_path: Path) -> None:
    """Held keys by name; problems with their place."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await roster.add(root)
        at(root, ".ai/handoffd.yaml").write_text("test: {command: [make]}\n")
        assert () == await roster.reload()
        assert ("test.command",) == await roster.trust(root)

        at(root, ".ai/handoffd.yaml").write_text("tset: {}\n")
        (problem,) = await roster.reload()
        assert problem.startswith(f"{root}: .ai/handoffd.yaml:1: tset:")


async def test_a_peek_needs_a_state(tmp_path: Path) -> None:
    """And then tells the next turn."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await roster.add(root)
        with pytest.raises(Refused):
            await roster.peek(root, bootstrapped=True)
        await roster.give(root, Initialised(project="shop"))

        peek = await roster.peek(root, bootstrapped=True)

        assert ("bdd", "agent", None) == (peek.step, peek.executor, peek.prompt)


async def test_a_hint_about_an_unknown_root_is_no_harm(tmp_path: Path) -> None:
    """A watcher may be late."""
    async with house(tmp_path) as here, daemon(here) as roster:
        roster.touched("/srv/gone")

        assert 0 == roster.count


async def test_a_name_is_not_taken_for_a_path_beside_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that was started in a project does not find it by every typo."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await roster.add(root)
        monkeypatch.chdir(root)

        with pytest.raises(NotFound):
            roster.find("typo")


async def test_a_project_that_is_added_twice_at_once_is_one(tmp_path: Path) -> None:
    """Two callers, one supervisor, and a verb given at once is decided by its loop."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(roster.add, root)
        given = await roster.give(root, Initialised(project="shop"))

        assert (1, "ok", "accepted") == (roster.count, (await roster.view(root)).condition, given.type)
        assert 0 == roster.crashes


async def test_while_executors_are_ended_nobody_gets_their_slots(tmp_path: Path) -> None:
    """What waited in line does not begin when what ran is stopped."""
    async with house(tmp_path, "sleep 600") as here, daemon(here) as roster:
        roots = [make_project(tmp_path / str(number)) for number in range(here.services.slots.total + 2)]
        for root in roots:
            await roster.add(root)
            await roster.give(root, Initialised(project="shop"))
            await roster.give(root, Started(story="US-001"))
        await eventually(lambda: roster.running == here.services.slots.total)

        await roster.end_executors("the test")

        assert 0 == roster.running


async def test_a_look_without_a_lock_tells_what_is_wrong(tmp_path: Path) -> None:
    """And repairs nothing: whoever only looks may be beside a daemon."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with daemon(here) as roster:
            await roster.add(root)
            await roster.give(root, Initialised(project="shop"))
        at(root, ".ai/STATE.json").write_text("{broken")

        async with daemon(here):
            looking = Roster(here.services)
            await looking.load()
            await looking.inspect()
            condition = (await looking.view(root)).condition
            looking.close()

        assert "invalid_state" == condition


async def begun(roster: Roster, root: str, *verbs: Verb) -> None:
    """Add a project, initialise it, and give it verbs."""
    await roster.add(root)
    for verb in (Initialised(project="shop"), *verbs):
        await roster.give(root, verb)


async def test_a_project_that_is_removed_while_it_waits_leaves_the_line(tmp_path: Path) -> None:
    """A slot that becomes free is given to somebody who is there."""
    waiting = f"until test -e {tmp_path}/go; do sleep 0.05; done"
    async with house(tmp_path, f"{waiting}\n{HAND_OVER}", slots=1) as here, daemon(here) as roster:
        first, second = make_project(tmp_path / "a"), make_project(tmp_path / "b")
        await begun(roster, first, Started(story="US-001"))
        await eventually(lambda: roster.running == 1)
        await begun(roster, second, Started(story="US-001"))
        await eventually(lambda: here.services.slots.place(TrackKey(second)) == 1)

        await roster.remove(second)
        (tmp_path / "go").touch()

        await eventually(lambda: shown(first)["step"] == "review")
        await eventually(lambda: here.services.slots.in_use == 0)
        assert 0 == roster.crashes


async def test_a_project_that_is_removed_while_it_begins_to_work_keeps_no_slot(tmp_path: Path) -> None:
    """It is removed and works no more, or stays and works: nothing in between."""
    async with house(tmp_path, "sleep 600") as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await begun(roster, root)

        async def start() -> None:
            with suppress(HandoffdError):
                await roster.give(root, Started(story="US-001"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await eventually(lambda: here.services.slots.in_use)
            with suppress(Refused):
                await roster.remove(root)

        await eventually(lambda: here.services.slots.in_use == roster.running)
        await roster.end_executors("the test")


async def test_nobody_waits_for_an_answer_of_a_project_that_was_removed(tmp_path: Path) -> None:
    """Whoever asked meanwhile is told so."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await begun(roster, root)
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
    """One after the other, with all it knew."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await begun(roster, root)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(roster.remove, root)
                tasks.start_soon(roster.add, root)

        await roster.add(root)
        assert "accepted" == (await roster.give(root, Noted(text="Here again."))).type
        assert ("ok", "bootstrap") == ((await roster.view(root)).condition, shown(root)["step"])


async def test_what_is_gone_for_good_can_be_removed(tmp_path: Path) -> None:
    """Its attempt in flight is one of a machine that was switched off since."""
    async with house(tmp_path, "sleep 600") as here:
        root = make_project(tmp_path)
        async with daemon(here) as roster:
            await begun(roster, root, Started(story="US-001"))
            await eventually(lambda: list(here.services.settings.runs_dir.glob("*/start.json")))
        end_processes(tmp_path)
        shutil.rmtree(root)

        async with daemon(here) as roster:
            await eventually(lambda: roster.running == 1)
            with pytest.raises(StoreError, match="gone"):
                await roster.give(root, Aborted())
            await roster.remove(root)
            assert 0 == roster.count


async def test_a_poll_notes_that_it_gets_on(tmp_path: Path) -> None:
    """By the clock that is asked; before the first one it is not waited for."""
    async with house(tmp_path) as here, daemon(here) as roster:
        assert roster.polled is None

        await roster.poll()
        first, here.clock.ahead_s = roster.polled, 100
        await roster.poll()

        assert first is not None
        assert roster.polled >= first + 100


async def test_what_the_poller_cannot_tell_of_one_project_is_not_the_others_business(tmp_path: Path) -> None:
    """Its records cannot be read; the attempts of others end in time."""
    async with house(tmp_path, "sleep 600") as here, daemon(here) as roster:
        bad, good = make_project(tmp_path / "a"), make_project(tmp_path / "b")
        for root in (bad, good):
            await begun(roster, root, Started(story="US-001"))
        await eventually(lambda: len(list(here.services.settings.runs_dir.glob("*/start.json"))) == 2)
        (run, *_) = await here.journal.runs(bad)
        (here.services.run_dir(run.id) / "claim").unlink()
        (here.services.run_dir(run.id) / "claim").mkdir()

        here.clock.ahead_s += 61
        await roster.poll()

        await eventually(lambda: shown(good)["status"] == "timeout")
        (here.services.run_dir(run.id) / "claim").rmdir()


async def test_a_verb_writes_over_no_file_that_waits_to_be_mended(tmp_path: Path) -> None:
    """It is refused, with the place of the fault; so is a clock that would."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await begun(roster, root, Started(story="US-001", automatic=False))
        at(root, ".ai/STATE.json").write_text(
            json.dumps(shown(root) | {"status": "running", "dispatched_at": rfc3339(NOW)})
        )
        await roster.reload()
        at(root, ".ai/STATE.json").write_text('{"made": "by hand",')

        with pytest.raises(StoreError, match=r"STATE\.json:1"):
            await roster.give(root, Noted(text="Go on."))
        here.clock.ahead_s += 3600
        await roster.poll()
        await roster.reload()

        assert '{"made": "by hand",' == at(root, ".ai/STATE.json").read_text()


async def test_executors_are_ended_even_if_that_cannot_be_recorded(tmp_path: Path) -> None:
    """Whoever stops them wants the machine, and one project's fault is not the others'."""
    async with house(tmp_path, "sleep 600") as here, daemon(here) as roster:
        for name in ("a", "b"):
            await begun(roster, make_project(tmp_path / name), Started(story="US-001"))
        await eventually(lambda: len(list(here.services.settings.runs_dir.glob("*/start.json"))) == 2)

        with unwritable(here), anyio.fail_after(60):
            await roster.end_executors("the test")

            await eventually(lambda: not processes(f"{tmp_path}/agent.sh"))


async def test_that_people_could_not_be_told_is_part_of_the_history(tmp_path: Path) -> None:
    """Of the track it was about, or of the main one; of a project that is not there, only the log tells."""
    async with house(tmp_path) as here, daemon(here) as roster:
        root = make_project(tmp_path)
        await roster.add(root)
        await roster.give(root, Initialised(project="shop"))

        before = here.journal.newest
        for project, track in ((root, "main"), ("/nowhere", "main"), (root, "no such"), (root, "")):
            roster.notice_given_up(
                GivenUp(sink="webhook", project=project, track=track, count=2, first="7", why="no route")
            )

        await eventually(lambda: here.journal.newest == before + 2)
        events = await here.journal.events(before, root)
        assert ["notice_given_up"] * 2 == [event.kind for event in events]


# --- limited accounts -----------------------------------------------------------------------------
async def start(roster: Roster, root: str) -> None:
    """Have a project work on a story."""
    await roster.add(root)
    await roster.give(root, Initialised(project="shop"))
    await roster.give(root, Started(story="US-001"))


async def until_it_waits(here: House, roster: Roster, root: str) -> None:
    """Wait until a project stands in the line of the agent's account, and is said to."""
    await eventually(lambda: here.services.accounts.waits(TrackKey(root)))
    assert "purse's usage limit, until" in str((await roster.view(root)).tracks[0].waits_for)


async def until_its_gate(root: str) -> None:
    """Wait until a story has come to its gate."""
    await eventually(lambda: shown(root)["step"] == "review")


async def test_a_limit_is_everybodys_and_lifted_for_everybody(tmp_path: Path) -> None:
    """Also for one that never met it; each that met it has that in its history."""
    async with house(tmp_path, AT_ITS_LIMIT) as here, daemon(here) as roster:
        met, other = make_project(tmp_path / "a"), make_project(tmp_path / "b")
        await start(roster, met)
        await eventually(lambda: len(roster.limits()) == 1)
        await start(roster, other)
        for root in (met, other):
            await until_it_waits(here, roster, root)
        assert () == await here.journal.runs(other, 10)

        at(str(tmp_path), "paid").touch()
        assert Lifted(projects=(met,)) == await roster.lift_limit("purse", "mei")
        for root in (met, other):
            await until_its_gate(root)
        assert "limit_lifted" in {event.kind for event in await here.journal.events(0, met, 100)}
        with pytest.raises(NotFound, match=r"'purse' is not limited \(limited: none\)"):
            await roster.lift_limit("purse", "mei")


async def test_one_in_line_for_a_slot_keeps_nobody_from_trying_an_account(tmp_path: Path) -> None:
    """When a limit is over one track tries alone, but not one that could not begin."""
    first = make_project(tmp_path / "a")
    scheduling = {"groups": {"full": {"slots": 1, "projects": [first]}}}
    async with house(tmp_path, AT_ITS_LIMIT, scheduling=scheduling) as here, daemon(here) as roster:
        other = make_project(tmp_path / "b")
        await start(roster, first)
        await until_it_waits(here, roster, first)
        await start(roster, other)
        await until_it_waits(here, roster, other)
        here.services.slots.occupy(bid("/srv/full", group="full"))

        at(str(tmp_path), "paid").touch()
        here.clock.ahead_s += LIMIT_S + 300
        await roster.look_at_accounts()
        await until_its_gate(other)

        waits_for = str((await roster.view(first)).tracks[0].waits_for)
        assert waits_for.startswith("1st in group full (1 of 1 in use: ")


async def test_a_limit_is_lifted_for_everybody_while_a_project_is_broken(tmp_path: Path) -> None:
    """That it could not be recorded there is said; the others go on."""
    async with house(tmp_path, AT_ITS_LIMIT) as here, daemon(here) as roster:
        broken, other = make_project(tmp_path / "a"), make_project(tmp_path / "b")
        await start(roster, broken)
        await until_it_waits(here, roster, broken)
        await start(roster, other)
        await until_it_waits(here, roster, other)
        at(broken, ".ai/STATE.json").write_text("{ broken")

        at(str(tmp_path), "paid").touch()
        lifted = await roster.lift_limit("purse", "mei")
        assert ((), [broken]) == (lifted.projects, [line.split(":")[0] for line in lifted.problems])
        await until_its_gate(other)


async def test_without_a_daemon_a_lift_that_can_be_recorded_nowhere_fails(tmp_path: Path) -> None:
    """There is nobody who would go on."""
    async with house(tmp_path, AT_ITS_LIMIT) as here:
        root = make_project(tmp_path)
        async with daemon(here) as roster:
            await start(roster, root)
            await until_it_waits(here, roster, root)
        at(root, ".ai/STATE.json").write_text("{ broken")
        alone = Roster(here.services)
        await alone.load()
        with pytest.raises(StoreError):
            await alone.lift_limit("purse", "mei")
        alone.close()


async def test_the_next_daemon_knows_what_is_limited(tmp_path: Path) -> None:
    """From the journal, before anything is dispatched; and so does whoever only looks."""
    async with house(tmp_path, AT_ITS_LIMIT) as here:
        root = make_project(tmp_path)
        async with daemon(here) as roster:
            await start(roster, root)
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


async def test_what_can_be_chosen_are_names_and_auto(tmp_path: Path) -> None:
    """No patterns."""
    async with house(tmp_path) as here:
        choices = Roster(here.services).executors()
        assert {"auto", "agent", "claude", "rehearsal"} <= set(choices)
        assert "command" not in choices
