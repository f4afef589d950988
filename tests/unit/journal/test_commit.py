from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from tests.unit.journal.making import KEY, NOW, dispatch, record, track

from handoffd.engine.decision import StopTree, WriteChecklist
from handoffd.engine.events import Advanced, ChecksFinished, ExecutorExited, ExecutorStarted
from handoffd.engine.run import Exit
from handoffd.engine.track import Phase, StopReason, Track
from handoffd.errors import NotFound, StoreError
from handoffd.files.atomic import digest_of
from handoffd.journal import dispatches, projects, queries
from handoffd.journal.codec import moment
from handoffd.journal.commit import finish_effect, prepare, write_record
from handoffd.journal.database import open_database
from handoffd.journal.projects import put_baseline, put_projects, put_trusted, retire_project
from handoffd.journal.records import Newcomer, Record
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import State, Status

STOP = StopTree(dispatch="d1", why=StopReason.TIMEOUT)
CHECKLIST = WriteChecklist(story="US-1", task_type="story")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A new journal."""
    with closing(open_database(tmp_path / "journal.db")) as connection:
        yield connection


def write(db: sqlite3.Connection, *records: Record) -> list[int]:
    """Write records and return their numbers."""
    return [write_record(db, prepare(one)).seq for one in records]


def test_a_record_gets_the_next_number_and_its_effects_get_ids(db: sqlite3.Connection) -> None:
    """Numbers rise over all tracks; ids are those that stay pending."""
    first = write_record(db, prepare(record(effects=(STOP, CHECKLIST))))
    second = write_record(db, prepare(record(key=KEY._replace(track="US-2"), effects=(STOP,))))

    assert (1, 2) == (first.seq, second.seq)
    assert [(1, STOP), (2, CHECKLIST)] == [(one.id, one.effect) for one in first.effects]
    assert first.effects + second.effects == queries.pending_effects(db)


def test_half_a_surrogate_pair_in_a_reason_is_recorded_as_a_question_mark(db: sqlite3.Connection) -> None:
    """For the event and for the dispatch that it ends: broken output of an agent is recorded, too."""
    write(db, record(after=track(status=Status.RUNNING, dispatch=dispatch())))
    write(db, record(after=track(status=Status.FAILING), why="half \ud83d of it"))

    (run,) = dispatches.dispatches(db, None, 10)
    assert ["half ? of it"] * 2 == [run.why, queries.events(db, 1, None, 10)[0].why]


def test_numbers_and_ids_are_never_used_twice(db: sqlite3.Connection) -> None:
    """Followers and adapters remember them, even when old rows are removed one day."""
    write_record(db, prepare(record(effects=(STOP,))))
    for statement in (
        "DELETE FROM effects",
        "DELETE FROM tracks",
        "DROP TRIGGER events_remain",
        "DELETE FROM events",
    ):
        db.execute(statement)

    again = write_record(db, prepare(record(effects=(STOP,))))

    assert (2, [2]) == (again.seq, [effect.id for effect in again.effects])


def test_an_event_keeps_where_the_track_stood_before_and_after(db: sqlite3.Connection) -> None:
    """History reads as moves from one standing to the next."""
    write(db, record(after=Track()), record(after=track("bdd")), record(after=track("bdd", Status.RUNNING)))

    moves = [(event.before, event.after) for event in queries.events(db, 0, None, 10)]

    assert [(None, None), (None, ("bdd", "pending")), (("bdd", "pending"), ("bdd", "running"))] == moves


def test_a_record_without_a_projection_keeps_the_last_digest(db: sqlite3.Connection) -> None:
    """What lies on the disk is still what was projected before."""
    write(db, record(text="one"), record(text=None))

    (stored,) = queries.tracks(db)

    assert (digest_of("one"), 2) == (stored.digest, stored.seq)


def test_projections_are_remembered_per_track_and_not_for_ever(db: sqlite3.Connection) -> None:
    """The newest 200 of each track are ours; one that came back counts from its return."""
    other = KEY._replace(track="US-2")
    write(db, record(key=other, text="other"), *(record(text=f"{n}") for n in range(201)), record(text="1"))

    known = [queries.projected(db, KEY, digest_of(f"{n}")) for n in (0, 1, 2, 200)]

    assert [False, True, True, True] == known
    assert queries.projected(db, other, digest_of("other"))
    assert not queries.projected(db, KEY, digest_of("other"))
    write(db, record(text="new"))
    assert [False, True] == [queries.projected(db, KEY, digest_of(text)) for text in ("2", "1")]


def test_a_run_is_told_once(db: sqlite3.Connection) -> None:
    """The row of a dispatch follows its events, and keeps the first value of each fact."""
    later = [NOW + timedelta(minutes=minutes) for minutes in range(6)]
    flying = track(status=Status.RUNNING, dispatch=dispatch())
    checking = track(status=Status.RUNNING, dispatch=dispatch(phase=Phase.CHECKING))
    exited = ExecutorExited(dispatch="d1", exit=Exit(code=0, seconds=60), reading=Absent())
    write(
        db,
        record(Advanced(dispatch="d1", executor="claude"), after=flying),
        record(ExecutorStarted(dispatch="d1", pid=7), after=flying, at=later[1]),
        record(ExecutorStarted(dispatch="d1", pid=7), after=flying, at=later[2]),
        record(exited, after=checking, at=later[3]),
        record(ChecksFinished(dispatch="d1"), after=track(status=Status.PASS), at=later[4], why="all green"),
        record(after=track("sdd-delta"), at=later[5], why="next step"),
    )

    (run,) = dispatches.dispatches(db, None, 10)

    assert (later[1], later[3]) == (run.started_at, run.ended_at)
    assert ("pass", "all green", Exit(code=0, seconds=60)) == (run.result, run.why, run.exit)
    assert ("US-1", "bdd", 1, "claude", NOW) == (
        run.story,
        run.step,
        run.attempt,
        run.executor,
        run.decided_at,
    )


def test_a_verdict_closes_only_runs_of_its_own_track(db: sqlite3.Connection) -> None:
    """Tracks do not judge each other's dispatches."""
    other = KEY._replace(track="US-2")
    write(
        db,
        record(after=track(status=Status.RUNNING, dispatch=dispatch("d1"))),
        record(key=other, after=track(status=Status.RUNNING, dispatch=dispatch("d2"))),
        record(after=track(status=Status.FAILING)),
    )

    assert {"d1": "failing", "d2": None} == {
        run.id: run.result for run in dispatches.dispatches(db, None, 10)
    }


def test_an_effect_is_done_once(db: sqlite3.Connection) -> None:
    """The first outcome stays; marking it again is harmless; an unknown id is an error."""
    (effect,) = write_record(db, prepare(record(effects=(STOP,)))).effects

    finish_effect(db, effect.id, "done")
    finish_effect(db, effect.id, "lost")

    assert () == queries.pending_effects(db)
    assert [("done",)] == db.execute("SELECT outcome FROM effects").fetchall()
    with pytest.raises(StoreError, match="effect 99"):
        finish_effect(db, 99, "done")


def test_a_track_that_could_not_be_read_back_is_not_written(db: sqlite3.Connection) -> None:
    """An impossible value is refused while its cause is near, not found at the next start."""
    broken = Track(state=State(project="shop").model_copy(update={"attempt": 0}))

    with pytest.raises(StoreError, match="would not be readable again") as caught:
        prepare(record(after=broken))

    assert "UNWRITABLE" == caught.value.code
    assert 0 == queries.newest(db)


def test_a_path_that_is_not_utf8_is_refused() -> None:
    """SQLite's text is UTF-8, and a mangled path would be another project."""
    with pytest.raises(StoreError, match="not UTF-8"):
        prepare(record(key=KEY._replace(project="/srv/caf\udce9")))


def test_a_project_comes_and_goes(db: sqlite3.Connection) -> None:
    """Adding twice renames; removing twice is an error; coming back counts from then."""
    later = NOW + timedelta(days=1)
    put_projects(db, [Newcomer(root="/srv/shop", name="shop")], NOW)
    put_projects(db, [Newcomer(root="/srv/shop", name="store")], later)
    assert [("store", NOW)] == [(project.name, project.added_at) for project in projects.projects(db)]

    retire_project(db, "/srv/shop", later)
    assert () == projects.projects(db)
    with pytest.raises(NotFound, match="/srv/shop"):
        retire_project(db, "/srv/shop", later)

    put_projects(db, [Newcomer(root="/srv/shop", name="shop")], later)
    assert [later] == [project.added_at for project in projects.projects(db)]


def test_baselines_and_trusted_texts_are_replaced(db: sqlite3.Connection) -> None:
    """The latest counts, for each story and each file on its own."""
    for body in (b"old", b"new \x00\xff"):
        put_baseline(db, KEY, "US-1", body)
    for text in ("old", "post_check: make"):
        put_trusted(db, "/srv/shop", ".ai/step-rules.yaml", text, NOW)

    assert (b"new \x00\xff", None) == tuple(projects.baseline(db, KEY, story) for story in ("US-1", "US-2"))
    put_trusted(db, "/srv/blog", ".ai/handoffd.yaml", "", NOW)
    shop, blog = {".ai/step-rules.yaml": "post_check: make"}, {".ai/handoffd.yaml": ""}
    assert {"/srv/shop": shop} == projects.trusted(db, ["/srv/shop"])
    assert {"/srv/shop": shop, "/srv/blog": blog} == projects.trusted(db, None)


def test_moments_sort_as_text() -> None:
    """Times are kept in UTC with microseconds, wherever they were taken."""
    here = datetime(2026, 2, 1, 6, 15, 9, tzinfo=timezone(timedelta(hours=8)))

    assert "2026-01-31T22:15:09.000000+00:00" == moment(here)
    assert moment(here) < moment(here + timedelta(microseconds=1))
