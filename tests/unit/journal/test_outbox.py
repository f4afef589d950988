"""Notices in the journal: recorded once, for each sink, across lives and crashes."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.notices import NOTICE
from tests.support.recorded import spoil
from tests.unit.journal import flowing
from tests.unit.journal.conftest import Golden
from tests.unit.journal.making import KEY, NOW, older, opened, parcel, record, track

from handoffd.engine.decision import Notify
from handoffd.engine.notice import Expired, Held, Matter, Opened
from handoffd.engine.track import TrackKey
from handoffd.errors import StoreError
from handoffd.journal.journal import Journal
from handoffd.journal.records import Backlog
from handoffd.protocol.state import Status

TELL = Notify(notice="done", story="US-1", step="done", text="done")
BLOG = TrackKey("/srv/blog", "")
HOUR_S = 3600.0


# --- deliveries ---------------------------------------------------------------------------------------
both = partial(parcel, sinks=("mail", "web"))
"""Makes a notice for two sinks."""


async def told(journal: Journal, number: int) -> str | None:
    """Return the id of a notice as it is read."""
    notice = await journal.outbox.read(number)
    return None if notice is None else notice.id


async def waiting(journal: Journal, sink: str, after: int = 0, limit: int = 100) -> list[int]:
    """Return the numbers of the deliveries that wait for a sink."""
    return [one.number for one in await journal.outbox.waiting(sink, after, limit)]


async def test_a_notice_waits_for_each_sink_and_its_order_is_done(journal: Journal) -> None:
    """In one transaction."""
    committed = await journal.commit(record(effects=(TELL,)))
    (order,) = committed.effects
    assert NOW == order.at

    await journal.outbox.keep([both("a", order=order.id), both("b", BLOG)], 1)

    assert () == await journal.pending_effects()
    mail = await journal.outbox.waiting("mail", 0, 100)
    assert [(KEY, 0), (BLOG, 0)] == [(one.lane, one.tries) for one in mail]
    assert ["a", "b"] == [await told(journal, one.number) for one in mail]
    assert 2 == len(await waiting(journal, "web"))
    assert [] == await waiting(journal, "pager")
    assert await journal.outbox.read(99) is None


async def test_recording_it_again_changes_nothing(journal: Journal) -> None:
    """A repetition has the same id, and one that was delivered stays so."""
    await journal.outbox.keep([both("a")], 1)
    (number,) = await waiting(journal, "mail")
    await journal.outbox.delivered(number, 2)

    again = both("a")
    await journal.outbox.keep([replace(again, notice=replace(again.notice, text="another"))], 3)

    assert ([], 1) == (await waiting(journal, "mail"), len(await waiting(journal, "web")))
    kept = await journal.outbox.read(number)
    assert kept is not None
    assert NOTICE.text == kept.text


async def test_notices_are_recorded_all_or_none_and_read_in_pieces(journal: Journal) -> None:
    """None when one has an unknown order; deliveries above a number, and up to a limit."""
    with pytest.raises(StoreError):
        await journal.outbox.keep([parcel("a"), parcel("b", order=99)], 1)
    assert [] == await waiting(journal, "mail")

    await journal.outbox.keep([parcel(str(n)) for n in range(5)], 1)
    numbers = await waiting(journal, "web")

    assert numbers[:2] == await waiting(journal, "web", 0, 2)
    assert numbers[2:] == await waiting(journal, "web", numbers[1])


async def test_a_failed_try_is_counted_and_reported(journal: Journal) -> None:
    """By sink: how many wait, since when, and the last error."""
    await journal.outbox.keep([both("a"), both("b", at=NOW + timedelta(hours=1))], 1)
    one, two = await waiting(journal, "web")
    await journal.outbox.failed(one, "no \udcff route", 2)
    await journal.outbox.failed(two, "x" * 5000, 3)
    await journal.outbox.failed(one, "no route", 4)
    (mail, _) = await waiting(journal, "mail")
    await journal.outbox.delivered(mail, 4)

    assert [2, 1] == [found.tries for found in await journal.outbox.waiting("web", 0, 9)]
    left, failing = await journal.outbox.backlog(HOUR_S)
    late = NOW + timedelta(hours=1)
    assert left == Backlog(sink="mail", undelivered=1, tries=0, oldest=late, last_error=None, given_up=0)
    assert failing == Backlog(
        sink="web", undelivered=2, tries=3, oldest=NOW, last_error="no route", given_up=0
    )


async def test_one_that_will_never_be_taken_is_given_up(journal: Journal) -> None:
    """The backlog shows it for a while of the daemon's life."""
    await journal.outbox.keep([both("a")], 1)
    (number,) = await waiting(journal, "web")

    lapsed = await journal.outbox.give_up(number, "422", 5)

    assert Expired(lane=KEY, numbers=(number,), first="a") == lapsed
    assert [] == await waiting(journal, "web")
    _, web = await journal.outbox.backlog(HOUR_S)
    assert web == Backlog(sink="web", undelivered=0, tries=0, oldest=None, last_error="422", given_up=1)
    await journal.outbox.keep([], 6 + HOUR_S)
    assert ["mail"] == [one.sink for one in await journal.outbox.backlog(HOUR_S)]


async def test_what_is_old_is_given_up_by_track(journal: Journal) -> None:
    """Of one sink, by the clock of the daemon's lives."""
    await journal.outbox.keep([both("a"), both("b", BLOG), both("c")], 100)
    await journal.outbox.keep([both("young")], 101)
    a, b, c, young = await waiting(journal, "web")

    assert () == await journal.outbox.expire("web", 100, 199)
    lapsed = {Expired(lane=KEY, numbers=(a, c), first="a"), Expired(lane=BLOG, numbers=(b,), first="b")}
    assert lapsed == set(await journal.outbox.expire("web", 100, 200))

    assert [young] == await waiting(journal, "web")
    assert 4 == len(await waiting(journal, "mail"))


async def test_the_next_life_goes_on_where_this_one_was(place: Path) -> None:
    """With its clock, which never goes back; what waited for a sink that is gone is dropped."""
    async with opened(place) as journal:
        assert Opened(lived_s=0, dropped={}) == await journal.outbox.open(["mail", "web"])
        await journal.outbox.keep([both("a"), both("b")], 7.5)
        await journal.outbox.keep([], 3)
    async with opened(place) as journal:
        assert Opened(lived_s=7.5, dropped={"web": 2}) == await journal.outbox.open(["mail", "new"])
        assert [2, 0, 0] == [len(await waiting(journal, sink)) for sink in ("mail", "web", "new")]
        assert Opened(lived_s=7.5, dropped={"mail": 2}) == await journal.outbox.open([])


@pytest.mark.parametrize("schema", [1, 3])
async def test_a_notice_that_an_earlier_release_ordered_is_still_sent(golden: Golden, schema: int) -> None:
    """An order of before there was an outbox knows when it was decided, and is recorded like any other."""
    decided_at = datetime(2026, 1, 31, 22, 16, tzinfo=UTC)
    async with opened(golden(schema)) as journal:
        (order,) = await journal.pending_effects()
        assert (3, Notify, decided_at) == (order.id, type(order.effect), order.at)
        await journal.outbox.keep([both("new", order=order.id)], 200)
        assert () == await journal.pending_effects()
        assert "new" == await told(journal, (await waiting(journal, "mail"))[0])


async def test_the_outbox_of_an_earlier_release_is_read_whole(golden: Golden) -> None:
    """Waiting deliveries, those that were given up, and the clock by which they age."""
    async with opened(golden(3)) as journal:
        assert Opened(lived_s=104, dropped={}) == await journal.outbox.open(["command", "webhook"])
        assert [] == await waiting(journal, "command")
        (left,) = await journal.outbox.waiting("webhook", 0, 10)
        assert (KEY, 1) == (left.lane, left.tries)
        (backlog,) = await journal.outbox.backlog(HOUR_S)
        assert ("webhook", 1, 1) == (backlog.sink, backlog.undelivered, backlog.given_up)
        assert "https://example.org answered 422" == backlog.last_error


async def test_an_older_journal_can_be_read_without_being_changed(tmp_path: Path) -> None:
    """`status` without a daemon reads it as it is: without notices, held deliveries or matters."""
    async with older(1, tmp_path) as journal:
        assert () == await journal.outbox.backlog(HOUR_S)
        with pytest.raises(StoreError, match="reading only"):
            await journal.outbox.keep([parcel("a")], 1)
    async with older(5, tmp_path) as journal:
        assert () == await journal.outbox.held()
        assert () == await journal.outbox.matters()


# --- held back ---------------------------------------------------------------------------------------
async def test_what_is_held_back_does_not_wait_and_does_not_grow_old(journal: Journal) -> None:
    """It is not sent, reported or given up."""
    late = both("b", at=NOW + timedelta(hours=1), held={"mail": "quiet"})
    first = both("a", held={"mail": "quiet"})
    await journal.outbox.keep([first, late, both("c")], 1)

    assert (1, 3) == (len(await waiting(journal, "mail")), len(await waiting(journal, "web")))
    assert [1, 3] == [one.undelivered for one in await journal.outbox.backlog(60)]
    (lapsed,) = await journal.outbox.expire("mail", 1, 1000)
    assert "c" == lapsed.first
    found = await journal.outbox.held()
    assert (Held(sink="mail", reason="quiet", count=2, since=NOW),) == found


async def test_one_takes_the_place_of_many_in_one_transaction(journal: Journal) -> None:
    """It replaces notices up to a number: later ones are for the next."""
    outbox = journal.outbox
    held = [parcel(name, held={"mail": "quiet"}, sinks=("mail",)) for name in "abc"]
    await outbox.keep(held[:2], 1)
    lot = await outbox.lot("mail", "quiet", 1)
    assert lot is not None
    assert (2, ["a"]) == (lot.count, [notice.id for notice in lot.notices])
    await outbox.keep(held[2:], 2)

    await outbox.fold("mail", "quiet", lot.upto, parcel("digest").notice, 3)

    (number,) = await waiting(journal, "mail")
    assert "digest" == await told(journal, number)
    (left,) = await outbox.held()
    assert 1 == left.count
    assert await outbox.lot("mail", "digest", 9) is None


async def test_held_back_goes_with_its_sink(journal: Journal) -> None:
    """A sink that is taken out of the settings gets nothing more."""
    await journal.outbox.keep([both("a", held={"mail": "quiet"})], 1)
    found = await journal.outbox.open(["web"])

    assert ({"mail": 1}, ()) == (found.dropped, await journal.outbox.held())


# --- matters -----------------------------------------------------------------------------------------
GATE = parcel("gate", sinks=(), opens=KEY)


async def test_a_matter_is_opened_with_its_notice_and_once(journal: Journal) -> None:
    """Also when no sink gets it at first; a repetition opens nothing."""
    outbox = journal.outbox
    matter = Matter(lane=KEY, notice="gate", since=NOW)
    assert (matter,) == await outbox.keep([GATE, parcel("other")], 1)
    assert () == await outbox.keep([GATE], 2)
    assert (matter,) == await outbox.matters()

    await outbox.settle(["gate", "other"])
    assert () == await outbox.keep([GATE], 3)
    assert () == await outbox.matters()


async def test_how_far_the_ladder_is_climbed_is_recorded_with_the_reminder(journal: Journal) -> None:
    """All or nothing; of a matter that is over, nothing."""
    await journal.outbox.keep([GATE], 1)
    await journal.outbox.keep([parcel("reminder", climbed=("gate", 60.0))], 2)
    await journal.outbox.keep([parcel("more", climbed=("other", 90.0))], 2)

    assert [60.0] == [matter.reached_min for matter in await journal.outbox.matters()]


async def test_a_matter_of_a_project_is_apart_from_those_its_tracks_have(journal: Journal) -> None:
    """And may be one without reminders."""
    trouble = parcel("trouble", opens=TrackKey(KEY.project, "~condition"), reached_min=math.inf)
    await journal.outbox.keep([GATE, trouble], 1)

    found = {one.notice: (one.lane[1], one.reached_min) for one in await journal.outbox.matters()}
    assert {"gate": (KEY.track, 0), "trouble": ("~condition", math.inf)} == found


async def test_the_next_matter_of_a_track_takes_the_place_of_the_last(journal: Journal) -> None:
    """Other tracks have their own; the oldest comes first."""
    later = NOW + timedelta(hours=1)
    await journal.outbox.keep([GATE, parcel("blog", at=later, opens=BLOG)], 1)
    await journal.outbox.keep([parcel("next", at=later + timedelta(hours=1), opens=KEY)], 2)

    assert ["blog", "next"] == [matter.notice for matter in await journal.outbox.matters()]


async def waits(journal: Journal, notice: str = "gate") -> bool:
    """Return whether a matter still waits."""
    return await journal.outbox.outlook(notice) is not None


async def test_the_latest_state_of_its_track_decides_whether_a_matter_waits(journal: Journal) -> None:
    """And whether its project is supervised; one about the project as a whole waits until it is settled."""
    itself = KEY._replace(track="")
    gate = parcel("gate", opens=KEY)
    gate = replace(gate, notice=replace(gate.notice, story="US-1", step="bdd", at=NOTICE.at))
    await journal.outbox.keep([gate, parcel("trust", itself, opens=itself)], 1)
    assert not await waits(journal, "none")
    assert [False, False] == [await waits(journal, name) for name in ("gate", "trust")]

    await journal.add_project(KEY.project, "shop", NOW)
    assert [False, True] == [await waits(journal, name) for name in ("gate", "trust")]  # no track is known
    await journal.commit(record(after=track(status=Status.NEEDS_HUMAN)))
    assert gate.notice == await journal.outbox.outlook("gate")
    await journal.commit(record(after=track(status=Status.RUNNING)))
    assert [False, True] == [await waits(journal, name) for name in ("gate", "trust")]
    await journal.commit(record(after=track(status=Status.NEEDS_HUMAN)))
    await journal.remove_project(KEY.project, NOW)
    assert [False, False] == [await waits(journal, name) for name in ("gate", "trust")]


async def test_a_matter_stays_open_when_its_track_was_changed_by_hand(journal: Journal, place: Path) -> None:
    """Also when the track cannot be read, or is gone."""
    await journal.outbox.keep([GATE], 1)
    await journal.add_project(KEY.project, "shop", NOW)
    await journal.commit(record())
    assert not await waits(journal)
    for change in ("UPDATE tracks SET body = '{'", "DELETE FROM tracks"):
        spoil(place, change)
        assert await waits(journal)
        assert 0 == (await journal.counts()).waiting_for_people


async def test_an_unreadable_notice_is_none(journal: Journal, place: Path) -> None:
    """It waits for no person; among those held back it is left out, and counted."""
    itself = KEY._replace(track="")
    await journal.add_project(KEY.project, "shop", NOW)
    held = [parcel(name, sinks=("mail",), held={"mail": "quiet"}) for name in "ab"]
    await journal.outbox.keep([parcel("odd", itself, opens=itself), *held], 1)
    (number,) = await waiting(journal, "web")
    assert "odd" == await told(journal, number)
    spoil(place, "UPDATE notices SET body = '{' WHERE id IN ('odd', 'a')")

    assert (None, False) == (await told(journal, number), await waits(journal, "odd"))
    lot = await journal.outbox.lot("mail", "quiet", 2)
    assert lot is not None
    assert (2, ["b"]) == (lot.count, [notice.id for notice in lot.notices])


async def test_a_journal_of_schema_8_opens_with_its_matters(golden: Golden) -> None:
    """And with its held deliveries."""
    async with opened(golden(8)) as journal:
        assert [("held", 60.0)] == [(one.notice, one.reached_min) for one in await journal.outbox.matters()]
        assert [("webhook", "quiet", 1)] == [
            (one.sink, one.reason, one.count) for one in await journal.outbox.held()
        ]


async def test_the_matter_of_a_flow_is_open_while_it_waits_for_a_person(journal: Journal) -> None:
    """It is over when the flow asks no person any more."""
    play = flowing.played(11)
    await journal.add_project(KEY.project, "shop", NOW)
    await journal.outbox.open(["web"])
    await journal.outbox.keep([parcel("asks", flowing.FLOW, opens=flowing.FLOW)], 1)
    assert None is await journal.outbox.outlook("asks")
    for one in play.records:
        await journal.commit_flow(one)
        waits = bool(one.after.asking or one.after.paused_by) and one.after.ended is None
        assert waits == (await journal.outbox.outlook("asks") is not None)
