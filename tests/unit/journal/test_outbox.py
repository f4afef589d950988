"""Notices in the journal: recorded once, for each sink, across lives and crashes."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.recorded import spoil
from tests.unit.journal.conftest import Golden
from tests.unit.journal.making import KEY, NOW, older, opened, record

from handoffd.engine.decision import Notify
from handoffd.engine.track import TrackKey
from handoffd.errors import StoreError
from handoffd.journal.journal import Journal
from handoffd.journal.records import Backlog, HeldBack, HeldLot, Lapsed, Outgoing, StoredMatter

TELL = Notify(notice="done", story="US-1", step="done", text="done")
BLOG = TrackKey("/srv/blog", "")
HOUR_S = 3600.0


# --- deliveries ---------------------------------------------------------------------------------------
def outgoing(name: str, key: TrackKey = KEY, *, effect: int | None = None) -> Outgoing:
    """Return a notice for two sinks."""
    return Outgoing(id=name, key=key, at=NOW, body=f"text of {name}", sinks=("mail", "web"), effect=effect)


async def waiting(journal: Journal, sink: str, after: int = 0, limit: int = 100) -> list[int]:
    """Return the numbers of the deliveries that wait for a sink."""
    return [one.number for one in await journal.outbox.waiting(sink, after, limit)]


async def test_a_notice_waits_for_each_sink_and_its_order_is_done(journal: Journal) -> None:
    """In one transaction."""
    committed = await journal.commit(record(effects=(TELL,)))
    (order,) = committed.effects
    assert NOW == order.at

    await journal.outbox.keep([outgoing("a", effect=order.id), outgoing("b", BLOG)], 1)

    assert () == await journal.pending_effects()
    mail = await journal.outbox.waiting("mail", 0, 100)
    assert [(KEY, 0), (BLOG, 0)] == [(one.key, one.tries) for one in mail]
    assert ["text of a", "text of b"] == [await journal.outbox.text(one.number) for one in mail]
    assert 2 == len(await waiting(journal, "web"))
    assert [] == await waiting(journal, "pager")
    assert await journal.outbox.text(99) is None


async def test_recording_it_again_changes_nothing(journal: Journal) -> None:
    """A repetition has the same id, and one that was delivered stays so."""
    await journal.outbox.keep([outgoing("a")], 1)
    (number,) = await waiting(journal, "mail")
    await journal.outbox.delivered(number, 2)

    await journal.outbox.keep([replace(outgoing("a"), body="another")], 3)

    assert ([], 1) == (await waiting(journal, "mail"), len(await waiting(journal, "web")))
    assert "text of a" == await journal.outbox.text(number)


async def test_notices_are_recorded_all_or_none_and_read_in_pieces(journal: Journal) -> None:
    """None when one has an unknown order; deliveries above a number, and up to a limit."""
    with pytest.raises(StoreError):
        await journal.outbox.keep([outgoing("a"), outgoing("b", effect=99)], 1)
    assert [] == await waiting(journal, "mail")

    await journal.outbox.keep([outgoing(str(n)) for n in range(5)], 1)
    numbers = await waiting(journal, "web")

    assert numbers[:2] == await waiting(journal, "web", 0, 2)
    assert numbers[2:] == await waiting(journal, "web", numbers[1])


async def test_a_failed_try_is_counted_and_reported(journal: Journal) -> None:
    """By sink: how many wait, since when, and the last error."""
    await journal.outbox.keep([outgoing("a"), replace(outgoing("b"), at=NOW + timedelta(hours=1))], 1)
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
    await journal.outbox.keep([outgoing("a")], 1)
    (number,) = await waiting(journal, "web")

    lapsed = await journal.outbox.give_up(number, "422", 5)

    assert Lapsed(key=KEY, numbers=(number,), first="a") == lapsed
    assert [] == await waiting(journal, "web")
    _, web = await journal.outbox.backlog(HOUR_S)
    assert web == Backlog(sink="web", undelivered=0, tries=0, oldest=None, last_error="422", given_up=1)
    await journal.outbox.keep([], 6 + HOUR_S)
    assert ["mail"] == [one.sink for one in await journal.outbox.backlog(HOUR_S)]


async def test_what_is_old_is_given_up_by_track(journal: Journal) -> None:
    """Of one sink, by the clock of the daemon's lives."""
    await journal.outbox.keep([outgoing("a"), outgoing("b", BLOG), outgoing("c")], 100)
    await journal.outbox.keep([outgoing("young")], 101)
    a, b, c, young = await waiting(journal, "web")

    assert () == await journal.outbox.expire("web", 100, 199)
    lapsed = {Lapsed(key=KEY, numbers=(a, c), first="a"), Lapsed(key=BLOG, numbers=(b,), first="b")}
    assert lapsed == set(await journal.outbox.expire("web", 100, 200))

    assert [young] == await waiting(journal, "web")
    assert 4 == len(await waiting(journal, "mail"))


async def test_the_next_life_goes_on_where_this_one_was(place: Path) -> None:
    """With its clock, which never goes back; what waited for a sink that is gone is dropped."""
    async with opened(place) as journal:
        assert (0.0, {}) == await journal.outbox.open(["mail", "web"])
        await journal.outbox.keep([outgoing("a"), outgoing("b")], 7.5)
        await journal.outbox.keep([], 3)
    async with opened(place) as journal:
        assert (7.5, {"web": 2}) == await journal.outbox.open(["mail", "new"])
        assert [2, 0, 0] == [len(await waiting(journal, sink)) for sink in ("mail", "web", "new")]
        assert (7.5, {"mail": 2}) == await journal.outbox.open([])


@pytest.mark.parametrize("schema", [1, 3])
async def test_a_notice_that_an_earlier_release_ordered_is_still_sent(golden: Golden, schema: int) -> None:
    """An order of before there was an outbox knows when it was decided, and is recorded like any other."""
    decided_at = datetime(2026, 1, 31, 22, 16, tzinfo=UTC)
    async with opened(golden(schema)) as journal:
        (order,) = await journal.pending_effects()
        assert (3, Notify, decided_at) == (order.id, type(order.effect), order.at)
        await journal.outbox.keep([outgoing("new", effect=order.id)], 200)
        assert () == await journal.pending_effects()
        assert "text of new" == await journal.outbox.text((await waiting(journal, "mail"))[0])


async def test_the_outbox_of_an_earlier_release_is_read_whole(golden: Golden) -> None:
    """Waiting deliveries, those that were given up, and the clock by which they age."""
    async with opened(golden(3)) as journal:
        assert (104, {}) == await journal.outbox.open(["command", "webhook"])
        assert [] == await waiting(journal, "command")
        (left,) = await journal.outbox.waiting("webhook", 0, 10)
        assert (KEY, 1) == (left.key, left.tries)
        assert '{"id": "waiting"}' == await journal.outbox.text(left.number)
        (backlog,) = await journal.outbox.backlog(HOUR_S)
        assert ("webhook", 1, 1) == (backlog.sink, backlog.undelivered, backlog.given_up)
        assert "https://example.org answered 422" == backlog.last_error


async def test_an_older_journal_can_be_read_without_being_changed(tmp_path: Path) -> None:
    """`status` without a daemon reads it as it is: without notices, held deliveries or matters."""
    async with older(1, tmp_path) as journal:
        assert () == await journal.outbox.backlog(HOUR_S)
        with pytest.raises(StoreError, match="reading only"):
            await journal.outbox.keep([outgoing("a")], 1)
    async with older(5, tmp_path) as journal:
        assert () == await journal.outbox.held_back()
        assert () == await journal.outbox.matters()


# --- held back ---------------------------------------------------------------------------------------
async def test_what_is_held_back_does_not_wait_and_does_not_grow_old(journal: Journal) -> None:
    """It is not sent, reported or given up."""
    late = replace(outgoing("b"), held={"mail": "quiet"}, at=NOW + timedelta(hours=1))
    await journal.outbox.keep([replace(outgoing("a"), held={"mail": "quiet"}), late, outgoing("c")], 1)

    assert (1, 3) == (len(await waiting(journal, "mail")), len(await waiting(journal, "web")))
    assert [1, 3] == [one.undelivered for one in await journal.outbox.backlog(60)]
    (lapsed,) = await journal.outbox.expire("mail", 1, 1000)
    assert "c" == lapsed.first
    found = await journal.outbox.held_back()
    assert (HeldBack(sink="mail", reason="quiet", count=2, oldest=NOW),) == found


async def test_one_takes_the_place_of_many_in_one_transaction(journal: Journal) -> None:
    """It replaces notices up to a number: later ones are for the next."""
    outbox = journal.outbox
    held = [replace(outgoing(name), held={"mail": "quiet"}, sinks=("mail",)) for name in "abc"]
    await outbox.keep(held[:2], 1)
    lot = await outbox.held_lot("mail", "quiet", 1)
    assert lot is not None
    assert HeldLot(upto=lot.upto, count=2, bodies=("text of a",)) == lot
    await outbox.keep(held[2:], 2)

    await outbox.fold("mail", "quiet", lot.upto, replace(outgoing("digest"), sinks=("mail",)), 3)

    (number,) = await waiting(journal, "mail")
    assert "text of digest" == await outbox.text(number)
    (left,) = await outbox.held_back()
    assert 1 == left.count
    assert await outbox.held_lot("mail", "digest", 9) is None


async def test_held_back_goes_with_its_sink(journal: Journal) -> None:
    """A sink that is taken out of the settings gets nothing more."""
    await journal.outbox.keep([replace(outgoing("a"), held={"mail": "quiet"})], 1)
    _, dropped = await journal.outbox.open(["web"])

    assert ({"mail": 1}, ()) == (dropped, await journal.outbox.held_back())


# --- matters -----------------------------------------------------------------------------------------
GATE = replace(outgoing("gate"), opens=(KEY, 0.0), sinks=())


async def test_a_matter_is_opened_with_its_notice_and_once(journal: Journal) -> None:
    """Also when no sink gets it at first; a repetition opens nothing."""
    outbox = journal.outbox
    matter = StoredMatter(key=KEY, notice="gate", since=NOW, reached_min=0)
    assert (matter,) == await outbox.keep([GATE, outgoing("other")], 1)
    assert () == await outbox.keep([GATE], 2)
    assert (matter,) == await outbox.matters()

    await outbox.settle(["gate", "other"])
    assert () == await outbox.keep([GATE], 3)
    assert () == await outbox.matters()


async def test_how_far_the_ladder_is_climbed_is_recorded_with_the_reminder(journal: Journal) -> None:
    """All or nothing; of a matter that is over, nothing."""
    await journal.outbox.keep([GATE], 1)
    await journal.outbox.keep([replace(outgoing("reminder"), climbed=("gate", 60.0))], 2)
    await journal.outbox.keep([replace(outgoing("more"), climbed=("other", 90.0))], 2)

    assert [60.0] == [matter.reached_min for matter in await journal.outbox.matters()]


async def test_a_matter_of_a_project_is_apart_from_those_its_tracks_have(journal: Journal) -> None:
    """And may be one without reminders."""
    trouble = replace(GATE, id="trouble", opens=(TrackKey(KEY.project, "~condition"), math.inf))
    await journal.outbox.keep([GATE, trouble], 1)

    found = {one.notice: (one.key.track, one.reached_min) for one in await journal.outbox.matters()}
    assert {"gate": (KEY.track, 0), "trouble": ("~condition", math.inf)} == found


async def test_the_next_matter_of_a_track_takes_the_place_of_the_last(journal: Journal) -> None:
    """Other tracks have their own; the oldest comes first."""
    later = NOW + timedelta(hours=1)
    await journal.outbox.keep([GATE, replace(GATE, id="blog", opens=(BLOG, 0.0), at=later)], 1)
    await journal.outbox.keep([replace(GATE, id="next", at=later + timedelta(hours=1))], 2)

    assert ["blog", "next"] == [matter.notice for matter in await journal.outbox.matters()]


async def read(journal: Journal, notice: str) -> tuple[str, bool, bool] | None:
    """Return the text of a matter, whether its track is known, and whether its project is supervised."""
    now = await journal.outbox.matter_now(notice)
    return None if now is None else (now.body, now.track is not None, now.supervised)


async def test_a_matter_is_read_with_its_track_as_it_is_now(journal: Journal) -> None:
    """As decided last; a project that was removed is not supervised."""
    await journal.outbox.keep([GATE, replace(GATE, id="blog", key=BLOG, opens=(BLOG, 0.0))], 1)
    assert await read(journal, "none") is None
    assert ("text of gate", False, False) == await read(journal, "gate")

    await journal.add_project(KEY.project, "shop", NOW)
    await journal.commit(record())
    assert ("text of gate", True, True) == await read(journal, "gate")
    await journal.remove_project(KEY.project, NOW)
    assert ("text of gate", True, False) == await read(journal, "gate")


async def test_a_matter_stays_open_when_its_track_was_changed_by_hand(journal: Journal, place: Path) -> None:
    """Also when the track cannot be read, or is gone."""
    await journal.outbox.keep([GATE], 1)
    await journal.add_project(KEY.project, "shop", NOW)
    await journal.commit(record())
    for change in ("UPDATE tracks SET body = '{'", "DELETE FROM tracks"):
        spoil(place, change)

        now = await journal.outbox.matter_now("gate")
        assert now is not None
        assert (None, True, True) == (now.track, now.unsound, now.supervised)
        assert 0 == (await journal.counts()).waiting_for_people


async def test_a_journal_of_schema_8_opens_with_its_matters(golden: Golden) -> None:
    """And with its held deliveries."""
    async with opened(golden(8)) as journal:
        assert [("held", 60.0)] == [(one.notice, one.reached_min) for one in await journal.outbox.matters()]
        assert [("webhook", "quiet", 1)] == [
            (one.sink, one.reason, one.count) for one in await journal.outbox.held_back()
        ]
