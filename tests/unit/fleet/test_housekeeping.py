"""Cleaning up: real runs, a real journal, and everything that must outlive it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from structlog.testing import capture_logs
from tests.support.house import NOW, House, at, dispatch_of, house, make_project, track_of
from tests.support.recorded import BLOG, SHOP, spoil, story, write
from tests.support.repositories import git
from tests.support.runs import run_spec
from tests.unit.journal import flowing
from tests.unit.journal.making import record
from tests.unit.journal.test_retention import carried_out, played

from handoffd.engine.track import TrackKey
from handoffd.errors import HandoffdError, StoreError
from handoffd.fleet.housekeeping import DIVERGED, Housekeeping, standing_after
from handoffd.git.labels import Label
from handoffd.git.snapshots import Snapshots
from handoffd.journal.codec import encode
from handoffd.journal.retention import Cleaned
from handoffd.protocol.state import Status
from handoffd.track.ai_folder import prepare

DAY_S = 24 * 60 * 60.0


def run_id(number: int) -> str:
    """Return the id of a dispatch; higher numbers are later."""
    return f"20260131T2215{number:02d}-0000000{number}"


async def judged(here: House, root: str, *numbers: int, ended: bool = True) -> None:
    """Record runs in the journal, with folders in the state directory and the project, like the daemon."""
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
    """Return a housekeeping with a limit of ten days and no newest runs, unless `retention` differs."""
    keep = here.services.settings.retention.model_copy(update={"runs_days": 10, "runs_keep": 0} | retention)
    here.services.settings = here.services.settings.model_copy(update={"retention": keep})
    return Housekeeping(here.services, lambda: roots)


def left(here: House, *roots: str) -> tuple[list[str], list[str]]:
    """Return the runs with records, and the runs with copies in the projects."""
    runs = sorted(os.listdir(here.services.settings.runs_dir))
    copies = [name for root in roots for name in sorted(os.listdir(at(root, ".ai/runs"))) if name[0] != "."]
    return runs, copies


def what(cleaned: Cleaned) -> Sequence[str]:
    """Return the removed items, by kind and name."""
    return [f"{one.kind} {Path(one.what).name}" for one in cleaned.doomed]


@asynccontextmanager
async def aged(
    tmp_path: Path, *numbers: int, **retention: Any
) -> AsyncIterator[tuple[House, str, Housekeeping]]:
    """Lend a house with a project and runs that ended 400 days ago, and their housekeeping."""
    root = make_project(tmp_path)
    async with house(tmp_path) as here:
        await judged(here, root, *numbers)
        here.clock.ahead_s = 400 * DAY_S
        yield here, root, keeper(here, root, **retention)


async def test_old_runs_go_and_young_ones_stay(here: House, root: str) -> None:
    """In the state directory and the project; a dry run lists them and removes nothing."""
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
    assert 2 == len(await here.journal.runs())  # their usage stays


def _remove_newer_copies(root: str) -> None:
    for number in (2, 3):
        shutil.rmtree(at(root, f".ai/runs/{run_id(number)}"))


def _edit_a_copy(root: str) -> None:
    at(root, f".ai/runs/{run_id(1)}/prompt.md").write_text("Go on, but differently.")


def _add_own_files(root: str) -> None:
    at(root, f".ai/runs/{run_id(1)}/notes.md").write_text("mine")
    at(root, ".ai/runs/mine").mkdir()


@pytest.mark.parametrize(
    ("change", "keep", "runs", "copies", "kept"),
    [
        pytest.param(lambda root: None, 1, [3], [3], {"newest": 2}, id="the newest"),
        pytest.param(_remove_newer_copies, 1, [1, 3], [1], {"newest": 2, "copied": 1}, id="the newest copy"),
        pytest.param(_edit_a_copy, 0, [1], [1], {"edited": 2}, id="an edited copy, with its records"),
        pytest.param(_add_own_files, 0, [], [1, "mine"], {"foreign": 1}, id="files of a person"),
    ],
)
async def test_some_runs_stay_whatever_their_age(
    tmp_path: Path,
    change: Callable[[str], None],
    keep: int,
    runs: list[int],
    copies: list[int | str],
    kept: dict[str, int],
) -> None:
    """The next clean-up keeps them, too."""
    async with aged(tmp_path, 1, 2, 3, runs_keep=keep) as (here, root, clean):
        change(root)

        found = [await clean.clean(dry_run=False) for _ in range(2)]

        names = [one if isinstance(one, str) else run_id(one) for one in copies]
        assert ([run_id(number) for number in runs], names) == left(here, root)
        assert [kept] * 2 == [one.kept for one in found]
        for path in at(root, ".ai/runs").glob("*/notes.md"):
            assert "mine" == path.read_text()
            assert path.with_name("prompt.md").exists()


async def test_a_living_or_unjudged_run_stays(here: House, root: str, tmp_path: Path) -> None:
    """Its result is still to be applied."""
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


async def test_an_unknown_run_goes_by_the_age_of_its_folder(here: House, root: str) -> None:
    """As after a restore; an unknown copy stays, because nothing can verify it."""
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


async def test_a_copy_that_came_with_another_projects_files_stays(tmp_path: Path) -> None:
    """The other project has not made it."""
    async with aged(tmp_path, 2) as (here, root, _):
        other = make_project(tmp_path / "other")
        shutil.copytree(at(root, f".ai/runs/{run_id(2)}"), at(other, f".ai/runs/{run_id(2)}"))

        cleaned = await keeper(here, root, other).clean(dry_run=False)

        assert (([], [run_id(2)]), {"foreign": 1}) == (left(here, root, other), cleaned.kept)


async def test_a_missing_project_does_not_stop_the_clean_up(here: House, tmp_path: Path) -> None:
    """Its records stay until it is back, or an edited copy could not be recognised; the daily one logs it."""
    root, other = make_project(tmp_path), make_project(tmp_path / "other")
    await judged(here, root, 1, 4)
    await judged(here, other, 2)
    _edit_a_copy(root)
    (here.services.settings.runs_dir / run_id(3)).mkdir()  # its project is unknown
    os.rename(root, tmp_path / "away")
    here.clock.ahead_s = 400 * DAY_S
    clean = keeper(here, root, other)

    with capture_logs() as logs:
        await clean.daily()

    assert ([run_id(1), run_id(3), run_id(4)], []) == left(here, other)
    told = [line["problem"] for line in logs if line["event"] == "not cleaned up"]
    assert [f"{root} was left alone: the project {root} is gone"] == told
    again = await clean.clean(dry_run=False)
    assert (tuple(told), {"unanswered": 3}) == (again.problems, again.kept)
    (tmp_path / "away").rename(root)
    back = await clean.clean(dry_run=False)
    gone = [f"copy {run_id(4)}", f"run {run_id(3)}", f"run {run_id(4)}"]
    assert (gone, {"edited": 2}) == (sorted(what(back)), back.kept)


async def test_a_folder_that_cannot_be_removed_is_reported(tmp_path: Path) -> None:
    """And not counted as removed."""
    async with aged(tmp_path, 1, 2) as (here, _, clean):
        (here.services.settings.runs_dir / f".gone-{run_id(1)}").write_text("in the way")

        cleaned = await clean.clean(dry_run=False)

        assert f"run {run_id(1)}" not in what(cleaned)
        assert f"run {run_id(2)}" in what(cleaned)
        assert 1 == len(cleaned.problems)


async def test_the_remains_of_an_interrupted_clean_up_go_with_the_next(here: House) -> None:
    """A half-removed folder is not a run."""
    half = here.services.settings.runs_dir / f".gone-{run_id(1)}"
    half.mkdir()
    (half / "output.log").touch()

    cleaned = await keeper(here).clean(dry_run=False)

    assert (False, ()) == (half.exists(), cleaned.doomed)


async def test_sizes_include_the_journals(tmp_path: Path) -> None:
    """By kind and project, before anything is removed."""
    async with aged(tmp_path, 1) as (here, root, clean):
        (here.services.settings.state_dir / "journal.db.before-20260101").write_bytes(b"x" * 5000)

        cleaned = await clean.clean(dry_run=True)

    found = {(one.kind, one.project): (one.count, one.bytes) for one in cleaned.sizes}
    assert {("run", root), ("copy", root), ("journal", None), ("replaced journals", None)} == found.keys()
    assert all(count == 1 and weight > 0 for count, weight in found.values())


async def test_the_daily_clean_up_runs_once_a_day(tmp_path: Path) -> None:
    """Also across restarts and a corrected clock; never, if the settings disable it."""
    async with aged(tmp_path, 1) as (here, root, _):
        last = here.journal.cleaning.last
        await keeper(here, root, daily=False).daily()
        assert await last() is None

        await keeper(here, root, daily=True).daily()
        first = await last()
        assert ([], []) == left(here, root)
        await judged(here, root, 2)
        here.clock.ahead_s += 0.9 * DAY_S
        await keeper(here, root, daily=True).daily()
        assert first == await last()

        here.clock.ahead_s += 0.2 * DAY_S
        await keeper(here, root, daily=True).daily()
        assert ([], []) == left(here, root)

        here.clock.ahead_s -= 100 * DAY_S  # the clock was wrong, and is corrected
        await keeper(here, root, daily=True).daily()
        assert here.clock.now() == await last()


async def test_simultaneous_clean_ups_take_turns(tmp_path: Path) -> None:
    """A person's and the daily one."""
    async with aged(tmp_path, 1, 2, 3) as (_, _, clean):
        found: list[Cleaned] = []

        async def go() -> None:
            found.append(await clean.clean(dry_run=False))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(go)
            tasks.start_soon(go)

        assert [0, 6] == sorted(len(one.doomed) for one in found)
        assert [(), ()] == [one.problems for one in found]


@pytest.mark.parametrize("waits", [False, True])
async def test_old_notices_go_once_they_are_delivered(here: House, waits: bool) -> None:
    """An undelivered one stays, however old."""
    with closing(sqlite3.connect(here.services.settings.journal)) as db, db:
        moment = (NOW - timedelta(days=50)).isoformat(timespec="microseconds")
        notice = ("n", "/a", "main", moment, "x")
        db.execute("INSERT INTO notices (id, project, track, at, body) VALUES (?, ?, ?, ?, ?)", notice)
        delivery = (1, "told", 0, None if waits else "delivered")
        db.execute("INSERT INTO deliveries (notice, sink, born_s, outcome) VALUES (?, ?, ?, ?)", delivery)

    assert () == (await keeper(here, notices_days=None).clean(dry_run=False)).doomed
    cleaned = await keeper(here, notices_days=30).clean(dry_run=False)

    assert ([] if waits else ["notice 1 notice"]) == list(what(cleaned))


async def test_events_of_old_stories_go_from_the_journal(tmp_path: Path) -> None:
    """Their usage stays; a story with tampered events stays, too, and is reported."""
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


# --- snapshots of files -------------------------------------------------------------------------------
async def test_old_snapshots_go_and_a_story_in_flight_keeps_its_own(here: House, root: str) -> None:
    """A dry run lists them; a project that is not supervised, or in no repository, is left alone."""
    git(Path(root), "init", "--quiet")
    snapshots = Snapshots(root, here.services.settings.state_dir, here.services.environment)
    for place, name in enumerate(("US-000", "US-001")):
        at_ = NOW - timedelta(days=40 - place)
        snapshots.take(Label(story=name, step="impl", result="pass", run="d", at=at_))
    snapshots.take(Label(story="US-000", step="verify", result="pass", run="e", at=NOW))
    await here.journal.commit(record(key=TrackKey(root), after=track_of(), at=NOW))

    assert () == (await keeper(here, snapshots_days=30).clean(dry_run=False)).doomed
    dry = await keeper(here, root, snapshots_days=30).clean(dry_run=True)
    wet = await keeper(here, root, snapshots_days=30).clean(dry_run=False)

    assert [("snapshots", root)] == [(gone.kind, gone.project) for gone in dry.doomed]
    assert f"1 snapshot of {root}, the last one refs/handoffd/US-000/impl-1" == dry.doomed[0].what
    assert dry.doomed == wet.doomed
    assert ["US-001/impl-1", "US-000/verify-1"] == [one.ref[14:] for one in snapshots.all()]
    assert () == (await keeper(here, root, snapshots_days=None).clean(dry_run=False)).doomed

    shutil.rmtree(at(root, ".git"))
    assert () == (await keeper(here, root, snapshots_days=30).clean(dry_run=False)).problems


# --- the snapshot that replaces old events -----------------------------------------------------------
@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The journal of two projects."""
    path = tmp_path / "journal.db"
    write(path, story(SHOP), story(BLOG))
    return path


@pytest.mark.parametrize("count", [1, 5, 12])
def test_a_track_is_replayed_from_its_events(path: Path, count: int) -> None:
    """From no other track's, and up to the given event."""
    assert story(SHOP).records[count - 1].track == standing_after(path, SHOP, count)


def test_a_replay_may_start_from_a_snapshot(path: Path) -> None:
    """Without the events before it."""
    before = encode(standing_after(path, SHOP, 4))
    spoil(
        path, "INSERT INTO snapshots SELECT project, track, 4, body FROM tracks WHERE project = '/srv/shop'"
    )
    spoil(path, "UPDATE snapshots SET body = :body", values={"body": before})
    spoil(path, "DELETE FROM effects WHERE seq < 4", "DELETE FROM events WHERE seq < 4")

    assert story(SHOP).records[9].track == standing_after(path, SHOP, 10)


def test_events_with_a_different_replay_are_kept(path: Path) -> None:
    """They are the only evidence of what happened; the error names the event and the next command."""
    spoil(path, "UPDATE events SET why = 'because' WHERE seq = 5")

    with pytest.raises(HandoffdError, match="event 5") as caught:
        standing_after(path, SHOP, 10)

    assert (DIVERGED, "handoffd journal verify /srv/shop") == (caught.value.code, caught.value.hint)
    assert standing_after(path, SHOP, 4).state is not None


def test_unreadable_events_are_kept(path: Path) -> None:
    """So is a track without any event up to there."""
    spoil(path, "UPDATE events SET event = '{' WHERE seq = 3")

    with pytest.raises(HandoffdError, match="event 3"):
        standing_after(path, SHOP, 10)
    with pytest.raises(StoreError):
        standing_after(path.with_name("missing.db"), SHOP, 10)
    with pytest.raises(HandoffdError, match="no STATE"):
        standing_after(path, BLOG, 1)


async def test_old_flows_go_from_the_journal_unless_they_were_changed(tmp_path: Path) -> None:
    """Each as a whole; what was changed stays for a verification to report."""
    async with house(tmp_path) as here:
        plays = [flowing.played(seed, name=f"random-{seed:04}") for seed in (30, 11)]
        for play in plays:
            for one in play.records:
                await here.journal.commit_flow(one)
        await carried_out(here.journal)
        with closing(sqlite3.connect(here.services.settings.journal)) as db, db:
            db.execute("DELETE FROM flow_facts WHERE flow = 'random-0011' AND part = 'visits'")
        here.clock.jumped_s = 101 * DAY_S
        dry = await keeper(here, journal_days=100).clean(dry_run=True)
        done = await keeper(here, journal_days=100).clean(dry_run=False)

        (gone,) = done.doomed
        assert dry.doomed == done.doomed
        assert (
            f"{len(plays[0].records)} events of /srv/shop (flow:random-0030), the flow with them" == gone.what
        )
        assert gone.why == "it ended more than 100 days ago (retention.journal_days)"
        (problem,) = done.problems
        assert "random-0011" in problem
        assert ["random-0011"] == [one.id for one in await here.journal.ended_flows("/srv/shop")]
