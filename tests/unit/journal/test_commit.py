"""What a decision writes; the step tables and the keys of requests that are kept with it."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.playbook import shipped_rules, with_rule
from tests.unit.journal.conftest import Golden
from tests.unit.journal.making import KEY, NOW, dispatch, opened, record, track

import handoffd
from handoffd.engine.decision import StopTree, WriteChecklist
from handoffd.engine.events import Advanced, ChecksFinished, ExecutorExited, ExecutorStarted
from handoffd.engine.run import Exit
from handoffd.engine.track import Phase, StopReason, Track
from handoffd.errors import NotFound, StoreError
from handoffd.files.atomic import digest_of
from handoffd.journal import dispatches, projects, queries
from handoffd.journal.codec import decode_rules, moment
from handoffd.journal.commit import (
    KEPT,
    RuleTexts,
    StoredRequest,
    finish_effect,
    keep_rules,
    prepare,
    write_record,
)
from handoffd.journal.journal import Journal
from handoffd.journal.log import BaselineKept, FileTrusted, ProjectAdded
from handoffd.journal.projects import put_baseline, put_project, put_trusted, retire_project
from handoffd.journal.records import Record
from handoffd.protocol.handoff import Absent
from handoffd.protocol.state import State, Status

# --- records -----------------------------------------------------------------------------------------
STOP = StopTree(dispatch="d1", why=StopReason.TIMEOUT)
CHECKLIST = WriteChecklist(story="US-1", task_type="story")


def write(db: sqlite3.Connection, *records: Record) -> list[int]:
    """Write records and return their numbers."""
    return [write_record(db, prepare(one)).seq for one in records]


def test_a_record_gets_the_next_number_and_its_effects_get_ids(db: sqlite3.Connection) -> None:
    """Numbers rise over all tracks; an order is known by its event and its place there."""
    first = write_record(db, prepare(record(effects=(STOP, CHECKLIST))))
    second = write_record(db, prepare(record(key=KEY._replace(track="US-2"), effects=(STOP,))))

    assert (1, 2) == (first.seq, second.seq)
    assert [(64, STOP), (65, CHECKLIST)] == [(one.id, one.effect) for one in first.effects]
    assert first.effects + second.effects == queries.pending_effects(db)


def test_half_a_surrogate_pair_in_a_reason_is_recorded_as_a_question_mark(db: sqlite3.Connection) -> None:
    """For the event and for the dispatch that it ends: broken output of an agent is recorded, too."""
    write(db, record(after=track(status=Status.RUNNING, dispatch=dispatch())))
    write(db, record(after=track(status=Status.FAILING), why="half \ud83d of it"))

    (run,) = dispatches.dispatches(db, 10)
    assert ["half ? of it"] * 2 == [run.why, queries.events(db, 1, 10)[0].why]


def test_numbers_and_ids_are_never_used_twice(db: sqlite3.Connection) -> None:
    """Followers and adapters remember them, even when old rows are removed one day."""
    write_record(db, prepare(record(effects=(STOP,))))
    db.execute("DROP TRIGGER events_remain")
    for table in ("effects", "tracks", "events"):
        db.execute(f"DELETE FROM {table}")

    again = write_record(db, prepare(record(effects=(STOP,))))

    assert (2, [128]) == (again.seq, [effect.id for effect in again.effects])


def test_an_event_keeps_where_the_track_stood_before_and_after(db: sqlite3.Connection) -> None:
    """History reads as moves from one standing to the next."""
    write(db, record(after=Track()), record(after=track("bdd")), record(after=track("bdd", Status.RUNNING)))

    moves = [(event.before, event.after) for event in queries.events(db, 0, 10)]

    assert [(None, None), (None, ("bdd", "pending")), (("bdd", "pending"), ("bdd", "running"))] == moves


def test_a_record_without_a_projection_keeps_the_last_digest(db: sqlite3.Connection) -> None:
    """The file on the disk is still the text projected before."""
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


def test_a_run_has_one_row(db: sqlite3.Connection) -> None:
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

    (run,) = dispatches.dispatches(db, 10)

    assert (later[1], later[3]) == (run.started_at, run.ended_at)
    assert ("pass", "all green", Exit(code=0, seconds=60)) == (run.result, run.why, run.exit)
    begun = (run.story, run.step, run.attempt, run.executor, run.decided_at)
    assert ("US-1", "bdd", 1, "claude", NOW) == begun


def test_a_verdict_closes_only_runs_of_its_own_track(db: sqlite3.Connection) -> None:
    """Tracks do not judge each other's dispatches."""
    one, two = (track(status=Status.RUNNING, dispatch=dispatch(number)) for number in ("d1", "d2"))
    write(db, record(after=one), record(key=KEY._replace(track="US-2"), after=two))
    write(db, record(after=track(status=Status.FAILING)))

    results = {run.id: run.result for run in dispatches.dispatches(db, 10)}
    assert {"d1": "failing", "d2": None} == results


def test_an_effect_is_done_once(db: sqlite3.Connection) -> None:
    """The first outcome stays; marking it again is harmless; an unknown id is an error."""
    (effect,) = write_record(db, prepare(record(effects=(STOP,)))).effects

    finish_effect(db, KEY.project, effect.id, "done")
    finish_effect(db, KEY.project, effect.id, "lost")

    assert () == queries.pending_effects(db)
    assert [("done",)] == db.execute("SELECT outcome FROM effects").fetchall()
    with pytest.raises(StoreError, match="effect 99"):
        finish_effect(db, KEY.project, 99, "done")


def test_a_track_that_could_not_be_read_back_is_not_written(db: sqlite3.Connection) -> None:
    """An impossible value is refused while its cause is near, not found at the next start."""
    broken = Track(state=State(project="shop").model_copy(update={"attempt": 0}))

    with pytest.raises(StoreError, match="would not be readable again") as caught:
        prepare(record(after=broken))

    assert "UNWRITABLE" == caught.value.code
    assert 0 == queries.newest(db)


def test_a_project_comes_and_goes(db: sqlite3.Connection) -> None:
    """Adding twice renames; removing twice is an error; coming back counts from then."""
    later = NOW + timedelta(days=1)
    put_project(db, ProjectAdded(project="/srv/shop", name="shop", at=NOW))
    put_project(db, ProjectAdded(project="/srv/shop", name="store", at=later))
    assert [("store", NOW)] == [(project.name, project.added_at) for project in projects.projects(db)]

    retire_project(db, "/srv/shop", later)
    assert () == projects.projects(db)
    with pytest.raises(NotFound, match="/srv/shop"):
        retire_project(db, "/srv/shop", later)

    put_project(db, ProjectAdded(project="/srv/shop", name="shop", at=later))
    assert [later] == [project.added_at for project in projects.projects(db)]


def test_baselines_and_trusted_texts_are_replaced(db: sqlite3.Connection) -> None:
    """The latest counts, for each story and each file on its own."""
    for body in (b"old", b"new \x00\xff"):
        put_baseline(db, BaselineKept(project=KEY.project, track=KEY.track, story="US-1", body=body))
    for text in ("old", "post_check: make"):
        put_trusted(db, FileTrusted(project="/srv/shop", file=".ai/step-rules.yaml", text=text, at=NOW))

    assert (b"new \x00\xff", None) == tuple(projects.baseline(db, KEY, story) for story in ("US-1", "US-2"))
    put_trusted(db, FileTrusted(project="/srv/blog", file=".ai/handoffd.yaml", text="", at=NOW))
    shop, blog = {".ai/step-rules.yaml": "post_check: make"}, {".ai/handoffd.yaml": ""}
    assert {"/srv/shop": shop} == projects.trusted(db, ["/srv/shop"])
    assert {"/srv/shop": shop, "/srv/blog": blog} == projects.trusted(db, None)


def test_moments_sort_as_text() -> None:
    """Times are kept in UTC with microseconds, wherever they were taken."""
    here = datetime(2026, 2, 1, 6, 15, 9, tzinfo=timezone(timedelta(hours=8)))

    assert "2026-01-31T22:15:09.000000+00:00" == moment(here)
    assert moment(here) < moment(here + timedelta(microseconds=1))


# --- step tables -------------------------------------------------------------------------------------
def test_a_table_is_written_once_and_named_by_its_content() -> None:
    """It comes back as it was, so that decisions can be made again; many projects share one text."""
    texts = RuleTexts()
    rules = with_rule("impl", step_instruction={"zh-TW": "寫最少的程式"}, post_check="go vet ./... && true")

    first = texts.written(rules)

    assert rules == decode_rules(first.body)
    assert first is texts.written(rules)
    assert first == RuleTexts().written(rules.model_copy())
    assert (digest_of(first.body), handoffd.__version__) == (first.digest, first.engine)


def test_many_tables_do_not_fill_the_memory() -> None:
    """Tables not seen for long are written anew, with the same digest."""
    texts, first = RuleTexts(), shipped_rules()
    before = texts.written(first)

    for number in range(1, 100):
        texts.written(with_rule("impl", max_attempts=number))

    assert before is not texts.written(first)
    assert before == texts.written(first)


def test_a_table_has_one_row_for_each_release_that_decides_by_it(db: sqlite3.Connection) -> None:
    """A change of the engine is as good as one of the table."""
    text = RuleTexts().written(shipped_rules())

    numbers = [keep_rules(db, one) for one in (text, replace(text, engine="9.9"), text)]

    assert numbers[0] == numbers[2] != numbers[1]
    assert 2 == db.execute("SELECT count(*) FROM rulebooks").fetchone()[0]


# --- requests with a key -----------------------------------------------------------------------------
CLAIMED = StoredRequest(fingerprint="one", seq=None, status=None, body=None)


async def test_a_key_is_claimed_once(journal: Journal, place: Path) -> None:
    """A second request with the key gets the first one, also after the file was opened again."""
    assert None is await journal.requests.claim("k", "one", NOW)
    assert CLAIMED == await journal.requests.claim("k", "two", NOW)
    async with opened(place) as again:
        assert CLAIMED == await again.requests.claim("k", "two", NOW)


async def test_an_event_is_committed_with_its_key(journal: Journal) -> None:
    """In one transaction; the first one counts, and a key that was not claimed is ignored."""
    await journal.requests.claim("k", "one", NOW)
    first = await journal.commit(replace(record(), request="k"))
    await journal.commit(replace(record(), request="k"))
    await journal.commit(replace(record(), request="unknown"))

    assert replace(CLAIMED, seq=first.seq) == await journal.requests.claim("k", "one", NOW)


async def test_an_answer_is_kept_for_a_day(journal: Journal) -> None:
    """Then the key is free again."""
    await journal.requests.claim("k", "one", NOW)
    await journal.requests.answer("k", 409, '{"type": "error"}')

    answered = replace(CLAIMED, status=409, body='{"type": "error"}')
    assert answered == await journal.requests.claim("k", "one", NOW + KEPT)
    assert None is await journal.requests.claim("k", "one", NOW + KEPT + timedelta(microseconds=1))


async def test_only_a_claim_without_an_outcome_is_released(journal: Journal) -> None:
    """What became an event, or has an answer, stays."""
    for key in ("nothing", "event", "answer"):
        await journal.requests.claim(key, "one", NOW)
    await journal.commit(replace(record(), request="event"))
    await journal.requests.answer("answer", 200, "{}")

    for key in ("nothing", "event", "answer"):
        await journal.requests.release(key)

    again = [await journal.requests.claim(key, "one", NOW) for key in ("nothing", "event", "answer")]
    assert [True, False, False] == [known is None for known in again]


@pytest.mark.parametrize("schema", [1, 3, 4])
async def test_an_older_journal_takes_keys(golden: Golden, schema: int) -> None:
    """After its migration."""
    async with opened(golden(schema)) as journal:
        assert None is await journal.requests.claim("k", "one", NOW)


async def test_a_journal_of_schema_5_opens_with_its_keys(golden: Golden) -> None:
    """One became an event, the other has an answer."""
    async with opened(golden(5)) as journal:
        requests = journal.requests
        found = [await requests.claim(key, "x", NOW) for key in ("key-1", "key-2")]

    known = StoredRequest(fingerprint="fingerprint", seq=None, status=None, body=None)
    assert [replace(known, seq=1), replace(known, status=200, body='{"type": "reloaded"}')] == found
