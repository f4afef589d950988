"""What the journal keeps of schedules."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.playbook import Playbook, track_at
from tests.unit.journal.making import GOLDEN, opened

from handoffd.engine.events import Started
from handoffd.engine.track import TrackKey
from handoffd.journal.journal import Journal
from handoffd.journal.projects import Fire, StoredSchedule
from handoffd.journal.records import Record

AT = datetime(2026, 1, 31, 22, tzinfo=UTC)
DUE = AT + timedelta(hours=5)
SHOP = "/srv/shop"


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    """An empty journal."""
    async with opened(tmp_path / "journal.db") as lent:
        yield lent


def record(event: Started, status: str = "done") -> Record:
    """Return what the engine decides on a start."""
    play = Playbook(track_at(status)).given(event)
    decision = play.decision
    return Record(
        key=TrackKey(SHOP), at=DUE, event=event, track=decision.track, effects=decision.effects,
        result=decision.result, why=decision.why, state_text=None,
    )  # fmt: skip


NIGHTLY = Started(story="R-1", schedule="nightly", due=DUE)


async def test_a_schedule_is_known_since_it_was_armed(journal: Journal) -> None:
    """Once; with another fingerprint it begins anew."""
    await journal.schedules.arm([(SHOP, "nightly", "0 3 * * *")], AT)
    await journal.schedules.arm([(SHOP, "nightly", "0 3 * * *")], DUE)
    known = StoredSchedule(project=SHOP, schedule="nightly", fingerprint="0 3 * * *", armed_at=AT, last=None)
    assert (known,) == await journal.schedules.all()
    assert AT == known.handled

    await journal.schedules.arm([(SHOP, "nightly", "0 4 * * *")], DUE)
    [again] = await journal.schedules.all()
    assert DUE == again.handled


async def test_a_start_is_dealt_with_in_the_transaction_of_its_event(journal: Journal) -> None:
    """Whether it began or waits in the backlog."""
    await journal.schedules.arm([(SHOP, "nightly", "x"), ("/srv/blog", "nightly", "x")], AT)

    await journal.commit(record(NIGHTLY))

    found = await journal.schedules.of(SHOP, "nightly")
    assert found is not None
    assert DUE == found.handled
    last = Fire(project=SHOP, schedule="nightly", due=DUE, at=DUE, outcome="started", story="R-1")
    assert last == found.last
    other = await journal.schedules.of("/srv/blog", "nightly")
    assert other is not None
    assert other.last is None

    await journal.commit(record(Started(story="R-2", schedule="nightly", due=DUE, queue=True), "impl"))
    queued = await journal.schedules.of(SHOP, "nightly")
    assert queued is not None
    assert queued.last is not None
    assert ("queued", "R-2 waits behind US-1") == (queued.last.outcome, queued.last.why)


async def test_a_persons_start_is_no_schedules(journal: Journal) -> None:
    """Nothing is dealt with by it."""
    await journal.schedules.arm([(SHOP, "nightly", "x")], AT)
    await journal.commit(record(Started(story="R-1")))
    [found] = await journal.schedules.all()
    assert found.last is None


async def test_what_started_nothing_is_dealt_with_as_well(journal: Journal) -> None:
    """With why."""
    await journal.schedules.arm([(SHOP, "nightly", "x")], AT)
    fire = Fire(project=SHOP, schedule="nightly", due=DUE, at=DUE, outcome="skipped", why="US-1 runs")
    await journal.schedules.settle(fire)
    [found] = await journal.schedules.all()
    assert (fire, DUE) == (found.last, found.handled)


async def test_what_is_in_no_settings_is_forgotten(journal: Journal) -> None:
    """The others stay."""
    await journal.schedules.arm([(SHOP, "a", "x"), (SHOP, "b", "x")], AT)
    await journal.schedules.forget([(SHOP, "a"), (SHOP, "never")])
    assert ["b"] == [one.schedule for one in await journal.schedules.all()]
    await journal.schedules.forget([])
    await journal.schedules.arm([], AT)
    assert await journal.schedules.of(SHOP, "a") is None


async def test_a_journal_of_before_there_were_schedules_has_none(tmp_path: Path) -> None:
    """It can be looked at before a daemon has brought it up to date, and after."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / "schema-6.db", path)
    looking = await Journal.open_to_read(path)
    try:
        assert () == await looking.schedules.all()
    finally:
        await looking.close()
    async with opened(path) as journal:
        assert () == await journal.schedules.all()


async def test_a_journal_knows_what_the_clock_has_started(tmp_path: Path) -> None:
    """As the release wrote it that began with it."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / "schema-7.db", path)
    async with opened(path) as journal:
        look, nightly = await journal.schedules.all()
    assert look.last is not None
    assert nightly.last is not None
    assert ("skipped", "US-005 is in flight at impl") == (look.last.outcome, look.last.why)
    assert ("started", "US-005", AT) == (nightly.last.outcome, nightly.last.story, nightly.handled)
