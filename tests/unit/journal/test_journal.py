from __future__ import annotations

import os
import random
import shutil
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from tests.support.eventually import eventually
from tests.unit.journal.killing import check, live_and_die, nursery
from tests.unit.journal.making import GOLDEN, KEY, NOW, dispatch, opened, record, track
from tests.unit.journal.victim import TRACKS

from handoffd.engine.decision import Notify, StopTree
from handoffd.engine.events import Noted
from handoffd.engine.track import Phase, StopReason, TrackKey
from handoffd.errors import StoreError
from handoffd.files.atomic import digest_of, sweep_temporaries
from handoffd.files.state_file import state_name
from handoffd.journal import queries
from handoffd.journal.database import open_database
from handoffd.journal.journal import Journal
from handoffd.journal.records import Newcomer, Origins
from handoffd.protocol.state import Status

KILLS = 24
STOP = StopTree(dispatch="d1", why=StopReason.TIMEOUT)


async def test_what_was_committed_is_there_after_reopening(tmp_path: Path) -> None:
    """Tracks, open effects and known projections are what a new daemon goes on from."""
    after = track(status=Status.RUNNING, dispatch=dispatch())
    async with opened(tmp_path / "journal.db") as journal:
        committed = await journal.commit(record(after=after, effects=(STOP, STOP), text="projected"))
        await journal.effect_done(committed.effects[0].id)

    async with opened(tmp_path / "journal.db") as journal:
        (stored,) = await journal.tracks()
        assert (KEY, after, 1, digest_of("projected")) == (
            stored.key,
            stored.track,
            stored.seq,
            stored.digest,
        )
        assert committed.effects[1:] == await journal.pending_effects()
        assert await journal.projected_before(KEY, digest_of("projected"))
        assert not await journal.projected_before(KEY, digest_of("edited"))
        assert 1 == journal.newest


async def test_opened_for_questions_only_it_sees_all_and_changes_nothing(tmp_path: Path) -> None:
    """Beside a daemon that writes, or alone; every write is refused with the reason."""
    path = tmp_path / "journal.db"
    async with opened(path) as writing:
        await writing.commit(record(why="first"))
        reading = await Journal.open_to_read(path)
        await writing.commit(record(why="second"))
        assert ["first", "second"] == [event.why for event in await reading.events()]
        await reading.close()

    reading = await Journal.open_to_read(path)
    assert 2 == reading.newest
    with pytest.raises(StoreError) as refused:
        await reading.commit(record())
    await reading.close()
    assert refused.value.message.endswith("was opened for reading only")
    async with opened(path) as writing:
        assert 2 == writing.newest


async def test_a_journal_that_is_not_there_is_not_made_by_a_question(tmp_path: Path) -> None:
    """Whoever only looks leaves no file."""
    with pytest.raises(StoreError):
        await Journal.open_to_read(tmp_path / "journal.db")

    assert not (tmp_path / "journal.db").exists()


async def test_many_producers_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """Numbers are given once each, without gaps, and each track's events keep their order."""
    numbers: dict[str, list[int]] = {f"/p{n}": [] for n in range(40)}

    async def produce(journal: Journal, root: str) -> None:
        for turn in range(5):
            event = Noted(text=f"{turn}")
            committed = await journal.commit(record(event, key=TrackKey(root), text=f"{root} {turn}"))
            numbers[root].append(committed.seq)

    async with opened(tmp_path / "journal.db") as journal:
        async with anyio.create_task_group() as group:
            for root in numbers:
                group.start_soon(produce, journal, root)
        events = await journal.events(limit=1000)

    assert list(range(1, 201)) == [event.seq for event in events]
    assert sorted(seq for given in numbers.values() for seq in given) == [event.seq for event in events]
    for root, given in numbers.items():
        assert given == sorted(given)
        assert ["0", "1", "2", "3", "4"] == [e.event["text"] for e in events if e.key.project == root]


async def test_a_record_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    """One track's impossible record is that track's error; the journal goes on."""
    async with opened(tmp_path / "journal.db") as journal:
        with pytest.raises(StoreError, match="not UTF-8"):
            await journal.commit(record(key=TrackKey("/srv/caf\udce9")))

        assert 1 == (await journal.commit(record())).seq
        assert [KEY] == [stored.key for stored in await journal.tracks()]


async def test_of_many_tracks_only_what_is_wanted_is_kept(tmp_path: Path) -> None:
    """An outline of each, whoever it belongs to, or of the tracks of some roots."""
    blog = TrackKey("/srv/blog")
    async with opened(tmp_path / "journal.db") as journal:
        for key in (KEY, blog):
            await journal.commit(record(key=key))

        assert (blog, KEY) == await journal.outlines(lambda stored: stored.key)
        assert (blog,) == await journal.outlines(lambda stored: stored.key, [blog.project])
        assert [blog] == [stored.key for stored in await journal.tracks([blog.project])]


async def test_a_follower_wakes_when_something_happens(tmp_path: Path) -> None:
    """Waiting for news ends with the commit, and at once when there is news already."""
    async with opened(tmp_path / "journal.db") as journal:
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


async def test_closing_ends_the_waiting(tmp_path: Path) -> None:
    """A follower of a closed journal is told, instead of waiting for ever."""
    async with opened(tmp_path / "journal.db") as journal:
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


async def test_projects_baselines_and_trust_are_kept(tmp_path: Path) -> None:
    """What people and measurements said of a project survives a restart."""
    async with opened(tmp_path / "journal.db") as journal:
        await journal.add_project("/srv/shop", "shop", NOW)
        await journal.add_project("/srv/blog", "blog", NOW)
        await journal.remove_project("/srv/blog", NOW + timedelta(days=1))
        await journal.save_baseline(KEY, "US-1", b"\x00results")
        await journal.save_baseline(KEY, None, b"of a custom task")
        await journal.trust("/srv/shop", ".ai/step-rules.yaml", "steps: {}", NOW)

    async with opened(tmp_path / "journal.db") as journal:
        assert [("/srv/shop", "shop", NOW)] == [
            (p.root, p.name, p.added_at) for p in await journal.projects()
        ]
        assert b"\x00results" == await journal.load_baseline(KEY, "US-1")
        assert b"of a custom task" == await journal.load_baseline(KEY, None)
        assert await journal.load_baseline(KEY, "US-2") is None
        assert {"/srv/shop": {".ai/step-rules.yaml": "steps: {}"}} == await journal.trusted()
        with pytest.raises(StoreError, match="not UTF-8"):
            await journal.add_project("/srv/caf\udce9", "café", NOW)


async def test_a_journal_of_schema_1_opens(tmp_path: Path) -> None:
    """Every released schema stays readable, with all that was in it."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / "schema-1.db", path)

    async with opened(path) as journal:
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


async def test_how_a_project_came_is_kept(tmp_path: Path) -> None:
    """What the settings bring they may let go and bring again; what a person removed stays away."""
    brought = [Newcomer(root=f"/srv/{name}", name=name, brought_by="/srv/*") for name in ("a", "b", "c")]
    async with opened(tmp_path / "journal.db") as journal:
        await journal.add_project("/srv/own", "own", NOW)
        await journal.add_projects(brought, NOW, untrusted=("settings",))
        await journal.let_go(["/srv/a", "/srv/own"], NOW)
        await journal.remove_project("/srv/b", NOW)

        assert ["/srv/c", "/srv/own"] == [known.root for known in await journal.projects()]
        assert Origins(brought_by={"/srv/c": "/srv/*"}, kept_out=frozenset({"/srv/b"})) == (
            await journal.origins()
        )

        await journal.add_projects(brought[:1], NOW)
        await journal.add_project("/srv/b", "b", NOW)
        await journal.add_project("/srv/c", "c", NOW)  # of a person's own, from now on
        assert Origins(brought_by={"/srv/a": "/srv/*"}, kept_out=frozenset()) == await journal.origins()


async def test_what_is_found_is_not_trusted_unless_it_was(tmp_path: Path) -> None:
    """Nobody has looked at its files; what a person trusted before stays trusted."""
    newcomers = [Newcomer(root="/srv/a", name="a", brought_by="/srv/*")]
    async with opened(tmp_path / "journal.db") as journal:
        await journal.trust("/srv/a", "rules", "steps: {}\n", NOW)
        await journal.add_projects(newcomers, NOW, untrusted=("settings", "rules"))

        assert {"/srv/a": {"settings": "", "rules": "steps: {}\n"}} == await journal.trusted()


async def test_many_projects_come_all_or_none(tmp_path: Path) -> None:
    """A path that the journal cannot hold is named, and nothing of the rest is half done."""
    newcomers = [Newcomer(root=root, name="n") for root in ("/srv/a", "/srv/caf\udce9")]
    async with opened(tmp_path / "journal.db") as journal:
        with pytest.raises(StoreError):
            await journal.add_projects(newcomers, NOW)

        assert () == await journal.projects()


async def test_before_the_settings_brought_any_all_came_from_people(tmp_path: Path) -> None:
    """An older journal can be looked at before a daemon has brought it up to date, and after."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / "schema-5.db", path)

    looking = await Journal.open_to_read(path)
    try:
        assert Origins(brought_by={}, kept_out=frozenset()) == await looking.origins()
    finally:
        await looking.close()
    async with opened(path) as journal:
        assert Origins(brought_by={}, kept_out=frozenset({"/srv/blog"})) == await journal.origins()


async def test_a_journal_knows_what_the_settings_brought(tmp_path: Path) -> None:
    """As the release wrote it that began with it."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / "schema-6.db", path)

    async with opened(path) as journal:
        assert {"/srv/work/a": "/srv/work"} == (await journal.origins()).brought_by
