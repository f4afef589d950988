"""Rows as values, and sums over them."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta

import pytest
from tests.unit.journal.making import KEY, NOW, dispatch, parcel, record, track

from handoffd.engine.decision import StopTree
from handoffd.engine.events import Noted, NoticeGivenUp, StateEdited
from handoffd.engine.run import Finding
from handoffd.engine.track import HeldEdit, Limit, Queued, StopReason, Track, TrackKey
from handoffd.errors import StoreError
from handoffd.files.atomic import digest_of
from handoffd.journal import dispatches, queries
from handoffd.journal.commit import prepare, write_record
from handoffd.journal.journal import Journal
from handoffd.journal.log import ProjectAdded
from handoffd.journal.projects import put_project
from handoffd.journal.records import Part
from handoffd.protocol.state import State, Status

# --- rows --------------------------------------------------------------------------------------------
BLOG = TrackKey("/srv/blog")

STOP = StopTree(dispatch="d1", why=StopReason.TIMEOUT)


def test_events_come_in_order_from_a_number_on(db: sqlite3.Connection) -> None:
    """A follower asks for what is after the last one it has seen, of one project or of all."""
    assert 0 == queries.newest(db)
    for number in range(6):
        write_record(db, prepare(record(Noted(text=f"{number}"), key=KEY if number % 2 else BLOG)))

    assert [3, 4, 5, 6] == [event.seq for event in queries.events(db, 2, 10)]
    assert [3, 4] == [event.seq for event in queries.events(db, 2, 2)]
    assert [4, 6] == [event.seq for event in queries.events(db, 2, 10, Part(project=KEY.project))]
    assert [] == list(queries.events(db, 6, 10))


def test_the_latest_events_of_a_kind_are_those_of_one_track(db: sqlite3.Connection) -> None:
    """Newest first, and no more than are asked for."""
    for number in range(6):
        write_record(db, prepare(record(Noted(text=f"{number}"), key=KEY if number % 2 else BLOG)))
    write_record(db, prepare(record(StateEdited(state=State(project="shop")))))

    assert ["5", "3"] == [event["text"] for event in queries.latest_of(db, KEY, ("noted", "other"), 2)]
    assert ["state_edited"] == [event["kind"] for event in queries.latest_of(db, KEY, ("state_edited",), 9)]
    assert () == queries.latest_of(db, TrackKey("/srv/none"), ("noted",), 9)


def test_an_event_is_plain_json(db: sqlite3.Connection) -> None:
    """History can be shown by a release that no longer knows the event."""
    write_record(db, prepare(record(StateEdited(state=State(project="shop")), why="edited by hand")))

    (event,) = queries.events(db, 0, 10)

    assert ("state_edited", NOW, KEY, "edited by hand") == (event.kind, event.at, event.key, event.why)
    assert ("shop", "accepted") == (event.event["state"]["project"], event.result["type"])


def test_runs_come_newest_first(db: sqlite3.Connection) -> None:
    """The last dispatch is what a person looks for."""
    for number, key in (("d1", KEY), ("d2", BLOG), ("d3", KEY)):
        write_record(db, prepare(record(key=key, after=track(dispatch=dispatch(number)))))

    assert ["d3", "d2", "d1"] == [run.id for run in dispatches.dispatches(db, 10)]
    assert ["d3"] == [run.id for run in dispatches.dispatches(db, 1)]
    assert ["d2"] == [run.id for run in dispatches.dispatches(db, 10, Part(project=BLOG.project))]


@pytest.mark.parametrize("body", ["{", '{"ledger": 7}', '{"state": {"$state": {}}}'])
def test_a_row_that_cannot_be_read_is_named(db: sqlite3.Connection, body: str) -> None:
    """A damaged track is an error, never a track that is missing."""
    write_record(db, prepare(record()))
    db.execute("DROP TRIGGER events_stay")  # nothing but a fault of ours writes both alike
    db.execute("UPDATE tracks SET body = ?", (body,))
    db.execute("UPDATE events SET track_digest = ?", (digest_of(body),))

    with pytest.raises(StoreError, match=r"record of /srv/shop \(main\) cannot be read") as caught:
        tuple(queries.tracks(db))

    assert "CORRUPT_JOURNAL" == caught.value.code


GARBLED = "UPDATE tracks SET body = '{'"

OTHER_BODY = """UPDATE tracks SET body = replace(body, '"pending"', '"pass"')"""

PUT_BACK = "UPDATE tracks SET seq = 1"

OTHERS = "UPDATE tracks SET seq = (SELECT seq FROM events WHERE project = '/srv/blog')"

NOWHERE = "UPDATE tracks SET seq = 99"

UNSHOWN = "UPDATE tracks SET digest = 'other'"

MOVED = "UPDATE tracks SET status = 'pass'"

REMOVED = "DELETE FROM tracks"


@pytest.mark.parametrize(
    ("change", "why", "story"),
    [
        (OTHER_BODY, "its body is not the one that event 2, its last one, has left", None),
        (GARBLED, "its body is not the one that event 2, its last one, has left", None),
        (PUT_BACK, "it was put back to event 1, and there are later ones", None),
        (OTHERS, "event 3, which it names as its last one, is not one of its events", None),
        (NOWHERE, "event 99, which it names as its last one, is not one of its events", None),
        (UNSHOWN, "it expects another STATE.json than event 2, its last one, has made", "US-1"),
        (MOVED, "event 2, its last one, has left it at another step or status", "US-1"),
        (REMOVED, "it is gone, and event 2 is there", None),
    ],
)
def test_a_row_that_was_changed_by_hand_is_shown_as_its_last_event_left_it(
    db: sqlite3.Connection, change: str, why: str, story: str | None
) -> None:
    """Step and status at least, all of the body if the event vouches for it; other projects are untouched."""
    for key, name in ((KEY, "shop"), (BLOG, "blog")):
        put_project(db, ProjectAdded(project=key.project, name=name, at=NOW))
    for key in (KEY, KEY, BLOG):
        write_record(db, prepare(record(key=key, text="{}")))
    assert [None, None] == [stored.unsound for stored in queries.tracks(db)]

    db.execute("PRAGMA foreign_keys = OFF")  # as it is for a person who edits the file
    db.execute(f"{change} WHERE project = '/srv/shop'")

    unsound = {stored.key: stored.unsound for stored in queries.tracks(db)}
    assert {KEY: why, BLOG: None} == unsound
    (found,) = queries.tracks(db, [KEY.project])
    state = found.track.state
    assert state is not None
    assert ("shop", story, "bdd", "pending") == (state.project, state.story, state.step, state.status)
    assert why == found.unsound


@pytest.mark.parametrize("order", ["{", '{"kind": "unheard_of"}', "[]"])
def test_an_order_that_cannot_be_read_makes_its_track_unsound(db: sqlite3.Connection, order: str) -> None:
    """It is not carried out, and nothing is decided there; orders of others are what they were."""
    for key in (KEY, BLOG):
        write_record(db, prepare(record(key=key, effects=(STOP,))))
    db.execute("UPDATE effects SET effect = ? WHERE project = ?", (order, KEY.project))

    unsound = {stored.key: stored.unsound for stored in queries.tracks(db)}
    assert {KEY: "order 64, of event 1, cannot be read", BLOG: None} == unsound
    assert [BLOG] == [pending.key for pending in queries.pending_effects(db)]
    db.execute("UPDATE effects SET outcome = 'done'")
    assert {None} == {stored.unsound for stored in queries.tracks(db)}


def test_a_question_about_some_roots_is_answered_for_these_alone(db: sqlite3.Connection) -> None:
    """What one project costs does not depend on how many there are."""
    for key in (KEY, BLOG):
        write_record(db, prepare(record(key=key, effects=(STOP,))))

    assert [BLOG] == [stored.key for stored in queries.tracks(db, [BLOG.project])]
    assert {KEY, BLOG} == {stored.key for stored in queries.tracks(db, [KEY.project, BLOG.project])}
    assert () == tuple(queries.tracks(db, ["/srv/nowhere"]))
    assert [BLOG] == [order.key for order in queries.pending_effects(db, BLOG.project)]


# --- sums --------------------------------------------------------------------------------------------
async def add(journal: Journal, root: str, after: Track, *, at: datetime = NOW) -> None:
    """Add a project whose track is like this."""
    await journal.add_project(root, root[1:], NOW)
    await journal.commit(record(key=TrackKey(root), after=after, at=at))


async def test_supervised_tracks_are_counted(journal: Journal) -> None:
    """By step and status; a project that was removed is history."""
    for root, status in (("/a", Status.PASS), ("/b", Status.PASS), ("/c", Status.FAILING)):
        await add(journal, root, track(status=status))
    await add(journal, "/gone", track(status=Status.PASS))
    await journal.remove_project("/gone", NOW)

    found = await journal.counts()

    assert {("bdd", "pass"): 2, ("bdd", "failing"): 1} == found.tracks
    assert (4, 0) == (found.newest_event, found.orders_pending)
    assert found.database_bytes > 0


async def test_stories_that_wait_are_counted(journal: Journal) -> None:
    """Of all projects."""
    waiting = track().with_ledger(backlog=(Queued(story="US-2"), Queued(story="US-3")))
    for root in ("/a", "/b"):
        await add(journal, root, waiting)

    assert 4 == (await journal.counts()).backlog


async def test_notices_by_sink_and_outcome(journal: Journal) -> None:
    """One on its way is `waiting`, one that must not be sent before the morning is `held`."""
    late = parcel("n3", sinks=("webhook",), held={"webhook": "quiet"})
    await journal.outbox.keep([*(parcel(name, sinks=("webhook",)) for name in ("n1", "n2")), late], 0)
    (first, _) = await journal.outbox.waiting("webhook", 0, 10)
    await journal.outbox.delivered(first.number, 1)

    found = await journal.counts()

    expected = {("webhook", "delivered"): 1, ("webhook", "waiting"): 1, ("webhook", "held"): 1}
    assert expected == found.deliveries


async def test_tracks_that_wait_for_people(journal: Journal) -> None:
    """The supervised ones; they are counted again when something has happened."""
    for root, status in (("/a", Status.PASS), ("/b", Status.NEEDS_HUMAN), ("/gone", Status.NEEDS_HUMAN)):
        await add(journal, root, track(status=status))
    assert 2 == await journal.gates()
    await journal.remove_project("/gone", NOW)
    assert 1 == await journal.gates()
    await journal.commit(record(key=TrackKey("/a"), after=track(status=Status.TIMEOUT)))
    assert 2 == await journal.gates()


async def test_since_when_the_oldest_waits(journal: Journal) -> None:
    """A track that waits for no person does not count, however old."""
    for day, status in enumerate((Status.PASS, Status.NEEDS_HUMAN, Status.TIMEOUT)):
        await add(journal, f"/{'abc'[day]}", track(status=status), at=NOW + timedelta(days=day))
    assert NOW + timedelta(days=1) == (await journal.counts()).waiting_since
    await journal.commit(record(key=TrackKey("/b"), after=track(), at=NOW + timedelta(days=5)))
    assert NOW + timedelta(days=2) == (await journal.counts()).waiting_since
    await journal.remove_project("/c", NOW)
    assert (await journal.counts()).waiting_since is None


async def test_what_happens_while_it_waits_does_not_begin_the_wait_anew(journal: Journal) -> None:
    """A note, and a notice that a dead sink never took: no person acted, and it waits since it came there."""
    gate, key = track(status=Status.NEEDS_HUMAN), TrackKey("/a")
    given_up = NoticeGivenUp(sink="webhook", count=1, first="n1", why="refused")
    await add(journal, "/a", track(), at=NOW - timedelta(days=9))
    await journal.commit(record(key=key, after=gate))
    noted = gate.with_note("look at the log")
    await journal.commit(record(key=key, after=noted, at=NOW + timedelta(days=1)))
    await journal.commit(record(given_up, key=key, after=noted, at=NOW + timedelta(days=2)))

    assert NOW == (await journal.counts()).waiting_since


async def test_a_story_that_was_pending_before_waits_since_its_notice(journal: Journal) -> None:
    """It took its time in a line, and then its cap was reached; what happens later begins nothing anew."""
    capped, at, key = track().with_ledger(capped=_CAP), NOW + timedelta(days=3), TrackKey("/a")
    await add(journal, "/a", track())
    await journal.commit(record(key=key, after=capped, at=at))
    assert at == (await journal.counts()).waiting_since  # the notice is not recorded yet
    await journal.outbox.keep([parcel("n1", key, at=at, sinks=(), opens=key)], 0)
    await journal.commit(record(key=key, after=capped.with_note("?"), at=at + timedelta(days=1)))

    assert at == (await journal.counts()).waiting_since


_CAP = Finding(scope="story", unit="usd", cap=1.0, spent=2.0)
_LIMIT = Limit(account="claude", executor="claude", kind="limit", since=NOW, until=NOW)
_HELD = HeldEdit(state=State(project="p"), why="gate")


@pytest.mark.parametrize(
    ("there", "waits", "blocked"),
    [
        (track(status=Status.NEEDS_HUMAN), 1, 0),
        (track(status=Status.TIMEOUT), 1, 0),
        (track(status=Status.PENDING), 0, 0),
        (track(status=Status.RUNNING), 0, 0),
        (track(status=Status.PENDING).with_ledger(paused_by="ann"), 0, 0),
        (track(status=Status.PENDING).with_ledger(paused_by="handoffd", remedy="handoffd doctor"), 1, 1),
        (track(status=Status.PENDING).with_ledger(capped=_CAP), 1, 1),
        (track(status=Status.PENDING).with_ledger(told="blocked by US-0"), 0, 1),
        (track(status=Status.PENDING).with_ledger(told="a usage limit", limited=(_LIMIT,)), 0, 0),
        (track(status=Status.PASS).with_ledger(held_edit=_HELD), 1, 0),
        (track(status=Status.NEEDS_HUMAN).with_ledger(closed=True), 0, 0),
        (Track(), 0, 0),
    ],
)
async def test_tracks_that_wait_and_tracks_that_are_blocked(
    journal: Journal, there: Track, waits: int, blocked: int
) -> None:
    """For a person, or by a story, as notices report it, whatever the status in STATE.json is."""
    await add(journal, "/a", there)

    found = await journal.counts()

    assert (waits, blocked) == (found.waiting_for_people, found.blocked)
    assert waits == await journal.gates()
