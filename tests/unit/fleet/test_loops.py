"""The loops of all projects: begun, ended, and made anew from the journal after a crash."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs
from tests.support.eventually import eventually
from tests.support.house import (
    NOW,
    STARTED,
    House,
    at,
    begun,
    daemon,
    dispatch_of,
    house,
    make_project,
    track_of,
)
from tests.unit.journal.making import record

from handoffd.capacity.budgets import Flight
from handoffd.engine.events import Approved, Event, Initialised, Noted
from handoffd.engine.run import Usage
from handoffd.engine.track import Track, TrackKey
from handoffd.errors import HandoffdError, NotFound, Refused, StoreError
from handoffd.files.locks import acquire, project_lock_path
from handoffd.fleet.loops import Loops, _Loop
from handoffd.fleet.register import Register
from handoffd.fleet.roster import Roster
from handoffd.notify.sink_workers import GivenUp
from handoffd.project.project import Project
from handoffd.project.rest import Row, stays_up
from handoffd.protocol.state import Status
from handoffd.settings.model import ProjectCaps


class Watch:
    """Keeps the roots it hints about."""

    def __init__(self) -> None:
        self.roots: set[str] = set()
        self.degraded: dict[str, str] = {}

    def add(self, root: str) -> None:
        """Hint about this root from now on."""
        self.roots.add(root)

    def remove(self, root: str) -> None:
        """Hint about it no more."""
        self.roots.discard(root)


@asynccontextmanager
async def looping(here: House, projects: dict[str, Project], watch: Watch) -> AsyncIterator[Loops]:
    """Lend the running loops of `projects`."""
    register = Register()
    register.awake = projects
    loops = Loops(here.services, register)
    # The traceback of a crash is not printed: making it pretty holds up everybody for seconds.
    with capture_logs():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.services.notifier.run)
            tasks.start_soon(loops.run, watch)
            for root in tuple(projects):
                await projects[root].begun.wait()
            yield loops
            tasks.cancel_scope.cancel()
    for project in projects.values():
        project.dismiss()


async def test_every_project_has_its_loop_and_is_watched(tmp_path: Path) -> None:
    """From the start, and until its end."""
    async with house(tmp_path) as here:
        root, watch = make_project(tmp_path), Watch()
        projects = {root: Project(root, here.services, ())}
        async with looping(here, projects, watch) as loops:
            assert (True, {root}, True) == (loops.run_here, watch.roots, projects[root].main.lasting)

            await loops.end(root)
            await loops.end(root)

            assert (set(), False) == (watch.roots, projects[root].main.lasting)
        assert not loops.run_here


async def test_what_cannot_be_watched_is_told_with_what_happens_instead(tmp_path: Path) -> None:
    """A delay of half a minute is not to be taken for a hang; without a daemon nothing is watched at all."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        watch = Watch()
        async with looping(here, {root: Project(root, here.services, ())}, watch) as loops:
            assert loops.unwatched(root) is None
            watch.degraded[root] = ".ai is not a folder"

            told = "changes are seen by the sweep every 30 s, not at once: .ai is not a folder"
            assert (told, ".ai is not a folder") == (loops.unwatched(root), loops.swept(root))
        assert loops.unwatched(root) is None


async def test_a_crashed_project_is_made_anew_from_what_was_recorded(tmp_path: Path) -> None:
    """What it had in memory is not believed; people are told once, and see it in the status."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        before = Project(root, here.services, ())
        projects = {root: before}
        async with looping(here, projects, Watch()) as loops:
            await before.main.give(Initialised(project="shop"))

            before.main.post(Noted(text=b"no text"))  # type: ignore[arg-type]  # no reader lets it through

            await eventually(lambda: projects[root] is not before and projects[root].begun.is_set())
            after = projects[root]
            assert (1, "bootstrap") == (loops.crashes, after.main.track.state.step)  # type: ignore[union-attr]
            assert "started again" in (after.crash or "")
            assert "accepted" == (await after.main.give(Noted(text="still here"))).result.type
            await eventually(lambda: [notice.kind for notice in here.told.notices] == ["warning"])


async def test_what_a_crashed_project_did_not_hear_of_is_booked_all_the_same(tmp_path: Path) -> None:
    """A run whose end was committed flies no more, and what it used counts against the caps of all."""
    used = Usage(input_tokens=7, cost_usd=0.25, priced="table")
    async with house(tmp_path) as here:
        root, budgets = make_project(tmp_path), here.services.budgets
        before = Project(root, here.services, ())
        projects = {root: before}
        async with looping(here, projects, Watch()):
            await before.main.give(Initialised(project="shop"))
            flying = track_of(Status.RUNNING, dispatch=dispatch_of("d1"))
            budgets.begin("d1", flight(TrackKey(root), flying))
            ended = before.main.track.with_ledger(spent=used)
            await here.journal.commit(record(key=TrackKey(root), after=ended, at=NOW))

            before.main.post(Noted(text=b"no text"))  # type: ignore[arg-type]  # no reader lets it through

            await eventually(lambda: projects[root] is not before and projects[root].begun.is_set())
            assert (used, {}) == (budgets.booked, budgets._flights)


def flight(key: TrackKey, track: Track) -> Flight:
    """Return a run that is counted and hears of nothing."""
    return Flight(key=key, track=lambda: track, caps=ProjectCaps, post=lambda event: None)


async def test_a_crash_in_the_middle_of_a_commit_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Whoever waited for the commit did not hear of it; what was recorded counts."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        before = Project(root, here.services, ())
        projects = {root: before}

        async def note() -> None:
            with suppress(HandoffdError):
                await before.main.give(Noted(text="Mind the rounding."))

        async def fail() -> None:
            raise RuntimeError("a broken invariant of ours")

        async with looping(here, projects, Watch()):
            await before.main.give(Initialised(project="shop"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(note)
                for _ in range(4):  # until it waits for the journal
                    await anyio.lowlevel.checkpoint()
                before.main.begin("fail", fail)

            await eventually(lambda: projects[root] is not before and projects[root].begun.is_set())
            (stored,) = await here.journal.tracks()
            assert stored.track == projects[root].main.track


async def test_a_journal_that_cannot_be_read_ends_no_daemon(tmp_path: Path) -> None:
    """A project that crashed waits for it, and the others go on."""
    async with house(tmp_path) as here:
        root, other = make_project(tmp_path / "a"), make_project(tmp_path / "b")
        projects = {name: Project(name, here.services, ()) for name in (root, other)}
        before = projects[root]
        async with looping(here, projects, Watch()):
            await before.main.give(Initialised(project="shop"))
            body = _replace_body(here, "{")
            before.main.post(Noted(text=b"no text"))  # type: ignore[arg-type]
            await eventually(lambda: before.dismissed)
            await eventually(lambda: before.crash)
            assert "accepted" == (await projects[other].main.give(Initialised(project="b"))).result.type
            _replace_body(here, body)

            await eventually(lambda: projects[root] is not before and projects[root].begun.is_set())
            assert projects[other].begun.is_set()


def _replace_body(here: House, body: str) -> str:
    """Write over what the journal has of the first track; return what was there."""
    with closing(sqlite3.connect(here.services.settings.journal, timeout=60)) as database:
        ((before,),) = database.execute("SELECT body FROM tracks LIMIT 1").fetchall()
        database.execute("UPDATE tracks SET body = ? WHERE body = ?", (body, before))
        database.commit()
    return str(before)


def _change(here: House, statement: str) -> None:
    with closing(sqlite3.connect(here.services.settings.journal, timeout=60)) as database:
        database.execute(statement)
        database.commit()


async def test_without_a_daemon_nothing_is_begun(tmp_path: Path) -> None:
    """A verb does its own work and leaves the rest."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        project = Project(root, here.services, ())
        register = Register()
        register.awake[root] = project
        loops = Loops(here.services, register)

        loops.begin(root)
        await anyio.wait_all_tasks_blocked()

        assert (False, False) == (loops.run_here, project.main.lasting)
        project.dismiss()


# --- at rest ---------------------------------------------------------------------------------------
SOON = 0.01


@asynccontextmanager
async def resting(
    here: House, root: str, *events: Event, after_s: float = SOON
) -> AsyncIterator[tuple[Roster, Register]]:
    """Lend a roster in which the project at `root` has met `events`, and rests."""
    async with daemon(here, rest_after_s=after_s) as roster:
        await roster.add(root)
        for event in events:
            await roster.give(root, event)  # type: ignore[arg-type]
        await eventually(lambda: roster.resting == 1)
        yield roster, roster._register


INITIALISED = Initialised(project="shop")


def shown(root: str) -> dict[str, object]:
    """Return what STATE.json says."""
    found: dict[str, object] = json.loads(at(root, ".ai/STATE.json").read_text())
    return found


def edit(root: str, **changes: object) -> None:
    """Change STATE.json as another tool would."""
    at(root, ".ai/STATE.json").write_text(json.dumps(shown(root) | changes))


async def kinds(here: House) -> list[str]:
    """Return what has happened, by kind."""
    return [event.kind for event in await here.journal.events()]


async def test_a_project_with_nothing_to_do_is_a_row(tmp_path: Path) -> None:
    """It has no loop and no lock, and `status` tells of it as before."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path, settings="executor: agent\n")
        async with daemon(here, rest_after_s=3600) as roster:
            await begun(roster, root)
            before = await roster.view(root)
        async with resting(here, root) as (roster, register):
            assert {} == register.awake
            acquire(project_lock_path(here.services.settings.state_dir, Path(root)), "it").release()
            assert (before, (before,)) == (await roster.view(root), await roster.views())
            assert (root, {root: "shop"}, 1) == (roster.find("shop"), dict(roster.names()), roster.count)
            assert {} == register.awake


async def test_a_verb_wakes_it_and_it_rests_again(tmp_path: Path) -> None:
    """What was asked happens once, whether one asks or several do at once."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with resting(here, root, INITIALISED) as (roster, _):
            async with anyio.create_task_group() as tasks:
                for number in range(5):
                    tasks.start_soon(roster.give, root, Noted(text=f"note {number}"))
            await eventually(lambda: roster.resting == 1)

            assert {f"note {number}" for number in range(5)} == set(
                str(shown(root)["human_note"]).split("\n\n")
            )
            assert ["initialised", *["noted"] * 5] == await kinds(here)


async def test_a_story_goes_from_rest_to_its_gate_and_from_there_to_its_end(tmp_path: Path) -> None:
    """At a gate it rests, too, for as long as a person takes."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with resting(here, root, INITIALISED) as (roster, register):
            await roster.give(root, STARTED)
            await eventually(lambda: (shown(root)["step"], roster.resting) == ("review", 1))
            view = await roster.view(root)
            assert (True, "a person's decision") == (view.tracks[0].gate, view.tracks[0].waits_for)

            await roster.give(root, Approved())
            await eventually(lambda: (shown(root)["step"], roster.resting) == ("done", 1))
            assert (0, {}) == (here.services.slots.in_use, register.awake)
        assert [1, 1] == [run.attempt for run in await here.journal.runs()]


async def test_an_edit_of_a_resting_projects_state_is_found(tmp_path: Path) -> None:
    """A hint is enough, and it is judged like any other one."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with resting(here, root, INITIALISED) as (roster, _):
            edit(root, human_note="Mind the rounding.")
            roster.touched(root)

            await eventually_kinds(here, ["initialised", "state_edited"])
            await eventually(lambda: roster.resting == 1)
            assert "Mind the rounding." == (await roster.view(root)).tracks[0].human_note


async def test_a_deleted_state_is_written_again(tmp_path: Path) -> None:
    """The journal has it."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with resting(here, root, INITIALISED) as (roster, _):
            at(root, ".ai/STATE.json").unlink()
            roster.touched(root)

            await eventually(at(root, ".ai/STATE.json").exists)
            await eventually(lambda: roster.resting == 1)


async def test_files_that_cannot_be_used_any_more_are_told_of(tmp_path: Path) -> None:
    """A project that waits to be mended does not rest; mended, it does."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with resting(here, root, INITIALISED) as (roster, register):
            at(root, ".ai/handoffd.yaml").write_text("tset: {}\n")
            roster.touched(root)
            await eventually(lambda: [notice.kind for notice in here.told.notices] == ["warning"])
            assert "invalid_rules" == (await roster.view(root)).condition
            assert [root] == list(register.awake)

            at(root, ".ai/handoffd.yaml").unlink()
            roster.touched(root)
            await eventually(lambda: roster.resting == 1)


async def test_a_hint_about_nothing_wakes_nobody(tmp_path: Path) -> None:
    """An agent's hand-off for no attempt, our own STATE.json written a moment ago."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with resting(here, root, INITIALISED) as (roster, register):
            row = register.resting[root]
            at(root, ".ai/HANDOFF.md").write_text("---\nstep: bdd\nstatus: pass\n---\n")
            roster._loops.rounds.been = anyio.Event()
            roster.touched(root)
            await roster.begun()

            assert row is register.resting[root]


async def test_another_folder_in_its_place_is_found(tmp_path: Path) -> None:
    """Moved away while it rested: what somebody made there since is not taken for it."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with resting(here, root, INITIALISED) as (roster, _):
            os.rename(root, tmp_path / "moved")
            at(root, ".ai").mkdir(parents=True)
            roster.touched(root)

            with anyio.fail_after(60):
                while (await roster.view(root)).condition != "missing":  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            assert not at(root, ".ai/STATE.json").exists()
            os.rename(root, tmp_path / "strange")
            os.rename(tmp_path / "moved", root)
            await roster.poll()
            await eventually(lambda: roster.resting == 1)


async def test_a_resting_project_is_removed_and_stands_as_it_stood_when_it_is_back(tmp_path: Path) -> None:
    """Its files and its history stay."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with resting(here, root, INITIALISED) as (roster, register):
            await roster.remove(root)
            assert (0, {}, ()) == (roster.count, register.resting, await here.journal.projects())
            assert "bootstrap" == shown(root)["step"]
            roster.touched(root)
            with pytest.raises(NotFound):
                await roster.give(root, Noted(text="to nobody"))

            assert "bootstrap" == (await roster.add(root)).tracks[0].step
            await eventually(lambda: roster.resting == 1)


async def test_the_next_daemon_lets_it_rest_and_finds_what_happened_meanwhile(tmp_path: Path) -> None:
    """However this one ended: whoever rests has left nothing undone."""
    async with house(tmp_path) as here:
        quiet, edited = make_project(tmp_path / "a"), make_project(tmp_path / "b")
        async with daemon(here, rest_after_s=SOON) as roster:
            for root in (quiet, edited):
                await roster.add(root)
                await roster.give(root, Initialised(project=root[-6]))
            await eventually(lambda: roster.resting == 2)
        edit(edited, human_note="meanwhile")

        async with daemon(here, rest_after_s=3600) as roster:
            await roster.begun()
            await eventually(lambda: roster.resting == 1)
            assert ([quiet], [edited]) == (list(roster._register.resting), list(roster._register.awake))
            await eventually_kinds(here, ["initialised", "initialised", "state_edited"])


async def eventually_kinds(here: House, wanted: list[str]) -> None:
    """Wait until just this has happened."""

    with anyio.fail_after(60):
        while await kinds(here) != wanted:  # noqa: ASYNC110
            await anyio.sleep(0.01)


class Interfered(Loops):
    """Has something happen at the very moment at which a project has lain down."""

    then: Callable[[str], object] | None = None

    def take_in(self, project: Project) -> bool:
        """Take it in, and have that happen once, before its loop has gone."""
        taken, then = super().take_in(project), self.then
        if taken and then is not None:
            self.then = None
            then(project.root)
        return taken


@asynccontextmanager
async def interfered(here: House, root: str, then: Callable[[str], object]) -> AsyncIterator[Interfered]:
    """Lend loops whose one project meets `then` while it falls asleep."""
    register = Register()
    project = register.awake[root] = Project(root, here.services, ())
    await project.look()
    await project.main.give(INITIALISED)
    loops = Interfered(here.services, register, SOON)
    loops.then = then
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loops.run, Watch())
        yield loops
        tasks.cancel_scope.cancel()
    for project in register.awake.values():
        project.dismiss()


async def test_a_hint_while_it_falls_asleep_is_not_lost(tmp_path: Path) -> None:
    """It came after the last look: it is in the row, and looked at after."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        hinted = anyio.Event()

        def hint(_: str) -> None:
            edit(root, human_note="just now")
            loops.rounds.hint(root)
            hinted.set()

        async with interfered(here, root, hint) as loops:
            await eventually(hinted.is_set)
            await eventually_kinds(here, ["initialised", "state_edited"])


async def test_a_verb_while_it_falls_asleep_is_answered(tmp_path: Path) -> None:
    """It waits until the old loop has gone, whose lock the new one needs."""
    async with house(tmp_path) as here:
        root, answers = make_project(tmp_path), list[str]()

        async def ask() -> None:
            with register.guest(root):
                project = await loops.awake(root)
                await project.begun.wait()
                answers.append((await project.main.give(Noted(text="just now"))).result.type)

        async with (
            anyio.create_task_group() as asking,
            interfered(here, root, lambda _: asking.start_soon(ask)) as loops,
        ):
            register = loops._register
            await eventually(lambda: answers == ["accepted"])
            await eventually(lambda: root in register.resting)
        assert ["initialised", "noted"] == await kinds(here)


async def test_one_that_gets_up_waits_for_its_old_loop(tmp_path: Path) -> None:
    """That one still has the lock, however long it takes to end."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with resting(here, root, INITIALISED) as (roster, register), anyio.create_task_group() as tasks:
            loops = roster._loops
            await eventually(lambda: root not in loops._loops)
            ending = loops._loops[root] = _Loop()
            with register.guest(root):
                tasks.start_soon(loops.awake, root)
                await anyio.wait_all_tasks_blocked()
                assert [root] == list(register.resting)

                ending.gone.set()
                await eventually(lambda: root in register.awake)


async def test_whoever_is_there_is_not_left_alone(tmp_path: Path) -> None:
    """Between two words of a guest it does not lie down; nor with a hint that it has not followed."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        register = Register()
        project = register.awake[root] = Project(root, here.services, ())
        loops = Loops(here.services, register, 3600)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loops.run, Watch())
            await project.begun.wait()
            await eventually(lambda: project.main.idle)

            with register.guest(root):
                assert not loops.take_in(project)
            project.touched()
            assert not loops.take_in(project)
            await eventually(lambda: stays_up(project.activity(0)) is None)
            assert loops.take_in(project)
            assert not loops.take_in(project)
            tasks.cancel_scope.cancel()
        project.dismiss()


async def test_a_journal_that_cannot_be_read_leaves_it_at_rest(tmp_path: Path) -> None:
    """The verb says so, and the next one is heard."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with resting(here, root, INITIALISED) as (roster, _):
            _change(here, "ALTER TABLE tracks RENAME TO away")
            with pytest.raises(StoreError, match="cannot read the tracks"):
                await roster.give(root, Noted(text="lost"))
            assert 1 == roster.resting

            _change(here, "ALTER TABLE away RENAME TO tracks")
            assert "accepted" == (await roster.give(root, Noted(text="heard"))).type


async def test_a_track_that_was_changed_by_hand_meanwhile_is_found_when_it_gets_up(tmp_path: Path) -> None:
    """Nothing is decided on it, its STATE.json stays, and a person is told."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with resting(here, root, INITIALISED) as (roster, register):
            before = at(root, ".ai/STATE.json").read_text()
            _replace_body(here, "{}")

            with pytest.raises(StoreError, match="its body is not the one that event 1,") as refused:
                await roster.give(root, Noted(text="lost"))
            assert "UNSOUND_JOURNAL" == refused.value.code
            assert f"handoffd journal verify {root}" == refused.value.hint

            view = await roster.view(root)
            assert ("invalid_journal", True) == (view.condition, root in register.awake)
            assert before == at(root, ".ai/STATE.json").read_text()
            assert ["initialised"] == await kinds(here)
            await eventually(lambda: [told.kind for told in here.told.notices] == ["blocked"])
            (told,) = here.told.notices
            assert f"handoffd journal verify {root}" == told.action


async def test_a_fact_from_elsewhere_finds_it(tmp_path: Path) -> None:
    """That people could not be told of something stands in its history all the same."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with resting(here, root, INITIALISED) as (roster, _):
            roster.notice_given_up(
                GivenUp(sink="told", project=root, track="main", count=1, first="n", why="x")
            )
            roster.notice_given_up(
                GivenUp(sink="told", project="/gone", track="", count=1, first="n", why="x")
            )

            await eventually_kinds(here, ["initialised", "notice_given_up"])


async def test_a_stopping_daemon_wakes_nobody(tmp_path: Path) -> None:
    """Nor is anything started by one that gets up while executors are being ended."""
    async with house(tmp_path) as here:
        root = make_project(tmp_path)
        async with resting(here, root, INITIALISED) as (roster, register):
            await roster.end_executors("the test")
            with register.guest(root):
                assert (await roster._loops.awake(root)).ending
            await register.awake[root].begun.wait()
        register.lay_down(root, Row(name="shop", automatic=False, tracks=("main",), states=None))
        with pytest.raises(Refused):
            await roster._loops.awake(root)


async def test_a_reload_looks_at_those_at_rest(tmp_path: Path) -> None:
    """And wakes only those that have changed."""
    async with house(tmp_path) as here:
        same, changed = make_project(tmp_path / "a"), make_project(tmp_path / "b")
        async with daemon(here, rest_after_s=SOON) as roster:
            for root in (same, changed):
                await roster.add(root)
            await eventually(lambda: roster.resting == 2)
            at(changed, ".ai/handoffd.yaml").write_text("tset: {}\n")

            (problem,) = await roster.reload()

            assert problem.startswith(f"{changed}: .ai/handoffd.yaml:1: tset:")
            assert [same] == list(roster._register.resting)
