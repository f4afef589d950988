"""Notices in the journal: recorded once, for each sink apart, across lives and crashes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.unit.journal.making import GOLDEN, KEY, NOW, opened, record

from handoffd.engine.decision import Notify
from handoffd.engine.track import TrackKey
from handoffd.errors import StoreError
from handoffd.journal.journal import Journal
from handoffd.journal.records import Backlog, Lapsed, Outgoing

TELL = Notify(notice="done", story="US-1", step="done", text="done")
BLOG = TrackKey("/srv/blog", "")
HOUR_S = 3600.0


def outgoing(name: str, key: TrackKey = KEY, *, effect: int | None = None) -> Outgoing:
    """Return a notice for two sinks."""
    return Outgoing(id=name, key=key, at=NOW, body=f"text of {name}", sinks=("mail", "web"), effect=effect)


async def waiting(journal: Journal, sink: str, after: int = 0, limit: int = 100) -> list[int]:
    """Return the numbers of what waits for a sink."""
    return [one.number for one in await journal.outbox.waiting(sink, after, limit)]


async def test_a_notice_waits_for_each_sink_and_its_order_is_done(tmp_path: Path) -> None:
    """In one transaction."""
    async with opened(tmp_path / "journal.db") as journal:
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


async def test_recording_it_again_changes_nothing(tmp_path: Path) -> None:
    """A repetition has the same id, and one that was delivered stays so."""
    async with opened(tmp_path / "journal.db") as journal:
        await journal.outbox.keep([outgoing("a")], 1)
        (number,) = await waiting(journal, "mail")
        await journal.outbox.delivered(number, 2)

        await journal.outbox.keep([replace(outgoing("a"), body="another")], 3)

        assert ([], 1) == (await waiting(journal, "mail"), len(await waiting(journal, "web")))
        assert "text of a" == await journal.outbox.text(number)


async def test_a_notice_whose_order_is_unknown_is_not_recorded(tmp_path: Path) -> None:
    """All or nothing."""
    async with opened(tmp_path / "journal.db") as journal:
        with pytest.raises(StoreError):
            await journal.outbox.keep([outgoing("a"), outgoing("b", effect=99)], 1)

        assert [] == await waiting(journal, "mail")


async def test_what_waits_is_read_in_pieces(tmp_path: Path) -> None:
    """Above a number, at most so many."""
    async with opened(tmp_path / "journal.db") as journal:
        await journal.outbox.keep([outgoing(str(n)) for n in range(5)], 1)
        numbers = await waiting(journal, "web")

        assert numbers[:2] == await waiting(journal, "web", 0, 2)
        assert numbers[2:] == await waiting(journal, "web", numbers[1])


async def test_a_failed_try_is_counted_and_told(tmp_path: Path) -> None:
    """Per sink: how much, since when, why at last."""
    async with opened(tmp_path / "journal.db") as journal:
        await journal.outbox.keep([outgoing("a"), replace(outgoing("b"), at=NOW + timedelta(hours=1))], 1)
        one, two = await waiting(journal, "web")
        await journal.outbox.failed(one, "no \udcff route", 2)
        await journal.outbox.failed(two, "x" * 5000, 3)
        await journal.outbox.failed(one, "no route", 4)
        (mail, _) = await waiting(journal, "mail")
        await journal.outbox.delivered(mail, 4)

        assert [2, 1] == [found.tries for found in await journal.outbox.waiting("web", 0, 9)]
        left, failing = await journal.outbox.backlog(HOUR_S)
        assert Backlog(
            sink="mail", undelivered=1, tries=0, oldest=NOW + timedelta(hours=1), last_error=None, given_up=0
        ) == left  # fmt: skip
        assert Backlog(
            sink="web", undelivered=2, tries=3, oldest=NOW, last_error="no route", given_up=0
        ) == failing  # fmt: skip


async def test_one_that_will_never_be_taken_is_given_up(tmp_path: Path) -> None:
    """And told of for a while of the daemon's life."""
    async with opened(tmp_path / "journal.db") as journal:
        await journal.outbox.keep([outgoing("a")], 1)
        (number,) = await waiting(journal, "web")

        lapsed = await journal.outbox.give_up(number, "422", 5)

        assert Lapsed(key=KEY, numbers=(number,), first="a") == lapsed
        assert [] == await waiting(journal, "web")
        _, web = await journal.outbox.backlog(HOUR_S)
        assert ("web", 0, None, "422", 1) == (
            web.sink, web.undelivered, web.oldest, web.last_error, web.given_up,
        )  # fmt: skip
        await journal.outbox.keep([], 6 + HOUR_S)
        assert ["mail"] == [one.sink for one in await journal.outbox.backlog(HOUR_S)]


async def test_what_is_old_is_given_up_by_track(tmp_path: Path) -> None:
    """Of one sink, by the clock of the daemon's lives."""
    async with opened(tmp_path / "journal.db") as journal:
        await journal.outbox.keep([outgoing("a"), outgoing("b", BLOG), outgoing("c")], 100)
        await journal.outbox.keep([outgoing("young")], 101)
        a, b, c, young = await waiting(journal, "web")

        assert () == await journal.outbox.expire("web", 100, 199)
        assert {
            Lapsed(key=KEY, numbers=(a, c), first="a"), Lapsed(key=BLOG, numbers=(b,), first="b"),
        } == set(await journal.outbox.expire("web", 100, 200))  # fmt: skip

        assert [young] == await waiting(journal, "web")
        assert 4 == len(await waiting(journal, "mail"))


async def test_the_next_life_goes_on_where_this_one_was(tmp_path: Path) -> None:
    """With its clock, which never goes back; what waited for a sink that is gone is dropped."""
    path = tmp_path / "journal.db"
    async with opened(path) as journal:
        assert (0.0, {}) == await journal.outbox.open(["mail", "web"])
        await journal.outbox.keep([outgoing("a"), outgoing("b")], 7.5)
        await journal.outbox.keep([], 3)
    async with opened(path) as journal:
        assert (7.5, {"web": 2}) == await journal.outbox.open(["mail", "new"])
        assert (2, 0, 0) == (
            len(await waiting(journal, "mail")), len(await waiting(journal, "web")),
            len(await waiting(journal, "new")),
        )  # fmt: skip
        assert (7.5, {"mail": 2}) == await journal.outbox.open([])


@pytest.mark.parametrize("schema", ["schema-1.db", "schema-3.db"])
async def test_what_an_earlier_release_left_to_tell_is_still_to_be_told(schema: str, tmp_path: Path) -> None:
    """An order of before there was an outbox knows when it was decided, and is recorded like any other."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / schema, path)

    async with opened(path) as journal:
        (order,) = await journal.pending_effects()
        assert (3, Notify, datetime(2026, 1, 31, 22, 16, tzinfo=UTC)) == (
            order.id, type(order.effect), order.at,
        )  # fmt: skip
        await journal.outbox.keep([outgoing("new", effect=order.id)], 200)
        assert () == await journal.pending_effects()
        assert "text of new" == await journal.outbox.text((await waiting(journal, "mail"))[0])


async def test_the_outbox_of_an_earlier_release_is_read_whole(tmp_path: Path) -> None:
    """What waits, what was given up, and the clock by which it ages."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / "schema-3.db", path)

    async with opened(path) as journal:
        assert (104, {}) == await journal.outbox.open(["command", "webhook"])
        assert [] == await waiting(journal, "command")
        (left,) = await journal.outbox.waiting("webhook", 0, 10)
        assert (TrackKey("/srv/shop"), 1, '{"id": "waiting"}') == (
            left.key, left.tries, await journal.outbox.text(left.number),
        )  # fmt: skip
        (backlog,) = await journal.outbox.backlog(HOUR_S)
        assert ("webhook", 1, 1, "https://example.org answered 422") == (
            backlog.sink, backlog.undelivered, backlog.given_up, backlog.last_error,
        )  # fmt: skip


async def test_an_older_journal_can_be_looked_at_without_being_changed(tmp_path: Path) -> None:
    """`status` without a daemon reads it as it is."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / "schema-1.db", path)
    journal = await Journal.open_to_read(path)
    try:
        assert () == await journal.outbox.backlog(HOUR_S)
        with pytest.raises(StoreError, match="reading only"):
            await journal.outbox.keep([outgoing("a")], 1)
    finally:
        await journal.close()
