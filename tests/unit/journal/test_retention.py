"""What goes for its age, and what stays."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Literal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.recorded import BLOG, SHOP, RecordedPlay, spoil, write
from tests.unit.journal import flowing
from tests.unit.journal.conftest import Golden
from tests.unit.journal.making import KEY, NOW, dispatch, older, opened, parcel, record, track

from handoffd.api.verification import Verification
from handoffd.engine.events import Aborted, Approved, Initialised, Noted, TrackClosed, TrackOpened
from handoffd.engine.track import Queued, TrackKey
from handoffd.errors import StoreError
from handoffd.fleet.housekeeping import standing_after
from handoffd.journal import retention
from handoffd.journal.journal import Journal
from handoffd.journal.records import LeftOut
from handoffd.journal.replay import Recordings
from handoffd.journal.retention import Condition, End, Old, Past, Size, plan, sizes
from handoffd.protocol.state import Status


# --- which runs go -----------------------------------------------------------------------------------
def past(
    days: float = 31,
    *,
    condition: Condition = "ended",
    number: int = 1,
    project: str | None = "/srv/shop",
    kind: Literal["run", "copy"] = "run",
    weight: int = 100,
) -> Past:
    """Return a run that ended `days` ago."""
    since = NOW - timedelta(days=days)
    return Past(
        kind=kind, id=f"{since:%Y%m%dT%H%M%S}-{number:08x}", project=project, condition=condition,
        since=since, bytes=weight,
    )  # fmt: skip


def gone(*found: Past, days: float | None = 30, newest: int = 0) -> list[str]:
    """Return the ids that go."""
    return [doomed.id for doomed, _ in plan(found, NOW, days, newest).doomed]


@pytest.mark.parametrize(
    ("days", "condition", "goes", "why"),
    [
        (31, "ended", True, "ended 31 days ago (retention.runs_days: 30)"),
        (30, "ended", False, "young"),
        (0, "ended", False, "young"),
        (-5, "ended", False, "young"),
        (400, "running", False, "running"),
        (400, "unjudged", False, "unjudged"),
        (400, "foreign", False, "foreign"),
        (31, "unknown", True, "is unknown to the journal, and was changed last 31 days ago"),
        (29, "unknown", False, "young"),
    ],
)
def test_only_what_is_over_and_old_goes(days: float, condition: Condition, goes: bool, why: str) -> None:
    """Each with its reason, and so does what stays."""
    planned = plan([past(days, condition=condition)], NOW, 30, 0)

    assert goes == bool(planned.doomed)
    assert why in (planned.doomed[0][1] if goes else planned.kept)


def test_the_newest_runs_of_each_project_stay() -> None:
    """However old; copies are counted for themselves, so are runs of no project. Without a limit all stay."""
    assert [] == gone(past(9999), days=None)
    assert {"kept for ever": 1} == plan([past(9999)], NOW, None, 0).kept
    shop = [past(days) for days in (100, 90, 80)]
    other = [past(200, project="/srv/other")]
    copies = [past(100, kind="copy")]
    homeless = [past(300, project=None, condition="unknown", number=number) for number in (1, 2)]

    assert [shop[0].id, homeless[0].id] == gone(*shop[:2], *other, *copies, *homeless, newest=1)
    assert {"copied": 1} == plan([past(9999)], NOW, 30, 0, {past(9999).id: "copied"}).kept
    assert {"newest": 4} == plan([*shop[:2], *other, *copies, *homeless], NOW, 30, 1).kept
    assert [past(50).id] == gone(past(50), past(1), past(2), newest=2), "young ones are among the newest"


PASTS = st.builds(
    past,
    st.floats(-10, 1000),
    condition=st.sampled_from(["running", "unjudged", "foreign", "ended", "unknown"]),
    number=st.integers(0, 2**32 - 1),
    project=st.sampled_from([None, "/a", "/b"]),
    kind=st.sampled_from(["run", "copy"]),
)


@given(st.lists(PASTS, max_size=30), st.floats(1, 500), st.integers(0, 5))
def test_nothing_goes_that_may_be_needed(found: list[Past], days: float, newest: int) -> None:
    """Whatever there is: each either goes or is counted, and what goes is over, old and not the newest."""
    planned = plan(found, NOW, days, newest)

    assert len(found) == len(planned.doomed) + sum(planned.kept.values())
    for doomed, _ in planned.doomed:
        assert doomed.condition in {"ended", "unknown"}
        assert NOW - doomed.since > timedelta(days=days)
        newer = [
            one for one in found
            if (one.kind, one.project) == (doomed.kind, doomed.project) and one.id > doomed.id
        ]  # fmt: skip
        assert len(newer) >= newest


def test_sizes_are_summed_by_kind_and_project() -> None:
    """The largest first."""
    found = [past(1, weight=10), past(2, weight=5), past(1, weight=400, kind="copy"), past(1, project=None)]

    assert (
        Size(kind="copy", project="/srv/shop", count=1, bytes=400),
        Size(kind="run", project=None, count=1, bytes=100),
        Size(kind="run", project="/srv/shop", count=2, bytes=15),
    ) == sizes(found)


# --- notices -----------------------------------------------------------------------------------------
async def test_how_runs_ended(journal: Journal) -> None:
    """One in flight is not judged; unknown ones are left out, however many are asked for."""
    other = TrackKey("/srv/other")
    for key, number in ((KEY, "d1"), (other, "d2")):
        await journal.commit(record(key=key, after=track(status=Status.RUNNING, dispatch=dispatch(number))))
    await journal.commit(record(after=track(status=Status.PASS), at=NOW + timedelta(hours=1)))

    many = [f"unknown-{number}" for number in range(2 * retention.ROWS_AT_ONCE + 1)]
    found = await journal.cleaning.ends(["d1", *many, "d2"])

    judged = End(project=KEY.project, judged=True, ended_at=NOW + timedelta(hours=1))
    assert {"d1": judged, "d2": End(project=other.project, judged=False, ended_at=None)} == found


async def test_it_is_remembered_when_it_was_cleaned_up(place: Path) -> None:
    """Over the daemon's end."""
    async with opened(place) as journal:
        assert await journal.cleaning.last() is None
        await journal.cleaning.note(NOW)
    async with opened(place) as journal:
        assert NOW == await journal.cleaning.last()


async def _notice(journal: Journal, name: str, days: int, *, waits: bool) -> None:
    at = NOW - timedelta(days=days)
    await journal.outbox.keep([parcel(name, at=at, sinks=("webhook", "command"))], 0)
    for sink in ("webhook",) if waits else ("webhook", "command"):
        for one in await journal.outbox.waiting(sink, 0, 10_000):
            await journal.outbox.delivered(one.number, 1)


async def test_only_old_notices_that_no_sink_waits_for_go(journal: Journal, place: Path) -> None:
    """The notice of an open matter stays, too."""
    await _notice(journal, "old", 40, waits=False)
    await _notice(journal, "young", 10, waits=False)
    await _notice(journal, "matter", 60, waits=False)
    await _notice(journal, "waiting", 50, waits=True)
    spoil(place, "INSERT INTO matters SELECT '/a', 'main', number, at, 0 FROM notices WHERE id = 'matter'")
    before = NOW - timedelta(days=30)

    old = parcel("old", at=NOW - timedelta(days=40)).notice
    assert (1, len(old.as_json())) == await journal.cleaning.notices(before)
    assert 1 == await journal.cleaning.drop_notices(before)
    assert 0 == await journal.cleaning.drop_notices(before)

    counts = (await journal.counts()).deliveries
    assert {("webhook", "delivered"): 3, ("command", "delivered"): 2, ("command", "waiting"): 1} == counts
    (waiting,) = await journal.outbox.waiting("command", 0, 10)
    left = await journal.outbox.read(waiting.number)
    assert left is not None
    assert "waiting" == left.id


async def test_dropped_notices_are_not_sent_again(journal: Journal) -> None:
    """Numbers go on, and a new notice is new."""
    for number in range(3):
        await _notice(journal, f"n{number}", 40, waits=False)
    await journal.cleaning.drop_notices(NOW)
    await _notice(journal, "new", 0, waits=True)

    assert 1 == len(await journal.outbox.waiting("command", 0, 10))


# --- events -------------------------------------------------------------------------------------------
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


async def carried_out(journal: Journal) -> None:
    """Mark every order as done: a pending one keeps its event."""
    for effect in await journal.pending_effects():
        await journal.effect_done(effect.key.project, effect.id)


def verify(path: Path) -> int:
    """Assert that a verification finds nothing wrong; return how many decisions it made again."""
    with closing(Recordings(path)) as source:
        report = Verification(source).run()
    assert (True, []) == (report.clean, report.findings)
    return report.replayed


@asynccontextmanager
async def opened_sound(place: Path) -> AsyncIterator[Journal]:
    """Yield the journal at `place`; it verifies afterwards."""
    async with opened(place) as journal:
        yield journal
    verify(place)


@asynccontextmanager
async def written(place: Path, *plays: RecordedPlay) -> AsyncIterator[Journal]:
    """Yield a journal of plays whose orders are carried out; it verifies afterwards."""
    await anyio.to_thread.run_sync(write, place, *plays)
    async with opened_sound(place) as journal:
        await carried_out(journal)
        yield journal


async def cover(journal: Journal, path: Path, old: Old) -> None:
    """Take the snapshot that replaces old events."""
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


def end_of(*plays: RecordedPlay) -> datetime:
    """Return a time at which all of some plays is old."""
    return max(play.records[-1].at for play in plays) + LATER


async def test_finished_stories_go_and_the_journal_is_sound(place: Path) -> None:
    """Tracks and runs are as they were, decisions that are left are made again."""
    play = played()
    assert len({type(record.event) for record in play.records}) > 5  # the engine decided it
    async with written(place, play) as journal:
        before, runs = await journal.tracks(), await journal.runs()

        gone = await prune(journal, place, end_of(play))
        events = await journal.events()

        assert (before, runs) == (await journal.tracks(), await journal.runs())
        assert gone > len(play.records) / 2
        assert len(play.records) == gone + len(events)
        assert 0 == await prune(journal, place, end_of(play))
    assert verify(place) > 0
    assert events[-1].seq == len(play.records)


async def test_a_story_that_is_not_over_or_is_young_stays(place: Path) -> None:
    """Whole: its beginning is as old as it likes."""
    shop, blog = played(), played(BLOG, stories=0)
    async with written(place, shop, blog) as journal:
        assert 0 == await prune(journal, place, shop.records[0].at)
        await prune(journal, place, end_of(shop))
        left = await journal.events()

    assert len(blog.records) == sum(event.key == BLOG for event in left)
    started = [event.event["story"] for event in left if event.kind == "started" and event.key == SHOP]
    assert ["US-9"] == started


async def test_of_a_storys_own_track_little_stays(place: Path) -> None:
    """Its end, and its last text of STATE; it may begin again from there."""
    key = TrackKey(SHOP.project, "US-2")

    def begin() -> None:
        own.given(TrackOpened(project="shop", entry=Queued(story="US-2"))).step_passes().turn()

    main, own = RecordedPlay(SHOP), RecordedPlay(key)
    main.given(Initialised(project="shop"))
    begin()
    own.step_passes().given(Aborted(by="eve")).given(TrackClosed(why="it was given up"))
    async with written(place, main, own) as journal:
        gone = await prune(journal, place, end_of(main, own))
        left = [event.kind for event in await journal.events() if event.key == key]
        assert ["aborted", "track_closed"] == left
        assert len(own.records) == gone + len(left)
        assert 0 == await prune(journal, place, end_of(main, own))
        kept = len(own.records)
        begin()
        for record in own.records[kept:]:
            await journal.commit(record)
        assert {SHOP, key} == {one.key for one in await journal.tracks()}


async def test_an_order_that_is_not_done_keeps_its_story(place: Path) -> None:
    """It will be carried out, and needs what it belonged to."""
    play = played(finished=True)
    await anyio.to_thread.run_sync(write, place, play)
    async with opened_sound(place) as journal:
        first, *others = await journal.pending_effects()
        for effect in others:
            await journal.effect_done(effect.key.project, effect.id)

        assert 0 == await prune(journal, place, end_of(play))
        await journal.effect_done(first.key.project, first.id)
        assert 0 < await prune(journal, place, end_of(play))


async def test_a_track_that_rests_keeps_its_latest_event(place: Path) -> None:
    """And goes on from there: later decisions are verified as ever."""
    play = played(finished=True)
    kept = len(play.records)
    async with written(place, play) as journal:
        newest = journal.newest
        await prune(journal, place, end_of(play))
        (stored,) = await journal.tracks()
        assert newest == stored.seq == journal.newest
        play.given(Noted(text="Next week.", by="eve"), after_min=10)
        play.started("US-7").step_passes()
        for record in play.records[kept:]:
            await journal.commit(record)

    assert verify(place) >= len(play.records) - kept


async def test_readers_learn_about_the_gap(place: Path) -> None:
    """By number; neighbours are one gap, also when the events were of several projects."""
    plays = [played(), played(BLOG)]
    async with written(place, *plays) as journal:
        everything = range(1, journal.newest + 1)
        await prune(journal, place, end_of(*plays))
        gaps, left = await journal.left_out(), {event.seq for event in await journal.events()}

    missing = {number for gap in gaps for number in range(gap.after + 1, gap.next)}
    assert {*everything} - left == missing
    assert {"older events are not kept"} == {gap.why for gap in gaps}
    assert all(one.next - 1 < other.after for one, other in pairwise(gaps))


async def test_a_crash_between_two_steps_leaves_a_sound_journal(place: Path) -> None:
    """After the snapshot, and after any of the small transactions; each is a known gap."""
    play = played()
    async with written(place, play) as journal:
        (old,) = await journal.pruning.old(end_of(play))
        await cover(journal, place, old)

    async with opened_sound(place) as journal:
        (again,) = await journal.pruning.old(end_of(play))
        assert replace(old, covered=True) == again
        assert 7 == await journal.pruning.drop(old.key, old.until, end_of(play), 7)
        assert [LeftOut(0, 8, "older events are not kept")] == list(await journal.left_out())
        await journal.pruning.drop(old.key, old.until, end_of(play), 7)
        assert [LeftOut(0, 15, "older events are not kept")] == list(await journal.left_out())

    async with opened_sound(place) as journal:
        await prune(journal, place, end_of(play))


async def test_nothing_else_can_be_deleted(place: Path) -> None:
    """The journal is append-only, but for what a snapshot replaces."""
    play = played()
    async with written(place, play) as journal:
        await prune(journal, place, end_of(play))
    with closing(sqlite3.connect(place)) as db:
        for statement in ("DELETE FROM events WHERE seq > 0", "UPDATE events SET why = ''"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                db.execute(statement)


async def test_step_tables_of_dropped_events_go(recorded: Path) -> None:
    """Tables that are still in use stay."""
    spoil(recorded, "INSERT INTO rulebooks (digest, engine, body) VALUES ('x', '0', '{}')")
    async with opened_sound(recorded) as journal:
        await journal.pruning.tidy()
    with closing(sqlite3.connect(recorded)) as db:
        assert [(1,)] == db.execute("SELECT count(*) FROM rulebooks").fetchall()


async def test_room_is_given_back(place: Path) -> None:
    """A file that was made by this release shrinks."""
    plays = [played(TrackKey(f"/srv/p{number}"), stories=3, finished=True) for number in range(4)]
    async with written(place, *plays):
        pass
    before = os.stat(place).st_size
    async with opened_sound(place) as journal:
        await prune(journal, place, end_of(*plays))

    assert os.stat(place).st_size < before / 2


async def test_a_journal_of_schema_8_keeps_its_runs(golden: Golden, tmp_path: Path) -> None:
    """Their table is made anew, with all that it held; nothing was dropped, before the migration or after."""
    async with older(8, tmp_path) as reading:
        assert () == await reading.left_out()
    path = golden(8)
    before = _runs(path)

    async with opened(path) as journal:
        assert len(before) == len(await journal.runs()) > 0
        assert () == await journal.left_out()
        assert [] == list(await journal.pruning.old(NOW))

    assert before == _runs(path)


def _runs(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        assert [] == db.execute("PRAGMA foreign_key_check").fetchall()
        columns = sorted(name for _, name, *_ in db.execute("PRAGMA table_info(dispatches)"))
        return db.execute(f"SELECT {', '.join(columns)} FROM dispatches ORDER BY id").fetchall()


async def test_the_latest_text_of_state_stays_known(place: Path) -> None:
    """Also when later events have written none: else it would count as edited outside."""
    play = played(finished=True)
    newest = "SELECT max(seq) FROM projections"
    await anyio.to_thread.run_sync(write, place, play)
    spoil(place, f"DELETE FROM projections WHERE seq > {len(play.records) - 3}")
    with closing(sqlite3.connect(place)) as db:
        known = db.execute(newest).fetchall()
    async with opened(place) as journal:
        await carried_out(journal)
        (old,) = await journal.pruning.old(end_of(play))
        await journal.pruning.cover(old.key, old.until, play.track)
        while await journal.pruning.drop(old.key, old.until, end_of(play)):
            continue
    with closing(sqlite3.connect(place)) as db:
        assert known == db.execute(newest).fetchall()
        assert [] == db.execute("PRAGMA foreign_key_check").fetchall()


# --- old flows ----------------------------------------------------------------------------------------
async def test_a_flow_that_ended_long_ago_goes_whole(place: Path) -> None:
    """In small transactions; what is left verifies, and the numbers are known as not kept."""
    ended, going = flowing.played(30, name="random-0030"), flowing.played(11)
    async with opened(place) as journal:
        await journal.add_project(KEY.project, "shop", NOW)
        for one in (*going.records[:20], *ended.records):
            await journal.commit_flow(one)
        later = NOW + timedelta(days=1)
        assert () == await journal.pruning.old_flows(later)  # its orders are not done
        await carried_out(journal)
        assert () == await journal.pruning.old_flows(NOW)
        (old,) = await journal.pruning.old_flows(later)
        assert (ended.records[0].key, len(ended.records)) == (old.key, old.count)
        assert old.bytes > 1000

        counts = []
        while count := await journal.pruning.drop_flow(old.key, later, 5):
            counts.append(count)
            assert verified(place)
        await journal.pruning.tidy()

        assert len(ended.records) == sum(counts)
        assert {5} == {*counts[:-1]}
        assert None is await journal.flow(old.key)
        assert () == await journal.ended_flows(KEY.project)
        assert () == await journal.past_nodes(KEY.project, "random-0030")
        dropped = LeftOut(20, 21 + len(ended.records), "older events are not kept")
        assert (dropped,) == await journal.left_out()
        (left,) = await journal.flows()
        assert (None, going.records[19].after) == (left.unsound, left.flow)
    with closing(sqlite3.connect(place)) as db:
        assert [] == db.execute("PRAGMA foreign_key_check").fetchall()
        for table in ("flows", "plans"):
            assert [(1,)] == db.execute(f"SELECT count(*) FROM {table}").fetchall()
        assert {("random-7k2q",)} == {*db.execute("SELECT DISTINCT flow FROM flow_facts")}


def verified(place: Path) -> bool:
    """Return whether a verification finds nothing."""
    with closing(Recordings(place)) as source:
        return Verification(source).run().clean


async def test_no_event_of_a_flow_that_goes_on_can_be_dropped(place: Path) -> None:
    """The file itself keeps it."""
    async with opened(place) as journal:
        for one in flowing.played(11).records[:9]:
            await journal.commit_flow(one)
        with pytest.raises(StoreError, match="append-only"):
            await journal.pruning.drop_flow(flowing.FLOW, NOW)

        assert 9 == len(await journal.events())


async def test_a_flow_whose_request_may_come_again_stays_until_the_next_time(place: Path) -> None:
    """The answer to it is looked up by its event."""
    play = flowing.played(3)
    async with opened(place) as journal:
        await journal.requests.claim("key", "fingerprint", NOW)
        for one in play.records:
            await journal.commit_flow(replace(one, request="key"))
        assert 0 == await journal.pruning.drop_flow(flowing.FLOW, NOW)
        assert 0 < await journal.pruning.drop_flow(flowing.FLOW, NOW + timedelta(days=2))
