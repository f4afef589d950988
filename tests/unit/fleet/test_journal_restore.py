"""Restoring a backup after projects have moved on."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.playbook import DISPATCH, dispatched, track_at
from tests.unit.journal import flowing
from tests.unit.journal.making import opened, record

from handoffd.clock import SystemClock
from handoffd.engine.track import Ledger, Track, TrackKey
from handoffd.errors import Locked, Refused
from handoffd.execute.base import CLAIM, Claim
from handoffd.execute.runner import proc
from handoffd.files.locks import acquire, daemon_lock_path
from handoffd.files.state_file import write_state
from handoffd.fleet.journal_restore import Request, Restoration, commands_of, restore
from handoffd.journal.backup import back_up, inspect
from handoffd.journal.records import StoredFlow
from handoffd.protocol.state import Status, render_state
from handoffd.settings.model import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A state directory with its runs."""
    made = Settings(state_dir=tmp_path / "state", runtime_dir=tmp_path / "run")
    for folder in (made.state_dir, made.runs_dir):
        folder.mkdir(mode=0o700)
    return made


@pytest.fixture
def monday(tmp_path: Path) -> Path:
    """The path of the backup."""
    return tmp_path / "monday.db"


@pytest.fixture
def key(tmp_path: Path) -> TrackKey:
    """The main track of a project that exists."""
    (tmp_path / "shop").mkdir()
    return TrackKey(str(tmp_path / "shop"))


async def backed_up(settings: Settings, monday: Path, key: TrackKey, track: Track) -> None:
    """Record a track, write its STATE.json, and back the journal up."""
    assert track.state is not None
    text = render_state(track.state)
    async with opened(settings.journal) as journal:
        await journal.commit(record(key=key, after=track, text=text))
    write_state(Path(key.project), key.track, text)
    back_up(settings.journal, monday)


async def restored(settings: Settings, monday: Path, **request: bool) -> Restoration:
    """Restore the backup."""
    return await restore(settings, Request(file=monday, by="eve", **request), SystemClock())


async def track_in(settings: Settings, key: TrackKey) -> Track:
    """Return the current track in the journal."""
    async with opened(settings.journal) as journal:
        return {one.key: one.track for one in await journal.tracks()}[key]


@contextmanager
def a_run(settings: Settings, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Lend a process that has claimed a run."""
    process = subprocess.Popen(["sleep", "600"])
    try:
        claim = Claim(pid=process.pid, started=proc.started(process.pid), boot_id=proc.boot_id())
        folder = settings.runs_dir / name
        folder.mkdir(exist_ok=True)
        (folder / CLAIM).symlink_to(claim.to_text())
        yield process
    finally:
        process.kill()
        process.wait()


async def test_a_restored_project_is_paused(settings: Settings, monday: Path, key: TrackKey) -> None:
    """By an event of its track, with its own number and time, that names the person."""
    await backed_up(settings, monday, key, track_at("impl"))
    before = datetime.now(UTC)  # noqa: TID251  (compared with the machine's clock)

    done = await restored(settings, monday)

    assert ((key.project,), (), (), ()) == (done.paused, done.kept, done.overtaken, done.ended)
    assert "eve (journal restore)" == (await track_in(settings, key)).ledger.paused_by
    assert (1, str(settings.journal)) == (done.newest, done.journal)
    assert done.replaced is not None
    assert 1 == inspect(Path(done.replaced)).newest
    async with opened(settings.journal) as journal:
        last = (await journal.events())[-1]
    assert ("restored", 2, True) == (last.kind, last.seq, last.at >= before)


async def test_a_project_at_level_1_is_not_paused(settings: Settings, monday: Path, key: TrackKey) -> None:
    """The daemon starts nothing in it anyway."""
    await backed_up(settings, monday, key, track_at("impl", ledger=Ledger()))

    assert () == (await restored(settings, monday)).paused
    assert None is (await track_in(settings, key)).ledger.paused_by


async def test_the_latest_attempt_is_kept(settings: Settings, monday: Path, key: TrackKey) -> None:
    """STATE.json is unchanged since the backup: the daemon will adopt the run, or read how it ended."""
    await backed_up(settings, monday, key, dispatched("impl"))

    with a_run(settings, DISPATCH) as process:
        done = await restored(settings, monday)
        assert None is process.poll()

    assert ((DISPATCH,), ()) == (done.kept, done.overtaken)
    kept = await track_in(settings, key)
    assert kept.ledger.dispatch is not None
    assert kept.ledger.paused_by is not None


@pytest.mark.parametrize("change", ["state", "runs", "project"])
async def test_an_overtaken_attempt_is_dropped(
    settings: Settings, monday: Path, key: TrackKey, change: str
) -> None:
    """The story went on, or its records are missing, or the project is."""
    await backed_up(settings, monday, key, dispatched("impl"))
    project, runs = Path(key.project), settings.runs_dir / DISPATCH
    if change != "runs":
        runs.mkdir()
    if change == "state":
        (project / ".ai/STATE.json").write_text("{}", encoding="utf-8")
    elif change == "project":
        os.rename(project, project.with_name("elsewhere"))

    done = await restored(settings, monday)

    assert ((), (DISPATCH,)) == (done.kept, done.overtaken)
    track = await track_in(settings, key)
    assert None is track.ledger.dispatch
    assert track.state is not None
    assert (Status.PENDING, 1) == (track.state.status, track.state.attempt)


UNKNOWN = "20260131T230000-deadbeef.tests"
"""A check of an attempt that the backup does not know."""


async def test_unknown_executors_prevent_a_restore(settings: Settings, monday: Path, key: TrackKey) -> None:
    """The daemon would start another one beside them; an error changes nothing. On request they are ended."""
    await backed_up(settings, monday, key, track_at("impl"))
    async with opened(settings.journal) as journal:
        await journal.commit(record(key=key))

    with a_run(settings, UNKNOWN) as process:
        with pytest.raises(Refused, match=UNKNOWN) as caught:
            await restored(settings, monday)
        assert None is process.poll()
        assert "EXECUTORS_RUN" == caught.value.code
        assert "--end-executors" in (caught.value.hint or "")
        assert 2 == inspect(settings.journal).newest
        assert [] == [path.name for path in settings.state_dir.glob("*restoring*")]

        done = await restored(settings, monday, end_executors=True)
        assert -15 == process.wait(60)

    assert (UNKNOWN,) == done.ended


async def test_a_running_daemon_prevents_a_restore(settings: Settings, monday: Path, key: TrackKey) -> None:
    """Two writers would damage the journal."""
    await backed_up(settings, monday, key, track_at("impl"))

    with acquire(daemon_lock_path(settings.state_dir), "a test"), pytest.raises(Locked) as caught:
        await restored(settings, monday)

    assert (caught.value.hint or "").startswith("handoffd stop")


async def test_flows_of_the_backup_are_paused(settings: Settings, monday: Path) -> None:
    """So that they open nothing again; a command in flight is known, and a changed flow is left out."""
    going, changed = (flowing.played(11, name=name) for name in ("random-0001", "random-0002"))
    async with opened(settings.journal) as journal:
        for play in (going, changed):
            for one in play.records[:14]:
                await journal.commit_flow(one)
    with closing(sqlite3.connect(settings.journal)) as db, db:
        db.execute("DELETE FROM flow_facts WHERE flow = 'random-0002' AND part = 'visits'")
    back_up(settings.journal, monday)
    stored = next(one for one in await flows_in(settings) if one.flow.id == "random-0001")
    run = next(iter(commands_of(stored)), "random-0001.1")
    with a_run(settings, run) as process:
        done = await restored(settings, monday)
        assert None is process.poll()

    assert (["/srv/shop"], (run,), ()) == ([*done.paused], done.kept, done.ended)
    assert [("/srv/shop", "flow:random-0002")] == [(one.project, one.track) for one in done.left_out]
    paused = next(one for one in await flows_in(settings) if one.flow.id == "random-0001")
    assert ("eve (journal restore)", None) == (paused.flow.paused_by, paused.unsound)


async def flows_in(settings: Settings) -> tuple[StoredFlow, ...]:
    """Return the flows in the journal."""
    async with opened(settings.journal) as journal:
        return await journal.flows()
