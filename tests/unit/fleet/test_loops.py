"""The loops of all projects: running, ended, at rest, and rebuilt from the journal after a crash."""

from __future__ import annotations

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
    INITIALISED,
    NOW,
    STARTED,
    House,
    at,
    begun,
    daemon,
    dispatch_of,
    house,
    make_project,
    slow_disk,
    track_of,
)
from tests.unit.journal.making import record
from tests.unit.project.living import edit, shown

from handoffd.api.past import Past
from handoffd.capacity.budgets import Flight
from handoffd.engine.events import Approved, Initialised, Noted, Started
from handoffd.engine.run import Usage
from handoffd.engine.track import TrackKey
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
    """Records the roots that it hints about."""

    def __init__(self) -> None:
        self.roots: set[str] = set()
        self.degraded: dict[str, str] = {}

    def add(self, root: str) -> None:
        """Start hinting about this root."""
        self.roots.add(root)

    def remove(self, root: str) -> None:
        """Stop hinting about it."""
        self.roots.discard(root)


@asynccontextmanager
async def looping(
    tmp_path: Path, watch: Watch | None = None, names: str = "a"
) -> AsyncIterator[tuple[House, Loops, list[Project]]]:
    """Lend the running loops of projects without any track, and these projects."""
    async with house(tmp_path) as here:
        register = Register()
        projects = [Project(make_project(tmp_path / name), here.services, ()) for name in names]
        register.awake |= {project.root: project for project in projects}
        loops = Loops(here.services, register, back_off_s=(0.01,))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(here.services.notifier.run)
            tasks.start_soon(loops.run, watch or Watch())
            for project in projects:
                await project.begun.wait()
            yield here, loops, projects
            tasks.cancel_scope.cancel()
        for project in register.awake.values():
            project.dismiss()


def crash(project: Project) -> None:
    """Make the loop of a project fail, as a bug would: no reader lets such a note through."""
    project.main.post(Noted(text=b"no text"))  # type: ignore[arg-type]


async def rebuilt(loops: Loops, before: Project) -> Project:
    """Wait for the project that replaces a crashed one."""
    awake, root = loops._register.awake, before.root
    await eventually(lambda: awake[root] is not before and awake[root].begun.is_set())
    return awake[root]


async def test_every_project_has_its_loop_and_is_watched(tmp_path: Path) -> None:
    """From the start until its end. Without a daemon none starts: a verb leaves the rest to the next one."""
    watch = Watch()
    async with looping(tmp_path, watch) as (_, loops, (project,)):
        assert (True, {project.root}, True) == (loops.run_here, watch.roots, project.main.lasting)

        await loops.end(project.root)
        await loops.end(project.root)

        assert (set(), False) == (watch.roots, project.main.lasting)
    loops.begin(project.root)
    await anyio.wait_all_tasks_blocked()
    assert (False, False) == (loops.run_here, project.main.lasting)


async def test_a_crashed_project_is_rebuilt_from_the_journal(tmp_path: Path) -> None:
    """Its memory is discarded; one notice and the status report the crash."""
    async with looping(tmp_path) as (here, loops, (before,)):
        await before.main.give(INITIALISED)

        crash(before)

        after = await rebuilt(loops, before)
        assert (1, "bootstrap") == (loops.crashes, after.main.track.state.step)  # type: ignore[union-attr]
        assert "started again" in (after.crash or "")
        assert "accepted" == (await after.main.give(Noted(text="still here"))).result.type
        await eventually(lambda: [notice.kind for notice in here.told.notices] == ["warning"])


async def test_usage_that_a_crashed_project_missed_is_booked(tmp_path: Path) -> None:
    """A run whose end was committed is over, and counts against all caps."""
    used = Usage(input_tokens=7, cost_usd=0.25, priced="table")
    async with looping(tmp_path) as (here, loops, (before,)):
        budgets, key = here.services.budgets, TrackKey(before.root)
        await before.main.give(INITIALISED)
        flying = track_of(Status.RUNNING, dispatch=dispatch_of("d1"))
        budgets.begin("d1", Flight(key=key, track=lambda: flying, caps=ProjectCaps, post=lambda event: None))
        ended = before.main.track.with_ledger(spent=used)
        await here.journal.commit(record(key=key, after=ended, at=NOW))

        crash(before)

        await rebuilt(loops, before)
        assert (used, {}) == (budgets.booked, budgets._flights)


async def test_a_crash_during_a_commit_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """The caller gets no answer; the recorded event counts."""

    async def note() -> None:
        with suppress(HandoffdError):
            await before.main.give(Noted(text="Mind the rounding."))

    async def fail() -> None:
        raise RuntimeError("a bug")

    async with looping(tmp_path) as (here, loops, (before,)):
        await before.main.give(INITIALISED)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note)
            for _ in range(4):  # until it waits for the journal
                await anyio.lowlevel.checkpoint()
            before.main.begin("fail", fail)

        after = await rebuilt(loops, before)
        (stored,) = await here.journal.tracks()
        assert stored.track == after.main.track


async def test_a_crashed_project_waits_for_an_unreadable_journal(tmp_path: Path) -> None:
    """It tries again, and the other projects go on."""
    async with looping(tmp_path, names="ab") as (here, loops, (before, other)):
        await before.main.give(INITIALISED)
        _change(here, "ALTER TABLE tracks RENAME TO away")
        with capture_logs() as logs:
            crash(before)
            await eventually(lambda: "project not made anew" in [line["event"] for line in logs])
        assert loops._register.awake[before.root] is before
        _change(here, "ALTER TABLE away RENAME TO tracks")

        await rebuilt(loops, before)
        assert loops._register.awake[other.root] is other
        assert "accepted" == (await other.main.give(INITIALISED)).result.type


# --- the end of a project during a commit ------------------------------------------------------------
async def test_a_project_is_removed_after_the_commit_in_progress(here: House, tmp_path: Path) -> None:
    """The verb is answered and STATE.json shows it. Added again, the project carries out its orders."""
    root, answers = make_project(tmp_path), list[str]()

    async def start() -> None:
        answers.append((await roster.give(root, Started(story="US-001", automatic=False))).type)

    async with daemon(here) as roster:
        await begun(roster, root)
        async with anyio.create_task_group() as tasks:
            with slow_disk() as let_go:
                tasks.start_soon(start)
                await eventually(lambda: here.journal.waiting_since is not None)
                tasks.start_soon(roster.remove, root)
                await eventually(lambda: root not in roster._loops._loops)
                let_go()
        assert (["accepted"], "US-001", 0) == (answers, shown(root)["story"], roster.count)

        await roster.add(root)
        await eventually(at(root, ".ai/CHECKLIST.md").exists)


async def test_a_daemon_stops_after_the_commits_in_progress(tmp_path: Path) -> None:
    """The verb is answered and STATE.json shows it."""
    root, answers = make_project(tmp_path), list[str]()

    async def note() -> None:
        answers.append((await roster.give(root, Noted(text="just in time"))).type)

    async with house(tmp_path) as here, anyio.create_task_group() as tasks:
        with anyio.CancelScope() as life:
            async with daemon(here) as roster:
                await begun(roster, root)
                with slow_disk() as let_go:
                    tasks.start_soon(note)
                    await eventually(lambda: here.journal.waiting_since is not None)
                    life.cancel()
                    let_go()
        await eventually(lambda: answers == ["accepted"])
        assert "just in time" == shown(root)["human_note"]


def _replace_body(here: House, body: str) -> str:
    """Overwrite the first track in the journal; return the former text."""
    with closing(sqlite3.connect(here.services.settings.journal, timeout=60)) as database:
        ((before,),) = database.execute("SELECT body FROM tracks LIMIT 1").fetchall()
        database.execute("UPDATE tracks SET body = ? WHERE body = ?", (body, before))
        database.commit()
    return str(before)


def _change(here: House, statement: str) -> None:
    with closing(sqlite3.connect(here.services.settings.journal, timeout=60)) as database:
        database.execute(statement)
        database.commit()


# --- at rest ---------------------------------------------------------------------------------------
SOON = 0.01


@asynccontextmanager
async def resting(tmp_path: Path) -> AsyncIterator[tuple[House, Roster, Register, str]]:
    """Lend a roster with one initialised project at rest, and its root."""
    async with house(tmp_path) as here, daemon(here, rest_after_s=SOON) as roster:
        root = make_project(tmp_path)
        await begun(roster, root)
        await eventually(lambda: roster.resting == 1)
        yield here, roster, roster._register, root


async def kinds(here: House) -> list[str]:
    """Return the kinds of all events."""
    return [event.kind for event in await here.journal.events()]


async def test_an_idle_project_is_a_row(here: House, tmp_path: Path) -> None:
    """It has no loop and no lock, and its view is the same as before."""
    root = make_project(tmp_path, settings="executor: agent\n")
    async with daemon(here, rest_after_s=3600) as roster:
        await begun(roster, root)
        before = await roster.view(root)
    async with daemon(here, rest_after_s=SOON) as roster:
        await eventually(lambda: roster.resting == 1)
        acquire(project_lock_path(here.services.settings.state_dir, Path(root)), "it").release()
        assert (before, (before,)) == (await roster.view(root), await roster.views())
        assert (root, {root: "shop"}, 1) == (roster.find("shop"), dict(roster.names()), roster.count)
        assert {} == roster._register.awake


async def test_a_verb_wakes_a_project_and_it_rests_again(tmp_path: Path) -> None:
    """Simultaneous verbs wake it once and are each carried out once."""
    async with resting(tmp_path) as (here, roster, _, root):
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(roster.give, root, Noted(text=f"note {number}"))
        await eventually(lambda: roster.resting == 1)

        assert {f"note {number}" for number in range(5)} == set(str(shown(root)["human_note"]).split("\n\n"))
        assert ["initialised", *["noted"] * 5] == await kinds(here)


async def test_a_project_rests_at_a_gate_and_at_the_end_of_a_story(tmp_path: Path) -> None:
    """As long as a person takes to approve."""
    async with resting(tmp_path) as (here, roster, register, root):
        await roster.give(root, STARTED)
        await eventually(lambda: (shown(root)["step"], roster.resting) == ("review", 1))
        view = await roster.view(root)
        assert (True, "a person's decision") == (view.tracks[0].gate, view.tracks[0].waits_for)

        await roster.give(root, Approved())
        await eventually(lambda: (shown(root)["step"], roster.resting) == ("done", 1))
        assert (0, {}) == (here.services.slots.in_use, register.awake)
        assert [(1, "pass")] * 2 == [(run.attempt, run.result) for run in await here.journal.runs()]


async def test_a_list_of_stories_has_the_name_of_a_project_that_it_wakes(tmp_path: Path) -> None:
    """It is asked for titles, and for where finished work is; at rest or up, it is called the same."""
    async with resting(tmp_path) as (here, roster, register, root):
        past = Past(roster, here.journal, here.services.clock, here.services.settings.runs_dir, daemon=True)
        await roster.give(root, STARTED)
        await eventually(lambda: (shown(root)["step"], roster.resting) == ("review", 1))

        (story,) = (await past.stories()).stories
        assert ("shop", [root]) == (story.name, list(register.awake))


async def test_a_hint_reveals_an_edit_of_a_resting_projects_state(tmp_path: Path) -> None:
    """The edit is judged like any other; a deleted STATE.json is written again from the journal."""
    async with resting(tmp_path) as (here, roster, _, root):
        edit(root, human_note="Mind the rounding.")
        roster.touched(root)

        await eventually_kinds(here, ["initialised", "state_edited"])
        await eventually(lambda: roster.resting == 1)
        assert "Mind the rounding." == (await roster.view(root)).tracks[0].human_note

        at(root, ".ai/STATE.json").unlink()
        roster.touched(root)
        await eventually(at(root, ".ai/STATE.json").exists)
        await eventually(lambda: roster.resting == 1)


async def test_a_broken_file_of_a_resting_project_is_reported(tmp_path: Path) -> None:
    """The project stays up until the file is repaired."""
    async with resting(tmp_path) as (here, roster, register, root):
        at(root, ".ai/handoffd.yaml").write_text("tset: {}\n")
        roster.touched(root)
        await eventually(lambda: [notice.kind for notice in here.told.notices] == ["warning"])
        assert "invalid_rules" == (await roster.view(root)).condition
        assert [root] == list(register.awake)

        at(root, ".ai/handoffd.yaml").unlink()
        roster.touched(root)
        await eventually(lambda: roster.resting == 1)


async def test_a_hint_without_a_relevant_change_wakes_no_project(tmp_path: Path) -> None:
    """A hand-off without an attempt, or the daemon's own write of STATE.json."""
    async with resting(tmp_path) as (_, roster, register, root):
        row = register.resting[root]
        at(root, ".ai/HANDOFF.md").write_text("---\nstep: bdd\nstatus: pass\n---\n")
        roster._loops.rounds.been = anyio.Event()
        roster.touched(root)
        await roster.begun()

        assert row is register.resting[root]


async def test_another_folder_at_the_same_path_is_noticed(tmp_path: Path) -> None:
    """The project was moved away while it rested; files of the new folder are not taken for its own."""
    async with resting(tmp_path) as (_, roster, _, root):
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


async def test_a_removed_project_keeps_its_files_and_history(tmp_path: Path) -> None:
    """Added again, it has the status from before."""
    async with resting(tmp_path) as (here, roster, register, root):
        await roster.remove(root)
        assert (0, {}, ()) == (roster.count, register.resting, await here.journal.projects())
        assert "bootstrap" == shown(root)["step"]
        roster.touched(root)
        with pytest.raises(NotFound):
            await roster.give(root, Noted(text="too late"))

        assert "bootstrap" == (await roster.add(root)).tracks[0].step
        await eventually(lambda: roster.resting == 1)


async def test_the_next_daemon_wakes_only_changed_projects(here: House, tmp_path: Path) -> None:
    """Every project at rest has left nothing undone."""
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
    """Wait until these are all events."""
    with anyio.fail_after(60):
        while await kinds(here) != wanted:  # noqa: ASYNC110
            await anyio.sleep(0.01)


class Interfered(Loops):
    """Runs a callback at the moment at which a project has gone to rest."""

    then: Callable[[str], object] | None = None

    def take_in(self, project: Project) -> bool:
        """Put it to rest, and run the callback once, before its loop has ended."""
        taken, then = super().take_in(project), self.then
        if taken and then is not None:
            self.then = None
            then(project.root)
        return taken


@asynccontextmanager
async def interfered(here: House, root: str, then: Callable[[str], object]) -> AsyncIterator[Interfered]:
    """Lend loops whose only project meets `then` while it goes to rest."""
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


async def test_a_hint_while_a_project_goes_to_rest_is_followed(here: House, root: str) -> None:
    """The row records it after the last look."""
    hinted = anyio.Event()

    def hint(_: str) -> None:
        edit(root, human_note="just now")
        loops.rounds.hint(root)
        hinted.set()

    async with interfered(here, root, hint) as loops:
        await eventually(hinted.is_set)
        await eventually_kinds(here, ["initialised", "state_edited"])


async def test_a_verb_while_a_project_goes_to_rest_is_answered(here: House, tmp_path: Path) -> None:
    """It waits for the end of the old loop, because the new one needs its lock."""
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


async def test_a_waking_project_waits_for_its_old_loop(tmp_path: Path) -> None:
    """The old loop has the lock, however long it takes to end."""
    async with resting(tmp_path) as (_, roster, register, root), anyio.create_task_group() as tasks:
        loops = roster._loops
        await eventually(lambda: root not in loops._loops)
        ending = loops._loops[root] = _Loop()
        with register.guest(root):
            tasks.start_soon(loops.awake, root)
            await anyio.wait_all_tasks_blocked()
            assert [root] == list(register.resting)

            ending.gone.set()
            await eventually(lambda: root in register.awake)


async def test_a_project_with_a_guest_or_a_hint_does_not_rest(here: House, root: str) -> None:
    """A guest may ask again, and a hint must be followed first."""
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


async def test_an_unreadable_journal_leaves_a_project_at_rest(tmp_path: Path) -> None:
    """The verb reports the error, and the next one works."""
    async with resting(tmp_path) as (here, roster, _, root):
        _change(here, "ALTER TABLE tracks RENAME TO away")
        with pytest.raises(StoreError, match="cannot read the tracks"):
            await roster.give(root, Noted(text="lost"))
        assert 1 == roster.resting

        _change(here, "ALTER TABLE away RENAME TO tracks")
        assert "accepted" == (await roster.give(root, Noted(text="heard"))).type


async def test_a_tampered_track_is_found_when_its_project_wakes(tmp_path: Path) -> None:
    """The daemon decides nothing on it, keeps its STATE.json, and notifies people."""
    async with resting(tmp_path) as (here, roster, register, root):
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


async def test_a_fact_wakes_its_project(tmp_path: Path) -> None:
    """An undelivered notice is recorded in its track or the main one, not for an unknown project or track."""
    async with resting(tmp_path) as (here, roster, _, root):
        for project, track in ((root, "main"), ("/nowhere", "main"), (root, "no such"), (root, "")):
            roster.notice_given_up(
                GivenUp(sink="webhook", project=project, track=track, count=2, first="7", why="no route")
            )

        await eventually_kinds(here, ["initialised", "notice_given_up", "notice_given_up"])


async def test_a_stopping_daemon_wakes_no_project(tmp_path: Path) -> None:
    """A project that wakes while executors are being ended starts none."""
    async with resting(tmp_path) as (_, roster, register, root):
        await roster.end_executors("the test")
        with register.guest(root):
            assert (await roster._loops.awake(root)).ending
        await register.awake[root].begun.wait()
    register.lay_down(root, Row(name="shop", automatic=False, tracks=("main",), states=None))
    with pytest.raises(Refused):
        await roster._loops.awake(root)


async def test_a_reload_wakes_only_changed_projects(here: House, tmp_path: Path) -> None:
    """It reports their problems."""
    same, changed = make_project(tmp_path / "a"), make_project(tmp_path / "b")
    async with daemon(here, rest_after_s=SOON) as roster:
        for root in (same, changed):
            await roster.add(root)
        await eventually(lambda: roster.resting == 2)
        at(changed, ".ai/handoffd.yaml").write_text("tset: {}\n")

        (problem,) = await roster.reload()

        assert problem.startswith(f"{changed}: .ai/handoffd.yaml:1: tset:")
        assert [same] == list(roster._register.resting)
