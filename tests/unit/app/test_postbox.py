"""The notifier with the real journal as its box."""

from __future__ import annotations

import os
import resource
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.house import track_of
from tests.support.notices import NOTICE
from tests.unit.journal.making import KEY, opened, record
from tests.unit.notify.making import QUICK, Recording, notices

from handoffd.app.wiring import Postbox
from handoffd.clock import SystemClock
from handoffd.journal.journal import Journal
from handoffd.notify.notifier import Notifier
from handoffd.notify.ports import Expired, Held, Matter, Opened, Opening, Parcel, Undelivered
from handoffd.protocol.state import Status

MANY = 10_000


@asynccontextmanager
async def running(journal: Journal, *sinks: Recording) -> AsyncIterator[Notifier]:
    """Run a notifier on a journal."""
    notifier = Notifier(QUICK, SystemClock(), Postbox(journal), sinks=sinks)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.run)
        yield notifier
        tasks.cancel_scope.cancel()


async def test_a_notice_is_kept_until_it_is_settled(tmp_path: Path) -> None:
    """With its track and its number of tries."""
    async with opened(tmp_path / "journal.db") as journal:
        box = Postbox(journal)
        assert Opened(lived_s=0, dropped={}) == await box.open(["web"])
        await box.keep([Parcel(notice=replace(NOTICE, id=name), sinks=("web",)) for name in "abc"], 1)

        one, two, three = await box.waiting("web", 0, 10)
        assert (("/srv/shop", "main"), 0) == (one.lane, one.tries)
        assert replace(NOTICE, id="a") == await box.read(one.number)
        await box.failed(one.number, "no route", 2)
        await box.delivered(two.number, 3)
        lost = await box.give_up(three.number, "422", 4)
        assert Expired(lane=one.lane, numbers=(three.number,), first="c") == lost
        assert [(one.number, 1)] == [(left.number, left.tries) for left in await box.waiting("web", 0, 10)]
        assert (Expired(lane=one.lane, numbers=(one.number,), first="a"),) == await box.expire("web", 1, 5)
        assert () == await box.waiting("web", 0, 10)


async def test_an_unreadable_notice_is_none(tmp_path: Path) -> None:
    """The notifier goes on without it."""
    path = tmp_path / "journal.db"
    async with opened(path) as journal:
        box = Postbox(journal)
        await box.keep([Parcel(notice=NOTICE, sinks=("web",))], 1)
        (waiting,) = await box.waiting("web", 0, 10)
        with closing(sqlite3.connect(path)) as saboteur:
            saboteur.execute("UPDATE notices SET body = '{'")
            saboteur.commit()

        assert await box.read(waiting.number) is None
        assert await box.read(99) is None


async def test_held_notices_are_folded_into_one(tmp_path: Path) -> None:
    """An unreadable one is left out, and counted."""
    path = tmp_path / "journal.db"
    async with opened(path) as journal:
        box = Postbox(journal)
        kept = [replace(NOTICE, id=name) for name in "abc"]
        await box.keep([Parcel(notice=one, sinks=("web",), held={"web": "quiet"}) for one in kept], 1)
        assert (Held(sink="web", reason="quiet", count=3, since=NOTICE.at),) == await box.held()
        with closing(sqlite3.connect(path)) as saboteur:
            saboteur.execute("UPDATE notices SET body = '{' WHERE id = 'a'")
            saboteur.commit()

        lot = await box.lot("web", "quiet", 2)
        assert lot is not None
        assert (3, (kept[1],)) == (lot.count, lot.notices)
        await box.fold("web", "quiet", lot.upto, replace(NOTICE, id="digest"), 2)
        (waiting,) = await box.waiting("web", 0, 10)
        assert replace(NOTICE, id="digest") == await box.read(waiting.number)
        assert ((), None) == (await box.held(), await box.lot("web", "quiet", 2))


async def test_the_journal_decides_whether_a_matter_is_open(tmp_path: Path) -> None:
    """By the latest state of the track, and by whether the project is supervised."""
    async with opened(tmp_path / "journal.db") as journal:
        box = Postbox(journal)
        waiting = track_of(Status.NEEDS_HUMAN)
        gate = replace(NOTICE, id="gate", story="US-001", step="bdd", project=KEY.project, track=KEY.track)
        (matter,) = await box.keep(
            [Parcel(notice=gate, sinks=("web",), opens=Opening(lane=(KEY.project, KEY.track)))], 1
        )
        assert Matter(notice="gate", lane=(KEY.project, KEY.track), since=NOTICE.at) == matter
        assert await box.outlook("gate") is None  # its project is not supervised
        await journal.add_project(KEY.project, "shop", NOTICE.at)
        assert await box.outlook("gate") is None  # its track is unknown

        await journal.commit(replace(record(), track=waiting))
        assert gate == await box.outlook("gate")
        await box.keep([Parcel(notice=replace(gate, id="r"), sinks=("web",), climbed=("gate", 60.0))], 2)
        assert (replace(matter, reached_min=60.0),) == await box.matters()
        await journal.commit(replace(record(), track=track_of(Status.RUNNING)))
        assert await box.outlook("gate") is None
        await box.settle(["gate"])
        assert () == await box.matters()

        trust = replace(gate, id="trust", track="")
        await box.keep([Parcel(notice=trust, sinks=(), opens=Opening(lane=(KEY.project, "")))], 3)
        assert trust == await box.outlook("trust")  # until it is settled


def resident_bytes() -> int:
    """Return the memory usage of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize()


@pytest.mark.slow
async def test_ten_thousand_undelivered_notices_cost_neither_memory_nor_a_slow_start(tmp_path: Path) -> None:
    """They stay in the journal; a working sink gets them one after the other."""
    path = tmp_path / "journal.db"
    long = "x" * 2000
    async with opened(path) as journal:
        parcels = [
            Parcel(notice=replace(one, why=long), sinks=("web", "mail"))
            for one in notices(MANY, str(os.getpid()))
        ]
        for start in range(0, MANY, 1000):
            await Postbox(journal).keep(parcels[start : start + 1000], 1)
        del parcels

    web, mail = Recording("web"), Recording("mail")
    web.dead = Undelivered("no route")
    before = resident_bytes()
    async with opened(path) as journal, running(journal, web, mail):
        await eventually(lambda: len(mail.got) > 400 and web.tries > 3, within_s=60)
        assert resident_bytes() - before < 10 * 2**20  # all their texts would be twice that
        assert [] == web.got
        web.dead = None
        await eventually(lambda: len(web.got) > 400, within_s=60)

    assert [str(number) for number in range(len(mail.got))] == mail.got
    assert sorted(map(int, web.got)) == list(range(len(web.got)))
