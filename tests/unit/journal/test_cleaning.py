"""What the journal tells the housekeeping, and what it drops itself."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.journal.making import KEY, NOW, dispatch, opened, record, track

from handoffd.engine.track import TrackKey
from handoffd.journal import retention
from handoffd.journal.journal import Journal
from handoffd.journal.records import Outgoing
from handoffd.protocol.state import Status


async def test_how_runs_ended(tmp_path: Path) -> None:
    """One that is in flight is not judged; one that nobody knows is left out."""
    other = TrackKey("/srv/other")
    async with opened(tmp_path / "journal.db") as journal:
        for key, number in ((KEY, "d1"), (other, "d2")):
            await journal.commit(
                record(key=key, after=track(status=Status.RUNNING, dispatch=dispatch(number)))
            )
        await journal.commit(record(after=track(status=Status.PASS), at=NOW + timedelta(hours=1)))

        found = await journal.cleaning.ends(["d1", "d2", "nobody's"])

    assert {"d1", "d2"} == found.keys()
    assert (KEY.project, True, NOW + timedelta(hours=1)) == (
        found["d1"].project, found["d1"].judged, found["d1"].ended_at
    )  # fmt: skip
    assert (other.project, False, None) == (found["d2"].project, found["d2"].judged, found["d2"].ended_at)


async def test_any_number_can_be_asked_for(tmp_path: Path) -> None:
    """In as many questions as it takes."""
    async with opened(tmp_path / "journal.db") as journal:
        assert {} == await journal.cleaning.ends(
            [f"d{number}" for number in range(2 * retention.ROWS_AT_ONCE + 1)]
        )


async def test_it_is_remembered_when_it_was_cleaned_up(tmp_path: Path) -> None:
    """Over the daemon's end."""
    async with opened(tmp_path / "journal.db") as journal:
        assert await journal.cleaning.last() is None
        await journal.cleaning.note(NOW)
    async with opened(tmp_path / "journal.db") as journal:
        assert NOW == await journal.cleaning.last()


async def _notice(journal: Journal, name: str, days: int, *, waits: bool) -> None:
    at = NOW - timedelta(days=days)
    notice = Outgoing(id=name, key=KEY, at=at, body="0123456789", sinks=("webhook", "command"), effect=None)
    await journal.outbox.keep([notice], 0)
    for sink in ("webhook",) if waits else ("webhook", "command"):
        for one in await journal.outbox.waiting(sink, 0, 10_000):
            await journal.outbox.delivered(one.number, 1)


async def test_only_notices_that_everybody_has_got_go(tmp_path: Path) -> None:
    """And only old ones."""
    async with opened(tmp_path / "journal.db") as journal:
        await _notice(journal, "old", 40, waits=False)
        await _notice(journal, "young", 10, waits=False)
        await _notice(journal, "matter", 60, waits=False)
        await _notice(journal, "waiting", 50, waits=True)
        with closing(sqlite3.connect(tmp_path / "journal.db")) as db, db:  # a person has not decided yet
            db.execute(
                "INSERT INTO matters SELECT '/a', 'main', number, at, 0 FROM notices WHERE id = 'matter'"
            )
        before = NOW - timedelta(days=30)

        assert (1, 10) == await journal.cleaning.notices(before)
        assert 1 == await journal.cleaning.drop_notices(before)
        assert 0 == await journal.cleaning.drop_notices(before)

        counts = (await journal.counts()).deliveries
        assert {("webhook", "delivered"): 3, ("command", "delivered"): 2, ("command", "waiting"): 1} == counts
        (waiting,) = await journal.outbox.waiting("command", 0, 10)
        assert "0123456789" == await journal.outbox.text(waiting.number)


@pytest.mark.parametrize("count", [3])
async def test_what_was_dropped_is_not_sent_again(tmp_path: Path, count: int) -> None:
    """Numbers go on, and a new notice is new."""
    async with opened(tmp_path / "journal.db") as journal:
        for number in range(count):
            await _notice(journal, f"n{number}", 40, waits=False)
        await journal.cleaning.drop_notices(NOW)
        await _notice(journal, "new", 0, waits=True)

        assert 1 == len(await journal.outbox.waiting("command", 0, 10))
