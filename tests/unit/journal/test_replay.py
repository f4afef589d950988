"""The journal as a replay reads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.playbook import with_rule
from tests.support.recorded import BLOG, SHOP, RecordedPlay, spoil, story, write
from tests.unit.journal import flowing
from tests.unit.journal.conftest import Golden
from tests.unit.journal.making import record

from handoffd.engine.flow.events import CommandEnded, FlowStarted, Reason
from handoffd.engine.flow.flow import Flow, Node, NodeState
from handoffd.engine.track import Track
from handoffd.errors import StoreError
from handoffd.journal.journal import Journal
from handoffd.journal.replay import Entry, RecordedFlow, Recordings, replay_flow, unlike_flow


@pytest.fixture
def play() -> RecordedPlay:
    """A story."""
    return story()


@pytest.fixture
def path(tmp_path: Path, play: RecordedPlay) -> Path:
    """Its journal, with that of another project under another table."""
    path = tmp_path / "journal.db"
    write(path, play, story(BLOG, with_rule("impl", max_attempts=2)))
    return path


@pytest.fixture
def source(path: Path) -> Iterator[Recordings]:
    """That journal, opened for a replay."""
    with closing(Recordings(path)) as lent:
        yield lent


def entry(path: Path, seq: int) -> Entry:
    """Return one event."""
    with closing(Recordings(path)) as source:
        (found,) = source.page(seq - 1, seq, None)
    return found


def test_an_event_comes_with_all_it_was_decided_with(source: Recordings, play: RecordedPlay) -> None:
    """Event, step table, time, result, orders and grounds, as they were recorded."""
    entries = source.page(0, len(play.records), None)

    for found, kept in zip(entries, play.records, strict=True):
        assert found.recorded is not None
        assert (kept.at, kept.rules) == (found.recorded.now, found.recorded.rules)
        for part in ("event", "result", "effects", "why", "grounds"):
            assert getattr(kept, part) == getattr(found.recorded, part)


def test_pages_go_on_where_the_last_one_ended_and_keep_to_one_project(source: Recordings) -> None:
    """No event twice, none left out."""
    newest = source.newest()

    whole = [one.seq for one in source.page(0, newest, None)]
    blog = source.page(0, newest, BLOG.project)

    assert list(range(1, newest + 1)) == whole
    assert whole[3:] == [one.seq for one in source.page(3, newest, None)]
    assert {BLOG} == {one.key for one in blog}
    assert () == source.page(newest, newest, None)
    assert {"/srv/blog": "blog", "/srv/shop": "shop"} == source.roots()


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ('UPDATE events SET event = \'{"kind":"ended"}\' WHERE seq = 4', "it cannot be read"),
        ("UPDATE events SET event = '[' WHERE seq = 4", "it cannot be read"),
        ("UPDATE events SET kind = 'approved' WHERE seq = 4", "it is kept as approved"),
        ("UPDATE events SET at = 'noon' WHERE seq = 4", "it cannot be read"),
        ("UPDATE events SET rulebook = NULL WHERE seq = 4", "does not say by which"),
        ("UPDATE events SET rulebook = 9 WHERE seq = 4", "step table 9 is missing"),
        ("UPDATE rulebooks SET body = replace(body, '5', '6')", "was changed"),
        ("UPDATE effects SET effect = '{}', seq = 4", "it cannot be read"),
    ],
)
def test_an_event_that_cannot_be_read_is_reported(path: Path, statement: str, fault: str) -> None:
    """Finding such rows is what a replay is for."""
    spoil(path, statement)

    found = entry(path, 4)

    assert found.recorded is None
    assert fault in (found.fault or "")


def test_tracks_are_found_as_the_tables_hold_them(path: Path, play: RecordedPlay) -> None:
    """One whose body cannot be read is there, without it."""
    spoil(path, f"UPDATE tracks SET body = '{{' WHERE project = '{BLOG.project}'")

    with closing(Recordings(path)) as source:
        kept = {one.key: one for one in source.tracks(None)}
        assert [SHOP] == [one.key for one in source.tracks(SHOP.project)]

    assert play.track == kept[SHOP].track
    assert len(play.records) == kept[SHOP].seq
    assert None is kept[BLOG].track


async def test_the_last_look_sees_one_instant(journal: Journal, place: Path) -> None:
    """A writer is not kept waiting, and its commit is seen afterwards."""
    await journal.commit(record())
    with closing(Recordings(place)) as source:
        with source.still():
            assert 1 == source.newest()
            await journal.commit(record())
            assert 1 == source.newest()
        assert 2 == source.newest()


def test_a_journal_of_before_is_replayed_from_where_it_was_migrated(golden: Golden) -> None:
    """Its events do not say by which table they were decided, but its tracks as they were then are known."""
    path = golden(1)
    with pytest.raises(StoreError) as caught:
        Recordings(path)
    assert "OLDER_SCHEMA" == caught.value.code

    write(path)

    with closing(Recordings(path)) as source:
        beginnings = source.beginnings()
        assert {one.key: one.track for one in source.tracks(None)} == {
            key: track for key, (_, track) in beginnings.items()
        }


def test_only_a_journal_is_replayed(tmp_path: Path) -> None:
    """Any other file is refused with a code, and nothing is made."""
    missing, empty, foreign = tmp_path / "none.db", tmp_path / "empty.db", tmp_path / "foreign.db"
    empty.touch()
    foreign.write_text("not a database, but long enough to look like one" * 100)

    for path, code in ((missing, "STORE_ERROR"), (empty, "NOT_A_JOURNAL"), (foreign, "NOT_A_JOURNAL")):
        with pytest.raises(StoreError) as caught:
            Recordings(path)
        assert code == caught.value.code
    assert not missing.exists()


def test_one_track_is_asked_for_its_beginning(path: Path) -> None:
    """As all of them are; without a snapshot it is the empty track."""
    columns = "project, track, seq, body"
    spoil(path, f"INSERT INTO snapshots SELECT {columns} FROM tracks WHERE project = '/srv/shop'")
    with closing(Recordings(path)) as source:
        assert source.beginnings()[SHOP] == source.beginning(SHOP)
        assert (0, Track()) == source.beginning(BLOG)


# --- flows --------------------------------------------------------------------------------------------
def recorded_flow(at: int = 4) -> tuple[Flow, RecordedFlow]:
    """Return a decision of a flow as it is recorded, with the flow before it."""
    play = flowing.played(11)
    one = play.records[at]
    return one.before, RecordedFlow(
        event=one.event, plan=play.plan, now=one.at, orders=one.orders, reasons=one.reasons, past=one.past
    )


def test_a_decision_about_a_flow_is_the_same_again() -> None:
    """Whatever it is about."""
    for at, one in enumerate(flowing.played(11).records):
        before, recorded = recorded_flow(at)
        assert (one.after, ()) == (
            replay_flow(before, recorded).flow, replay_flow(before, recorded).differences
        )  # fmt: skip


def test_what_a_decision_about_a_flow_says_otherwise_is_named() -> None:
    """A list by what it is about, else one by one; no decision is a difference, too."""
    before, recorded = recorded_flow(0)
    node = Node(id="t0", scope="", place="", task="t0", state=NodeState.OPEN)
    (order,) = recorded.orders
    again: Any = replace(order, number=7)
    for changed, what in (
        (replace(recorded, orders=()), "orders"),
        (replace(recorded, orders=(again,)), f"orders: {order.kind} {again.node}"),
        (replace(recorded, reasons=(Reason(node="t0", text="because"),)), "reasons"),
        (replace(recorded, past=(node,)), "past"),
        (replace(recorded, event=CommandEnded(node="t0", visit=9, exit=0)), "decision"),
        (replace(recorded, event=FlowStarted(params=None)), "decision"),  # type: ignore[arg-type]
    ):
        assert what in [one.what for one in replay_flow(before, changed).differences]


def test_flows_that_differ_are_told_entry_by_entry() -> None:
    """In the words of their fields."""
    one = flowing.played(11).records[5].after
    other = replace(one, visits={**one.visits, "x": 1}, aborts=2)

    assert ["visits.x", "aborts"] == [difference.what for difference in unlike_flow(one, other)]
