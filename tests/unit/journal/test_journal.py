from __future__ import annotations

import os
import random
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually
from tests.unit.journal.conftest import Golden
from tests.unit.journal.killing import TRACKS, check, live_and_die, nursery
from tests.unit.journal.making import KEY, NOW, dispatch, opened, record, track

from handoffd.engine.decision import Notify, StopTree
from handoffd.engine.events import Noted
from handoffd.engine.track import Phase, StopReason, TrackKey
from handoffd.errors import StoreError
from handoffd.files.atomic import digest_of, sweep_temporaries
from handoffd.files.state_file import state_name
from handoffd.journal import queries
from handoffd.journal.database import open_database
from handoffd.journal.journal import Journal
from handoffd.protocol.state import Status

KILLS = 24
STOP = StopTree(dispatch="d1", why=StopReason.TIMEOUT)


async def test_what_was_committed_is_there_after_reopening(place: Path) -> None:
    """A new daemon goes on from tracks, open effects and known projections."""
    after = track(status=Status.RUNNING, dispatch=dispatch())
    async with opened(place) as journal:
        committed = await journal.commit(record(after=after, effects=(STOP, STOP), text="projected"))
        await journal.effect_done(KEY.project, committed.effects[0].id)

    async with opened(place) as journal:
        (stored,) = await journal.tracks()
        assert (KEY, after, 1) == (stored.key, stored.track, stored.seq)
        assert digest_of("projected") == stored.digest
        assert committed.effects[1:] == await journal.pending_effects()
        assert await journal.projected_before(KEY, digest_of("projected"))
        assert not await journal.projected_before(KEY, digest_of("edited"))
        assert 1 == journal.newest


async def test_opened_for_questions_only_it_sees_all_and_changes_nothing(place: Path) -> None:
    """Beside a daemon that writes, or alone; every write is refused with the reason."""
    async with opened(place) as writing:
        await writing.commit(record(why="first"))
        reading = await Journal.open_to_read(place)
        await writing.commit(record(why="second"))
        assert ["first", "second"] == [event.why for event in await reading.events()]
        await reading.close()

    reading = await Journal.open_to_read(place)
    assert 2 == reading.newest
    with pytest.raises(StoreError) as refused:
        await reading.commit(record())
    await reading.close()
    assert refused.value.message.endswith("was opened for reading only")
    async with opened(place) as writing:
        assert 2 == writing.newest


async def test_a_journal_that_is_not_there_is_not_made_by_a_question(place: Path) -> None:
    """A reader leaves no file."""
    with pytest.raises(StoreError):
        await Journal.open_to_read(place)

    assert [] == os.listdir(place.parent)


async def test_many_producers_lose_and_repeat_nothing(journal: Journal) -> None:
    """Numbers are given once each, without gaps, and each track's events keep their order."""
    numbers: dict[str, list[int]] = {f"/p{n}": [] for n in range(40)}

    async def produce(root: str) -> None:
        for turn in range(5):
            event = Noted(text=f"{turn}")
            committed = await journal.commit(record(event, key=TrackKey(root), text=f"{root} {turn}"))
            numbers[root].append(committed.seq)

    async with anyio.create_task_group() as group:
        for root in numbers:
            group.start_soon(produce, root)
    events = await journal.events(limit=1000)

    assert list(range(1, 201)) == [event.seq for event in events]
    assert sorted(seq for given in numbers.values() for seq in given) == [event.seq for event in events]
    for root, given in numbers.items():
        assert given == sorted(given)
        assert ["0", "1", "2", "3", "4"] == [e.event["text"] for e in events if e.key.project == root]


async def test_a_record_that_is_refused_changes_nothing(journal: Journal) -> None:
    """A path that is not UTF-8 would be another one in SQLite: its track's error; the journal goes on."""
    with pytest.raises(StoreError, match="not UTF-8"):
        await journal.commit(record(key=TrackKey("/srv/caf\udce9")))

    assert 1 == (await journal.commit(record())).seq
    assert [KEY] == [stored.key for stored in await journal.tracks()]


async def test_an_outline_of_tracks_keeps_what_the_caller_wants(journal: Journal) -> None:
    """Of all tracks, or of the tracks of some roots."""
    blog = TrackKey("/srv/blog")
    for key in (KEY, blog):
        await journal.commit(record(key=key))

    assert (blog, KEY) == await journal.outlines(lambda stored: stored.key)
    assert (blog,) == await journal.outlines(lambda stored: stored.key, [blog.project])


async def test_a_follower_wakes_when_something_happens(journal: Journal) -> None:
    """Waiting for news ends with the commit, and at once when there is news already."""
    woken: list[int] = []

    async def follow(seq: int) -> None:
        await journal.newer_than(seq)
        woken.append(seq)

    async with anyio.create_task_group() as group:
        for seq in (0, 0, 1):
            group.start_soon(follow, seq)
        await journal.add_project("/srv/shop", "shop", NOW)
        assert [] == woken
        await journal.commit(record())
        await eventually(lambda: woken == [0, 0])
        await journal.commit(record())
    assert [0, 0, 1] == woken
    with anyio.fail_after(60):
        await journal.newer_than(1)


async def test_closing_ends_the_waiting(journal: Journal) -> None:
    """A follower of a closed journal gets an error, instead of waiting for ever."""
    caught: list[StoreError] = []

    async def follow() -> None:
        try:
            await journal.newer_than(7)
        except StoreError as error:
            caught.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await anyio.lowlevel.checkpoint()
        await journal.close()

    assert ["closed"] == [error.message.split()[-1] for error in caught]
    with pytest.raises(StoreError, match="closed"):
        await journal.commit(record())
    with pytest.raises(StoreError, match="closed"):
        await journal.tracks()


async def test_a_journal_of_schema_1_opens(golden: Golden) -> None:
    """Every released schema stays readable, with all that was in it."""
    async with opened(golden(1)) as journal:
        shop, blog = TrackKey("/srv/shop"), TrackKey("/srv/blog", "US-007")
        tracks = {stored.key: stored for stored in await journal.tracks()}
        assert {shop, blog} == set(tracks)
        state = tracks[shop].track.state
        assert state is not None
        assert ("US-005", "impl", Status.RUNNING, ("x-team", "project")) == (
            state.story, state.step, state.status, state._layout[:2],
        )  # fmt: skip
        assert {"x-team": {"$owner": "金"}} == state.model_extra
        flying = tracks[shop].track.ledger.dispatch
        assert flying is not None
        assert ("20260131T221509-4f9a1c", Phase.EXECUTING) == (flying.id, flying.phase)
        assert ["US-004"] == [parked.state.story for parked in tracks[shop].track.ledger.parked]

        assert [1, 2, 3, 4, 5] == [event.seq for event in await journal.events()]
        pending = await journal.pending_effects()
        assert [(3, Notify)] == [(effect.id, type(effect.effect)) for effect in pending]
        runs = {run.id: run for run in await journal.runs()}
        assert [None, "failing"] == [runs[n].result for n in (flying.id, "20260131T220000-000001")]
        ended = runs["20260131T220000-000001"]
        assert ended.exit is not None
        assert (3, datetime(2026, 1, 31, 22, 10, tzinfo=UTC)) == (ended.exit.code, ended.ended_at)

        assert await journal.projected_before(shop, digest_of("the text of STATE.json\n"))
        assert ["/srv/shop"] == [project.root for project in await journal.projects()]
        assert b"baseline" == await journal.load_baseline(shop, "US-005")
        assert {"/srv/shop": {".ai/step-rules.yaml": "steps: {}\n"}} == await journal.trusted("/srv/shop")
        assert 6 == (await journal.commit(record())).seq


def test_a_kill_at_any_moment_loses_nothing_and_tears_nothing(tmp_path: Path) -> None:
    """Every acknowledged commit survives; STATE files are whole, known, and never ahead of the journal."""
    state_dir, root, chance = tmp_path / "state", tmp_path / "root", random.Random(20260131)
    root.mkdir()
    highest = 0

    with nursery(state_dir, root) as process:
        for _ in range(KILLS):
            said = live_and_die(process, chance)
            with closing(open_database(state_dir / "journal.db")) as db:
                check(db, root, said)
                assert highest <= queries.newest(db)
                highest = queries.newest(db)

    assert KILLS < highest
    for folder in (root / ".ai", root / ".ai" / "states"):
        sweep_temporaries(folder)
    assert {Path(state_name(track)).name for track in TRACKS} == {
        name for _, _, names in os.walk(root) for name in names
    }
