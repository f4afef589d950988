"""Sums over the journal."""

from __future__ import annotations

from pathlib import Path

from tests.unit.store.making import KEY, NOW, opened, record, track

from handoffd.engine.track import Queued, TrackKey
from handoffd.protocol.state import Status
from handoffd.store.records import Outgoing


async def test_what_is_supervised_now_is_counted(tmp_path: Path) -> None:
    """By step and status; a project that was removed is history."""
    async with opened(tmp_path / "journal.db") as journal:
        for root, status in (("/a", Status.PASS), ("/b", Status.PASS), ("/c", Status.FAILING)):
            await journal.add_project(root, root[1:], NOW)
            await journal.commit(record(key=TrackKey(root), after=track(status=status)))
        await journal.add_project("/gone", "gone", NOW)
        await journal.commit(record(key=TrackKey("/gone"), after=track(status=Status.PASS)))
        await journal.remove_project("/gone", NOW)

        found = await journal.counts()

    step = track().state.step  # type: ignore[union-attr]
    assert {(step, "pass"): 2, (step, "failing"): 1} == found.tracks
    assert (4, 0) == (found.newest_event, found.orders_pending)
    assert found.database_bytes > 0


async def test_stories_that_wait_are_counted(tmp_path: Path) -> None:
    """Of all projects."""
    waiting = track().with_ledger(backlog=(Queued(story="US-2"), Queued(story="US-3")))
    async with opened(tmp_path / "journal.db") as journal:
        for root in ("/a", "/b"):
            await journal.add_project(root, root[1:], NOW)
            await journal.commit(record(key=TrackKey(root), after=waiting))

        assert 4 == (await journal.counts()).backlog


async def test_notices_by_sink_and_outcome(tmp_path: Path) -> None:
    """What is on its way is `waiting`."""
    async with opened(tmp_path / "journal.db") as journal:
        for name in ("n1", "n2"):
            notice = Outgoing(id=name, key=KEY, at=NOW, body="{}", sinks=("webhook",), effect=None)
            await journal.outbox.keep([notice], 0)
        (first, _) = await journal.outbox.waiting("webhook", 0, 10)
        await journal.outbox.delivered(first.number, 1)

        found = await journal.counts()

    assert {("webhook", "delivered"): 1, ("webhook", "waiting"): 1} == found.deliveries


async def test_who_waits_for_people(tmp_path: Path) -> None:
    """Of what is supervised now."""
    async with opened(tmp_path / "journal.db") as journal:
        for root, status in (("/a", Status.PASS), ("/b", Status.NEEDS_HUMAN), ("/gone", Status.NEEDS_HUMAN)):
            await journal.add_project(root, root[1:], NOW)
            await journal.commit(record(key=TrackKey(root), after=track(status=status)))
        await journal.remove_project("/gone", NOW)

        assert 1 == await journal.gates()
