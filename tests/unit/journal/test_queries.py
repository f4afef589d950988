from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.journal.making import KEY, NOW, dispatch, record, track

from handoffd.engine.decision import StopTree
from handoffd.engine.events import Noted, StateEdited
from handoffd.engine.track import StopReason, TrackKey
from handoffd.errors import StoreError
from handoffd.files.atomic import digest_of
from handoffd.journal import dispatches, queries
from handoffd.journal.commit import prepare, write_record
from handoffd.journal.database import open_database
from handoffd.journal.projects import put_projects
from handoffd.journal.records import Newcomer
from handoffd.protocol.state import State

BLOG = TrackKey("/srv/blog")
STOP = StopTree(dispatch="d1", why=StopReason.TIMEOUT)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A new journal."""
    with closing(open_database(tmp_path / "journal.db")) as connection:
        yield connection


def test_events_come_in_order_from_a_number_on(db: sqlite3.Connection) -> None:
    """A follower asks for what is after the last one it has seen, of one project or of all."""
    for number in range(6):
        write_record(db, prepare(record(Noted(text=f"{number}"), key=KEY if number % 2 else BLOG)))

    assert [3, 4, 5, 6] == [event.seq for event in queries.events(db, 2, None, 10)]
    assert [3, 4] == [event.seq for event in queries.events(db, 2, None, 2)]
    assert [4, 6] == [event.seq for event in queries.events(db, 2, KEY.project, 10)]
    assert [] == list(queries.events(db, 6, None, 10))


def test_an_event_is_plain_json(db: sqlite3.Connection) -> None:
    """History can be shown by a release that no longer knows the event."""
    write_record(db, prepare(record(StateEdited(state=State(project="shop")), why="edited by hand")))

    (event,) = queries.events(db, 0, None, 10)

    assert ("state_edited", NOW, KEY, "edited by hand") == (event.kind, event.at, event.key, event.why)
    assert ("shop", "accepted") == (event.event["state"]["project"], event.result["type"])


def test_runs_come_newest_first(db: sqlite3.Connection) -> None:
    """The last dispatch is what a person looks for."""
    for number, key in (("d1", KEY), ("d2", BLOG), ("d3", KEY)):
        write_record(db, prepare(record(key=key, after=track(dispatch=dispatch(number)))))

    assert ["d3", "d2", "d1"] == [run.id for run in dispatches.dispatches(db, None, 10)]
    assert ["d3"] == [run.id for run in dispatches.dispatches(db, None, 1)]
    assert ["d2"] == [run.id for run in dispatches.dispatches(db, BLOG.project, 10)]


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
    ("change", "why"),
    [
        (OTHER_BODY, "its body is not the one that event 2, its last one, has left"),
        (GARBLED, "its body is not the one that event 2, its last one, has left"),
        (PUT_BACK, "it was put back to event 1, and there are later ones"),
        (OTHERS, "event 3, which it names as its last one, is not one of its events"),
        (NOWHERE, "event 99, which it names as its last one, is not one of its events"),
        (UNSHOWN, "it expects another STATE.json than event 2, its last one, has made"),
        (MOVED, "event 2, its last one, has left it at another step or status"),
        (REMOVED, "it is gone, and event 2 is there"),
    ],
)
def test_what_was_changed_by_hand_is_told_of(db: sqlite3.Connection, change: str, why: str) -> None:
    """Whatever of a row somebody has edited; the other project is as its events have left it."""
    put_projects(db, [Newcomer(root=KEY.project, name="shop"), Newcomer(root="/srv/blog", name="blog")], NOW)
    for key in (KEY, KEY, TrackKey("/srv/blog")):
        write_record(db, prepare(record(key=key, text="{}")))
    assert [None, None] == [stored.unsound for stored in queries.tracks(db)]

    db.execute("PRAGMA foreign_keys = OFF")  # as it is in the hands of who edits it
    db.execute(f"{change} WHERE project = '/srv/shop'")

    told = {stored.key.project: stored.unsound for stored in queries.tracks(db)}
    assert {KEY.project: why, "/srv/blog": None} == told
    assert [why] == [stored.unsound for stored in queries.tracks(db, [KEY.project])]


@pytest.mark.parametrize("change", [OTHER_BODY, GARBLED, PUT_BACK, OTHERS, NOWHERE, REMOVED])
def test_of_what_was_changed_by_hand_the_events_are_told(db: sqlite3.Connection, change: str) -> None:
    """The step and the status that its last event has left; nothing of a body that no event has left."""
    put_projects(db, [Newcomer(root=KEY.project, name="shop"), Newcomer(root="/srv/blog", name="blog")], NOW)
    for key in (KEY, KEY, TrackKey("/srv/blog")):
        write_record(db, prepare(record(key=key, text="{}")))
    db.execute("PRAGMA foreign_keys = OFF")
    db.execute("""UPDATE tracks SET body = replace(body, 'US-005', 'US-999') WHERE project = '/srv/shop'""")
    db.execute(f"{change} WHERE project = '/srv/shop'")

    (told,) = queries.tracks(db, [KEY.project])

    state = told.track.state
    assert state is not None
    assert ("shop", None, "bdd", "pending") == (state.project, state.story, state.step, state.status)


@pytest.mark.parametrize("change", [UNSHOWN, MOVED])
def test_a_body_that_its_last_event_has_left_is_told(db: sqlite3.Connection, change: str) -> None:
    """Though the row says something else beside it."""
    write_record(db, prepare(record(text="{}")))
    before = next(iter(queries.tracks(db))).track.state
    db.execute(change)

    assert before == next(iter(queries.tracks(db))).track.state


@pytest.mark.parametrize("order", ["{", '{"kind": "unheard_of"}', "[]"])
def test_an_order_that_cannot_be_read_makes_its_track_unsound(db: sqlite3.Connection, order: str) -> None:
    """It is not carried out, and nothing is decided there; orders of others are what they were."""
    for key in (KEY, BLOG):
        write_record(db, prepare(record(key=key, effects=(STOP,))))
    db.execute("UPDATE effects SET effect = ? WHERE project = ?", (order, KEY.project))

    told = {stored.key: stored.unsound for stored in queries.tracks(db)}

    assert {KEY: "order 1, of event 1, cannot be read", BLOG: None} == told
    assert [BLOG] == [pending.key for pending in queries.pending_effects(db)]
    db.execute("UPDATE effects SET outcome = 'done'")
    assert {None} == {stored.unsound for stored in queries.tracks(db)}


def test_what_is_asked_of_some_roots_tells_of_no_other(db: sqlite3.Connection) -> None:
    """What one project costs does not depend on how many there are."""
    for key in (KEY, BLOG):
        write_record(db, prepare(record(key=key, effects=(STOP,))))

    assert [BLOG] == [stored.key for stored in queries.tracks(db, [BLOG.project])]
    assert {KEY, BLOG} == {stored.key for stored in queries.tracks(db, [KEY.project, BLOG.project])}
    assert () == tuple(queries.tracks(db, ["/srv/nowhere"]))
    assert [BLOG] == [order.key for order in queries.pending_effects(db, BLOG.project)]


def test_the_newest_number_of_an_empty_journal_is_nought(db: sqlite3.Connection) -> None:
    """Followers of an empty journal start before its first event."""
    assert 0 == queries.newest(db)
