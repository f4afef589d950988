"""Cleaning up in a small house: real runs, a real journal, and what must outlive it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from structlog.testing import capture_logs
from tests.support.house import NOW, House, at, dispatch_of, house, make_project, track_of
from tests.support.recorded import BLOG, SHOP, spoil, write
from tests.support.runs import run_spec
from tests.unit.journal.making import record
from tests.unit.journal.test_pruning import carried_out, played

from handoffd.engine.track import TrackKey
from handoffd.fleet.housekeeping import Housekeeping
from handoffd.journal.retention import Cleaned
from handoffd.protocol.state import Status
from handoffd.track.ai_folder import prepare

DAY_S = 24 * 60 * 60.0


def run_id(number: int) -> str:
    """Return a dispatch's id; higher ones are later."""
    return f"20260131T2215{number:02d}-0000000{number}"


async def judged(here: House, root: str, *numbers: int, ended: bool = True) -> None:
    """Have runs stand in the journal, with folders in state and project, as the daemon leaves them."""
    key = TrackKey(root)
    for number in numbers:
        dispatch = dispatch_of(run_id(number))
        await here.journal.commit(
            record(key=key, after=track_of(Status.RUNNING, dispatch=dispatch), at=NOW, text="x")
        )
        if ended:
            await here.journal.commit(record(key=key, after=track_of(Status.PASS), at=NOW))
        folder = here.services.settings.runs_dir / run_id(number)
        folder.mkdir()
        (folder / "prompt.md").write_text("Go on.")
        prepare(root, run_id(number), "Go on.")


def keeper(here: House, *roots: str, **retention: Any) -> Housekeeping:
    """Return what cleans up; ten days and no newest ones unless told otherwise."""
    keep = here.services.settings.retention.model_copy(update={"runs_days": 10, "runs_keep": 0} | retention)
    here.services.settings = here.services.settings.model_copy(update={"retention": keep})
    return Housekeeping(here.services, lambda: roots)


def left(here: House, *roots: str) -> tuple[list[str], list[str]]:
    """Return the runs whose records are there, and those that projects have copies of."""
    runs = sorted(os.listdir(here.services.settings.runs_dir))
    copies = [name for root in roots for name in sorted(os.listdir(at(root, ".ai/runs"))) if name[0] != "."]
    return runs, copies


def what(cleaned: Cleaned) -> Sequence[str]:
    """Return what went, by kind and name."""
    return [f"{one.kind} {Path(one.what).name}" for one in cleaned.doomed]


async def test_old_runs_go_and_young_ones_stay(tmp_path: Path) -> None:
    """In state and project alike; a dry run says the same before, and does nothing."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here:
        clean = keeper(here, root)
        await judged(here, root, 1, 2)
        assert () == (await clean.clean(dry_run=False)).doomed
        here.clock.ahead_s = 11 * DAY_S
        before = left(here, root)

        planned = await clean.clean(dry_run=True)
        assert before == left(here, root)
        done = await clean.clean(dry_run=False)

        assert planned.doomed == done.doomed
        kinds = [f"copy {run_id(1)}", f"copy {run_id(2)}", f"run {run_id(1)}", f"run {run_id(2)}"]
        assert kinds == sorted(what(done))
        assert ([], []) == left(here, root)
        assert "*\n" == at(root, ".ai/runs/.gitignore").read_text()
        assert () == (await clean.clean(dry_run=False)).doomed
        assert 2 == len(await here.journal.runs())  # what they used is still known


async def test_the_newest_runs_stay_however_old(tmp_path: Path) -> None:
    """So that a person who comes back after months can see what happened last."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here:
        await judged(here, root, 1, 2, 3)
        here.clock.ahead_s = 400 * DAY_S

        cleaned = await keeper(here, root, runs_keep=1).clean(dry_run=False)

        assert ([run_id(3)], [run_id(3)]) == left(here, root)
        assert {"newest": 2} == cleaned.kept


async def test_records_stay_as_long_as_the_copy_that_they_can_tell_of(tmp_path: Path) -> None:
    """Somebody has cleared newer ones away, so that an old copy is one of the newest."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here:
        await judged(here, root, 1, 2, 3)
        for number in (2, 3):
            shutil.rmtree(at(root, f".ai/runs/{run_id(number)}"))
        here.clock.ahead_s = 400 * DAY_S

        cleaned = await keeper(here, root, runs_keep=1).clean(dry_run=False)

        assert ([run_id(1), run_id(3)], [run_id(1)]) == left(here, root)
        assert {"newest": 2, "copied": 1} == cleaned.kept


async def test_what_lives_or_was_not_judged_stays(tmp_path: Path) -> None:
    """Whatever its age: its result is still to be applied."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here:
        await judged(here, root, 1, ended=False)
        living = here.services.settings.runs_dir / run_id(2)
        run = await here.services.launcher.start(living, run_spec(tmp_path, run_id(2), "sleep", "600"))
        here.clock.ahead_s = 400 * DAY_S
        clean = keeper(here, root)

        cleaned = await clean.clean(dry_run=False)
        assert ([run_id(1), run_id(2)], [run_id(1)]) == left(here, root)
        assert {"unjudged": 2, "running": 1} == cleaned.kept
        run.stop()
        with anyio.fail_after(60):
            await run.wait()


async def test_a_run_that_nobody_knows_goes_by_its_folders_age(tmp_path: Path) -> None:
    """As after a restore: it is not the journal's, and nobody will judge it. A copy of none stays."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here:
        unknown = here.services.settings.runs_dir / run_id(1)
        unknown.mkdir()
        prepare(root, run_id(2), "Go on.")
        clean = keeper(here, root)
        (here.services.settings.runs_dir / "notes").mkdir()
        changed = unknown.stat().st_mtime
        here.clock.jumped_s = changed - NOW.timestamp() + 9 * DAY_S
        assert () == (await clean.clean(dry_run=False)).doomed
        here.clock.jumped_s += 2 * DAY_S

        cleaned = await clean.clean(dry_run=False)

        assert [f"run {run_id(1)}"] == list(what(cleaned))
        assert (["notes"], [run_id(2)]) == left(here, root)
        assert {"unverifiable": 1} == cleaned.kept


async def test_what_the_daemon_has_not_made_stays(tmp_path: Path) -> None:
    """Notes beside a prompt, a folder of one's own, a copy that came with another project's files."""
    root, other = make_project(tmp_path), make_project(tmp_path / "other")
    async with house(tmp_path) as here:
        await judged(here, root, 1, 2)
        at(root, f".ai/runs/{run_id(1)}/notes.md").write_text("mine")
        at(root, ".ai/runs/mine").mkdir()
        shutil.copytree(at(root, f".ai/runs/{run_id(2)}"), at(other, f".ai/runs/{run_id(2)}"))
        here.clock.ahead_s = 400 * DAY_S

        cleaned = await keeper(here, root, other).clean(dry_run=False)

        assert ([], [run_id(1), "mine", run_id(2)]) == left(here, root, other)
        assert "mine" == at(root, f".ai/runs/{run_id(1)}/notes.md").read_text()
        assert at(root, f".ai/runs/{run_id(1)}/prompt.md").exists()
        assert {"foreign": 2} == cleaned.kept


async def test_what_somebody_has_written_into_stays_with_its_records(tmp_path: Path) -> None:
    """Without those, the next time nobody could tell any more."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here:
        await judged(here, root, 1, 2)
        at(root, f".ai/runs/{run_id(1)}/prompt.md").write_text("Go on, but differently.")
        here.clock.ahead_s = 400 * DAY_S
        clean = keeper(here, root)

        cleaned = [await clean.clean(dry_run=False) for _ in range(2)]

        assert ([run_id(1)], [run_id(1)]) == left(here, root)
        assert "Go on, but differently." == at(root, f".ai/runs/{run_id(1)}/prompt.md").read_text()
        assert [{"edited": 2}] * 2 == [one.kept for one in cleaned]


async def test_a_project_that_is_gone_holds_nothing_up(tmp_path: Path) -> None:
    """It is told of, and its copies are looked at when it is back: until then their records stay."""
    root, other = make_project(tmp_path), make_project(tmp_path / "other")
    async with house(tmp_path) as here:
        await judged(here, root, 1)
        await judged(here, other, 2)
        unknown = here.services.settings.runs_dir / run_id(3)  # whose, the journal does not say
        unknown.mkdir()
        os.rename(root, tmp_path / "away")
        here.clock.ahead_s = 400 * DAY_S
        clean = keeper(here, root, other)

        cleaned = await clean.clean(dry_run=False)

        assert ([run_id(1), run_id(3)], []) == left(here, other)
        assert {"unanswered": 2} == cleaned.kept
        (problem,) = cleaned.problems
        assert problem.startswith(f"{root} was left alone: ")
        (tmp_path / "away").rename(root)
        gone = [f"copy {run_id(1)}", f"run {run_id(1)}", f"run {run_id(3)}"]
        assert gone == list(what(await clean.clean(dry_run=False)))


async def test_what_was_written_while_a_project_was_elsewhere_is_not_lost(tmp_path: Path) -> None:
    """The records that can tell stay for as long as it does not answer."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here:
        await judged(here, root, 1)
        at(root, f".ai/runs/{run_id(1)}/prompt.md").write_text("Go on, but differently.")
        here.clock.ahead_s = 400 * DAY_S
        clean = keeper(here, root)
        os.rename(root, tmp_path / "away")
        await clean.clean(dry_run=False)
        (tmp_path / "away").rename(root)

        cleaned = await clean.clean(dry_run=False)

        assert {"edited": 2} == cleaned.kept
        assert "Go on, but differently." == at(root, f".ai/runs/{run_id(1)}/prompt.md").read_text()


async def test_what_could_not_be_cleaned_up_by_itself_is_in_the_log(tmp_path: Path) -> None:
    """In words: nobody sees an answer."""
    roots = [make_project(tmp_path / str(number)) for number in range(40)]
    async with house(tmp_path) as here:
        shutil.rmtree(roots[7])

        with capture_logs() as logs:
            await keeper(here, *roots).daily()

        told = [line["problem"] for line in logs if line["event"] == "not cleaned up"]
        assert [f"{roots[7]} was left alone: the project {roots[7]} is gone"] == told


async def test_a_folder_that_cannot_be_removed_is_told_of(tmp_path: Path) -> None:
    """And not counted as gone."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here:
        await judged(here, root, 1, 2)
        blocked = here.services.settings.runs_dir / f".gone-{run_id(1)}"
        blocked.write_text("in the way")
        here.clock.ahead_s = 400 * DAY_S

        cleaned = await keeper(here, root).clean(dry_run=False)

        assert f"run {run_id(1)}" not in what(cleaned)
        assert f"run {run_id(2)}" in what(cleaned)
        assert 1 == len(cleaned.problems)


async def test_what_a_crash_has_left_goes_with_the_next_one(tmp_path: Path) -> None:
    """A folder that was on its way out is no run."""
    async with house(tmp_path) as here:
        half = here.services.settings.runs_dir / f".gone-{run_id(1)}"
        half.mkdir()
        (half / "output.log").touch()

        cleaned = await keeper(here).clean(dry_run=False)

        assert (False, ()) == (half.exists(), cleaned.doomed)


async def test_sizes_are_told_with_the_journals(tmp_path: Path) -> None:
    """By kind and project, before anything goes."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here:
        await judged(here, root, 1)
        (here.services.settings.state_dir / "journal.db.before-20260101").write_bytes(b"x" * 5000)

        cleaned = await keeper(here, root).clean(dry_run=True)

    found = {(one.kind, one.project): (one.count, one.bytes) for one in cleaned.sizes}
    assert {("run", root), ("copy", root), ("journal", None), ("replaced journals", None)} == found.keys()
    assert all(count == 1 and weight > 0 for count, weight in found.values())


async def test_once_a_day_is_enough(tmp_path: Path) -> None:
    """Over restarts; and never, if the settings say so."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here:
        await judged(here, root, 1)
        here.clock.ahead_s = 400 * DAY_S
        never = keeper(here, root, daily=False)
        await never.daily()
        assert await here.journal.cleaning.last() is None

        await keeper(here, root, daily=True).daily()
        first = await here.journal.cleaning.last()
        assert ([], []) == left(here, root)
        await judged(here, root, 2)
        here.clock.ahead_s += 0.9 * DAY_S
        await keeper(here, root, daily=True).daily()
        assert first == await here.journal.cleaning.last()

        here.clock.ahead_s += 0.2 * DAY_S
        await keeper(here, root, daily=True).daily()
        assert ([], []) == left(here, root)

        here.clock.ahead_s -= 100 * DAY_S  # it was wrong, and is set right
        await keeper(here, root, daily=True).daily()
        assert here.clock.now() == await here.journal.cleaning.last()


async def test_two_at_once_take_turns(tmp_path: Path) -> None:
    """A person's and the daily one."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here:
        await judged(here, root, 1, 2, 3)
        here.clock.ahead_s = 400 * DAY_S
        clean = keeper(here, root)
        found: list[Cleaned] = []

        async def go() -> None:
            found.append(await clean.clean(dry_run=False))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(go)
            tasks.start_soon(go)

        assert [0, 6] == sorted(len(one.doomed) for one in found)
        assert [(), ()] == [one.problems for one in found]


@pytest.mark.parametrize("waits", [False, True])
async def test_notices_go_once_nobody_waits_for_them(tmp_path: Path, waits: bool) -> None:
    """Those that wait stay, however old."""
    async with house(tmp_path) as here:
        with closing(sqlite3.connect(here.services.settings.journal)) as db, db:
            moment = (NOW - timedelta(days=50)).isoformat(timespec="microseconds")
            notice = ("n", "/a", "main", moment, "x")
            db.execute("INSERT INTO notices (id, project, track, at, body) VALUES (?, ?, ?, ?, ?)", notice)
            delivery = (1, "told", 0, None if waits else "delivered")
            db.execute("INSERT INTO deliveries (notice, sink, born_s, outcome) VALUES (?, ?, ?, ?)", delivery)

        assert () == (await keeper(here, notices_days=None).clean(dry_run=False)).doomed
        cleaned = await keeper(here, notices_days=30).clean(dry_run=False)

        assert ([] if waits else ["notice 1 notice"]) == list(what(cleaned))


async def test_old_stories_go_from_the_journal(tmp_path: Path) -> None:
    """With what they said of runs kept; one whose events were tampered with stays, and is told of."""
    path = tmp_path / "state/journal.db"
    path.parent.mkdir()
    plays = [played(SHOP), played(BLOG)]
    await anyio.to_thread.run_sync(write, path, *plays)
    spoil(path, "UPDATE events SET why = 'because' WHERE project = '/srv/blog' AND kind = 'approved'")
    async with house(tmp_path) as here:
        await carried_out(here.journal)
        here.clock.jumped_s = (plays[1].records[-1].at - NOW).total_seconds() + 200 * DAY_S
        assert () == (await keeper(here, journal_days=None).clean(dry_run=False)).doomed
        clean = keeper(here, journal_days=100)

        planned = await clean.clean(dry_run=True)
        done = await clean.clean(dry_run=False)
        again = await clean.clean(dry_run=False)

        assert [SHOP.project, BLOG.project] == sorted(
            (str(one.project) for one in planned.doomed), reverse=True
        )
        (gone,) = done.doomed
        assert ("events", SHOP.project) == (gone.kind, gone.project)
        assert gone.bytes > 0
        (problem,) = done.problems
        assert problem.startswith("events of /srv/blog (main) are kept whatever their age")
        assert () == again.doomed
        left = await here.journal.events()
        assert len(plays[1].records) == sum(event.key == BLOG for event in left)
        assert len(plays[0].records) > sum(event.key == SHOP for event in left)
