"""Old events go, and the journal is as good as before."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from tests.support.recorded import BLOG, SHOP, RecordedPlay, spoil, write
from tests.unit.journal.making import GOLDEN, NOW, opened

from handoffd.api.verification import Report, Verification
from handoffd.engine.events import Approved, Event, Initialised, Noted
from handoffd.engine.track import TrackKey
from handoffd.fleet.housekeeping import standing_after
from handoffd.journal.journal import Journal
from handoffd.journal.records import LeftOut
from handoffd.journal.replay import Recordings
from handoffd.journal.retention import Old

LATER = timedelta(days=400)


def played(key: TrackKey = SHOP, *, stories: int = 2, finished: bool = False) -> RecordedPlay:
    """Return stories that are done, one after the other, and one more in its first steps or done as well."""
    play = RecordedPlay(key)
    play.given(Initialised(project=key.project.rsplit("/", 1)[-1]))
    for number in range(stories):
        play.started(f"US-{number + 1}")
        while play.turn().state.step != "done":
            if play.state.step == "review":
                play.given(Approved(note="Go on.", by="eve"))
            else:
                play.step_passes()
    if not finished:
        play.started("US-9").step_fails().turn()
    return play


def verified(path: Path) -> Report:
    """Return what a verification finds."""
    with closing(Recordings(path)) as source:
        return Verification(source).run()


async def cover(journal: Journal, path: Path, old: Old) -> None:
    """Take the snapshot that stands for old events."""
    standing = await anyio.to_thread.run_sync(standing_after, path, old.key, old.until)
    await journal.pruning.cover(old.key, old.until, standing)


async def prune(journal: Journal, path: Path, before: datetime) -> int:
    """Drop what may go; return how many events did."""
    gone = 0
    for old in await journal.pruning.old(before):
        if not old.covered:
            await cover(journal, path, old)
        while count := await journal.pruning.drop(old.key, old.until, before):
            gone += count
    await journal.pruning.tidy()
    return gone


async def carried_out(journal: Journal) -> None:
    """Mark every order as done: what is not keeps its event."""
    for effect in await journal.pending_effects():
        await journal.effect_done(effect.id)


def end_of(play: RecordedPlay) -> datetime:
    """Return a time at which all of a play is old."""
    return play.records[-1].at + LATER


async def test_finished_stories_go_and_the_journal_is_sound(tmp_path: Path) -> None:
    """Tracks stand as they stood, runs are known, decisions that are left are made again."""
    path, play = tmp_path / "journal.db", played()
    await anyio.to_thread.run_sync(write, path, play)
    async with opened(path) as journal:
        await carried_out(journal)
        before, runs = await journal.tracks(), await journal.runs()

        gone = await prune(journal, path, end_of(play))
        events = await journal.events()

        assert (before, runs) == (await journal.tracks(), await journal.runs())
        assert gone > len(play.records) / 2
        assert len(play.records) == gone + len(events)
        assert 0 == await prune(journal, path, end_of(play))
    report = verified(path)
    assert (True, []) == (report.clean, report.findings)
    assert report.replayed > 0
    assert [event.seq for event in events][-1] == len(play.records)


async def test_a_story_that_is_not_over_or_is_young_stays(tmp_path: Path) -> None:
    """Whole: its beginning is as old as it likes."""
    path = tmp_path / "journal.db"
    shop, blog = played(), played(BLOG, stories=0)
    await anyio.to_thread.run_sync(write, path, shop, blog)
    async with opened(path) as journal:
        await carried_out(journal)

        assert 0 == await prune(journal, path, shop.records[0].at)
        await prune(journal, path, end_of(shop))
        left = await journal.events()

    assert len(blog.records) == sum(event.key == BLOG for event in left)
    started = [event.event["story"] for event in left if event.kind == "started" and event.key == SHOP]
    assert ["US-9"] == started
    assert verified(path).clean


async def test_an_order_that_is_not_done_keeps_its_story(tmp_path: Path) -> None:
    """It will be carried out, and asked for what it belonged to."""
    path, play = tmp_path / "journal.db", played(finished=True)
    await anyio.to_thread.run_sync(write, path, play)
    async with opened(path) as journal:
        first, *others = await journal.pending_effects()
        for effect in others:
            await journal.effect_done(effect.id)

        assert 0 == await prune(journal, path, end_of(play))
        await journal.effect_done(first.id)
        assert 0 < await prune(journal, path, end_of(play))
    assert verified(path).clean


async def test_a_track_that_rests_keeps_the_event_it_stands_at(tmp_path: Path) -> None:
    """And goes on from there: what comes later is verified as ever."""
    path, play = tmp_path / "journal.db", played(finished=True)
    await anyio.to_thread.run_sync(write, path, play)
    async with opened(path) as journal:
        await carried_out(journal)
        newest = journal.newest
        await prune(journal, path, end_of(play))
        (stored,) = await journal.tracks()
        assert newest == stored.seq == journal.newest
        kept = len(play.records)
        play.given(Noted(text="Next week.", by="eve"), after_min=10)
        play.started("US-7").step_passes()
        for record in play.records[kept:]:
            await journal.commit(record)

    report = verified(path)
    assert (True, []) == (report.clean, report.findings)
    assert report.replayed >= len(play.records) - kept


async def test_readers_are_told_of_the_gap(tmp_path: Path) -> None:
    """By number; neighbours are one gap, whoever the events were of."""
    path = tmp_path / "journal.db"
    plays = [played(), played(BLOG)]
    await anyio.to_thread.run_sync(write, path, *plays)
    async with opened(path) as journal:
        await carried_out(journal)
        everything = range(1, journal.newest + 1)
        await prune(journal, path, max(end_of(play) for play in plays))
        gaps, left = await journal.left_out(), {event.seq for event in await journal.events()}

    missing = {number for gap in gaps for number in range(gap.after + 1, gap.next)}
    assert {*everything} - left == missing
    assert {"older events are not kept"} == {gap.why for gap in gaps}
    assert all(one.next - 1 < other.after for one, other in pairwise(gaps))


async def test_a_crash_between_two_steps_leaves_a_sound_journal(tmp_path: Path) -> None:
    """After the snapshot, and after any of the small transactions."""
    path, play = tmp_path / "journal.db", played()
    await anyio.to_thread.run_sync(write, path, play)
    async with opened(path) as journal:
        await carried_out(journal)
        (old,) = await journal.pruning.old(end_of(play))
        await cover(journal, path, old)
    assert verified(path).clean

    async with opened(path) as journal:
        (again,) = await journal.pruning.old(end_of(play))
        assert replace(old, covered=True) == again
        await journal.pruning.drop(old.key, old.until, end_of(play), 7)
    assert verified(path).clean

    async with opened(path) as journal:
        await prune(journal, path, end_of(play))
    assert verified(path).clean


async def test_it_is_done_in_small_steps(tmp_path: Path) -> None:
    """However much there is, nobody waits for more than one of them."""
    path, play = tmp_path / "journal.db", played()
    await anyio.to_thread.run_sync(write, path, play)
    async with opened(path) as journal:
        await carried_out(journal)
        (old,) = await journal.pruning.old(end_of(play))
        await cover(journal, path, old)

        assert 7 == await journal.pruning.drop(old.key, old.until, end_of(play), 7)
        assert [LeftOut(0, 8, "older events are not kept")] == list(await journal.left_out())
        await journal.pruning.drop(old.key, old.until, end_of(play), 7)
        assert [LeftOut(0, 15, "older events are not kept")] == list(await journal.left_out())
    assert verified(path).clean


async def test_nothing_else_can_be_deleted(tmp_path: Path) -> None:
    """The journal is append-only, but for what a snapshot stands for."""
    path, play = tmp_path / "journal.db", played()
    await anyio.to_thread.run_sync(write, path, play)
    async with opened(path) as journal:
        await carried_out(journal)
        await prune(journal, path, end_of(play))
    with closing(sqlite3.connect(path)) as db:
        for statement in ("DELETE FROM events WHERE seq > 0", "UPDATE events SET why = ''"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                db.execute(statement)


async def test_step_tables_of_dropped_events_go(tmp_path: Path) -> None:
    """And those that are still in use are found again."""
    path, play = tmp_path / "journal.db", played(finished=True)
    await anyio.to_thread.run_sync(write, path, play)
    spoil(path, "INSERT INTO rulebooks (digest, engine, body) VALUES ('x', '0', '{}')")
    async with opened(path) as journal:
        await journal.pruning.tidy()
    with closing(sqlite3.connect(path)) as db:
        assert [(1,)] == db.execute("SELECT count(*) FROM rulebooks").fetchall()


async def test_room_is_given_back(tmp_path: Path) -> None:
    """A file that was made by this release shrinks."""
    path = tmp_path / "journal.db"
    plays = [played(TrackKey(f"/srv/p{number}"), stories=3, finished=True) for number in range(8)]
    await anyio.to_thread.run_sync(write, path, *plays)
    async with opened(path) as journal:
        await carried_out(journal)
    before = path.stat().st_size
    async with opened(path) as journal:
        await prune(journal, path, max(end_of(play) for play in plays))

    assert path.stat().st_size < before / 2
    assert verified(path).clean


def test_the_events_of_a_play_are_real() -> None:
    """The stories above were decided by the engine."""
    kinds: set[type[Event]] = {type(record.event) for record in played().records}

    assert len(kinds) > 5


async def test_an_older_journal_keeps_its_runs(tmp_path: Path) -> None:
    """Their table is made anew, with all that it held."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / "schema-8.db", path)
    with closing(sqlite3.connect(path)) as db:
        before = _runs(db)

    async with opened(path) as journal:
        assert len(before) == len(await journal.runs()) > 0
        assert () == await journal.left_out()
        assert [] == list(await journal.pruning.old(NOW))

    with closing(sqlite3.connect(path)) as db:
        assert before == _runs(db)
        assert [] == db.execute("PRAGMA foreign_key_check").fetchall()


def _runs(db: sqlite3.Connection) -> list[tuple[object, ...]]:
    columns = sorted(name for _, name, *_ in db.execute("PRAGMA table_info(dispatches)"))
    return db.execute(f"SELECT {', '.join(columns)} FROM dispatches ORDER BY id").fetchall()


async def test_a_journal_that_is_only_read_need_not_be_current(tmp_path: Path) -> None:
    """Nothing was dropped from one that knows nothing of that."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / "schema-8.db", path)
    journal = await Journal.open_to_read(path)

    assert () == await journal.left_out()

    await journal.close()


async def test_the_text_that_lies_in_the_project_stays_known(tmp_path: Path) -> None:
    """Also when later events have written none: else it would count as edited outside."""
    path, play = tmp_path / "journal.db", played(finished=True)
    await anyio.to_thread.run_sync(write, path, play)
    latest = len(play.records)
    spoil(path, f"DELETE FROM projections WHERE seq > {latest - 3}")
    newest = "SELECT max(seq) FROM projections"
    with closing(sqlite3.connect(path)) as db:
        lies_there = db.execute(newest).fetchall()
    async with opened(path) as journal:
        await carried_out(journal)
        (old,) = await journal.pruning.old(end_of(play))
        await journal.pruning.cover(old.key, old.until, play.track)
        while await journal.pruning.drop(old.key, old.until, end_of(play)):
            continue
    with closing(sqlite3.connect(path)) as db:
        assert lies_there == db.execute(newest).fetchall()
        assert [] == db.execute("PRAGMA foreign_key_check").fetchall()
