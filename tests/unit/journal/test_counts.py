"""Sums over the journal."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.journal.making import KEY, NOW, opened, record, track

from handoffd.engine.events import NoticeGivenUp
from handoffd.engine.run import Finding
from handoffd.engine.track import HeldEdit, Limit, Queued, Track, TrackKey
from handoffd.journal.records import Outgoing
from handoffd.protocol.state import State, Status


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
    """What is on its way is `waiting`, what is not to be told before the morning is `held`."""
    async with opened(tmp_path / "journal.db") as journal:
        for name in ("n1", "n2"):
            notice = Outgoing(id=name, key=KEY, at=NOW, body="{}", sinks=("webhook",), effect=None)
            await journal.outbox.keep([notice], 0)
        (first, _) = await journal.outbox.waiting("webhook", 0, 10)
        await journal.outbox.delivered(first.number, 1)
        late = {"webhook": "quiet"}
        notice = Outgoing(id="n3", key=KEY, at=NOW, body="{}", sinks=("webhook",), effect=None, held=late)
        await journal.outbox.keep([notice], 0)

        found = await journal.counts()

    expected = {("webhook", "delivered"): 1, ("webhook", "waiting"): 1, ("webhook", "held"): 1}
    assert expected == found.deliveries


async def test_who_waits_for_people(tmp_path: Path) -> None:
    """Of what is supervised now; it is counted again when something has happened."""
    async with opened(tmp_path / "journal.db") as journal:
        for root, status in (("/a", Status.PASS), ("/b", Status.NEEDS_HUMAN), ("/gone", Status.NEEDS_HUMAN)):
            await journal.add_project(root, root[1:], NOW)
            await journal.commit(record(key=TrackKey(root), after=track(status=status)))
        assert 2 == await journal.gates()
        await journal.remove_project("/gone", NOW)
        assert 1 == await journal.gates()
        await journal.commit(record(key=TrackKey("/a"), after=track(status=Status.TIMEOUT)))
        assert 2 == await journal.gates()


async def test_since_when_the_oldest_waits(tmp_path: Path) -> None:
    """Not the one that waits for nobody, however old; and nothing where nobody waits."""
    async with opened(tmp_path / "journal.db") as journal:
        for day, (root, status) in enumerate(
            (("/a", Status.PASS), ("/b", Status.NEEDS_HUMAN), ("/c", Status.TIMEOUT))
        ):
            await journal.add_project(root, root[1:], NOW)
            after, at = track(status=status), NOW + timedelta(days=day)
            await journal.commit(record(key=TrackKey(root), after=after, at=at))
        assert NOW + timedelta(days=1) == (await journal.counts()).waiting_since
        await journal.commit(record(key=TrackKey("/b"), after=track(), at=NOW + timedelta(days=5)))
        assert NOW + timedelta(days=2) == (await journal.counts()).waiting_since
        await journal.remove_project("/c", NOW)
        assert (await journal.counts()).waiting_since is None


async def test_what_happens_while_it_waits_does_not_begin_the_wait_anew(tmp_path: Path) -> None:
    """A note, and a notice that a dead sink never took: nobody acted, and it waits since it came there."""
    gate = track(status=Status.NEEDS_HUMAN)
    given_up = NoticeGivenUp(sink="webhook", count=1, first="n1", why="refused")
    async with opened(tmp_path / "journal.db") as journal:
        await journal.add_project("/a", "a", NOW)
        key = TrackKey("/a")
        await journal.commit(record(key=key, after=track(), at=NOW - timedelta(days=9)))
        await journal.commit(record(key=key, after=gate))
        noted = gate.with_note("look at the log")
        await journal.commit(record(key=key, after=noted, at=NOW + timedelta(days=1)))
        await journal.commit(record(given_up, key=key, after=noted, at=NOW + timedelta(days=2)))

        assert NOW == (await journal.counts()).waiting_since


async def test_a_story_that_was_pending_before_waits_since_people_were_told(tmp_path: Path) -> None:
    """It took its time in a line, and then its cap was reached; what happens later begins nothing anew."""
    capped, at = track().with_ledger(capped=_CAP), NOW + timedelta(days=3)
    async with opened(tmp_path / "journal.db") as journal:
        await journal.add_project("/a", "a", NOW)
        key = TrackKey("/a")
        await journal.commit(record(key=key, after=track()))
        await journal.commit(record(key=key, after=capped, at=at))
        assert at == (await journal.counts()).waiting_since  # the notice is not recorded yet
        told = Outgoing(id="n1", key=key, at=at, body="{}", sinks=(), effect=None, opens=(key, 0))
        await journal.outbox.keep([told], 0)
        await journal.commit(record(key=key, after=capped.with_note("?"), at=at + timedelta(days=1)))

        assert at == (await journal.counts()).waiting_since


_CAP = Finding(scope="story", unit="usd", cap=1.0, spent=2.0)
_LIMIT = Limit(account="claude", executor="claude", kind="limit", since=NOW, until=NOW)


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
        (
            track(status=Status.PASS).with_ledger(held_edit=HeldEdit(state=State(project="p"), why="gate")),
            1,
            0,
        ),
        (track(status=Status.NEEDS_HUMAN).with_ledger(closed=True), 0, 0),
        (Track(), 0, 0),
    ],
)
async def test_what_goes_on_when_somebody_does_something(
    tmp_path: Path, there: Track, waits: int, blocked: int
) -> None:
    """A person, or another story; as people are told of it, whatever the status in STATE.json is."""
    async with opened(tmp_path / "journal.db") as journal:
        await journal.add_project("/a", "a", NOW)
        await journal.commit(record(key=TrackKey("/a"), after=there))

        found = await journal.counts()

        assert (waits, blocked) == (found.waiting_for_people, found.blocked)
        assert waits == await journal.gates()
