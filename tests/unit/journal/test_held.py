"""Deliveries that are held back, in the journal."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from tests.unit.journal.making import KEY, NOW, older, opened
from tests.unit.journal.test_outbox import outgoing, waiting

from handoffd.journal.records import HeldBack, HeldLot


async def test_what_is_held_back_does_not_wait_and_does_not_grow_old(tmp_path: Path) -> None:
    """Nobody sends it, warns of it or gives it up."""
    async with opened(tmp_path / "journal.db") as journal:
        late = replace(outgoing("b"), held={"mail": "quiet"}, at=NOW + timedelta(hours=1))
        await journal.outbox.keep([replace(outgoing("a"), held={"mail": "quiet"}), late, outgoing("c")], 1)

        assert (1, 3) == (len(await waiting(journal, "mail")), len(await waiting(journal, "web")))
        assert [1, 3] == [one.undelivered for one in await journal.outbox.backlog(60)]
        (lapsed,) = await journal.outbox.expire("mail", 1, 1000)
        assert "c" == lapsed.first
        found = await journal.outbox.held_back()
        assert (HeldBack(sink="mail", reason="quiet", count=2, oldest=NOW),) == found


async def test_one_takes_the_place_of_many_in_one_transaction(tmp_path: Path) -> None:
    """Of those up to a number: what came after is for the next one."""
    async with opened(tmp_path / "journal.db") as journal:
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


async def test_held_back_goes_with_its_sink(tmp_path: Path) -> None:
    """Whoever takes a sink out of the settings wants nothing told by it."""
    async with opened(tmp_path / "journal.db") as journal:
        await journal.outbox.keep([replace(outgoing("a"), held={"mail": "quiet"})], 1)
        _, dropped = await journal.outbox.open(["web"])

        assert ({"mail": 1}, ()) == (dropped, await journal.outbox.held_back())


async def test_a_journal_that_is_older_holds_nothing_back(tmp_path: Path) -> None:
    """Looked at while no daemon has brought it up to date."""
    async with older(5, tmp_path) as journal:
        assert () == await journal.outbox.held_back()


async def test_its_track_is_that_of_the_notice(tmp_path: Path) -> None:
    """Whatever is held back beside it."""
    async with opened(tmp_path / "journal.db") as journal:
        await journal.outbox.keep([replace(outgoing("a"), held={"mail": "burst"})], 1)
        (web,) = await journal.outbox.waiting("web", 0, 9)

        assert KEY == web.key
