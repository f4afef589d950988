"""What waits for a person, in the journal."""

from __future__ import annotations

import math
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from tests.unit.journal.making import GOLDEN, KEY, NOW, older, opened, record
from tests.unit.journal.test_outbox import BLOG, outgoing

from handoffd.engine.track import TrackKey
from handoffd.journal.journal import Journal
from handoffd.journal.records import StoredMatter

GATE = replace(outgoing("gate"), opens=(KEY, 0.0), sinks=())


async def test_a_matter_is_opened_with_its_notice_and_once(tmp_path: Path) -> None:
    """Also when nobody is told of it at first; a repetition opens nothing."""
    async with opened(tmp_path / "journal.db") as journal:
        outbox = journal.outbox
        matter = StoredMatter(key=KEY, notice="gate", since=NOW, reached_min=0)
        assert (matter,) == await outbox.keep([GATE, outgoing("other")], 1)
        assert () == await outbox.keep([GATE], 2)
        assert (matter,) == await outbox.matters()

        await outbox.settle(["gate", "other"])
        assert () == await outbox.keep([GATE], 3)
        assert () == await outbox.matters()


async def test_how_far_the_ladder_is_climbed_is_recorded_with_the_reminder(tmp_path: Path) -> None:
    """All or nothing; of a matter that is over, nothing."""
    async with opened(tmp_path / "journal.db") as journal:
        await journal.outbox.keep([GATE], 1)
        await journal.outbox.keep([replace(outgoing("reminder"), climbed=("gate", 60.0))], 2)
        await journal.outbox.keep([replace(outgoing("more"), climbed=("other", 90.0))], 2)

        assert [60.0] == [matter.reached_min for matter in await journal.outbox.matters()]


async def test_what_a_project_waits_for_is_apart_from_its_tracks(tmp_path: Path) -> None:
    """And may be one of which nobody is told again."""
    async with opened(tmp_path / "journal.db") as journal:
        trouble = replace(GATE, id="trouble", opens=(TrackKey(KEY.project, "~condition"), math.inf))
        await journal.outbox.keep([GATE, trouble], 1)

        found = {one.notice: (one.key.track, one.reached_min) for one in await journal.outbox.matters()}
        assert {"gate": (KEY.track, 0), "trouble": ("~condition", math.inf)} == found


async def test_the_next_matter_of_a_track_takes_the_place_of_the_last(tmp_path: Path) -> None:
    """Other tracks have their own; the oldest comes first."""
    async with opened(tmp_path / "journal.db") as journal:
        later = NOW + timedelta(hours=1)
        await journal.outbox.keep([GATE, replace(GATE, id="blog", opens=(BLOG, 0.0), at=later)], 1)
        await journal.outbox.keep([replace(GATE, id="next", at=later + timedelta(hours=1))], 2)

        assert ["blog", "next"] == [matter.notice for matter in await journal.outbox.matters()]


async def looked_at(journal: Journal, notice: str) -> tuple[str, bool, bool] | None:
    """Return the text of a matter, whether its track is known, and whether anybody looks after it."""
    now = await journal.outbox.matter_now(notice)
    return None if now is None else (now.body, now.track is not None, now.supervised)


async def test_how_it_stands_is_what_the_journal_has_now(tmp_path: Path) -> None:
    """The track as decided last; a project that was removed is nobody's."""
    async with opened(tmp_path / "journal.db") as journal:
        await journal.outbox.keep([GATE, replace(GATE, id="blog", key=BLOG, opens=(BLOG, 0.0))], 1)
        assert await looked_at(journal, "none") is None
        assert ("text of gate", False, False) == await looked_at(journal, "gate")

        await journal.add_project(KEY.project, "shop", NOW)
        await journal.commit(record())
        assert ("text of gate", True, True) == await looked_at(journal, "gate")
        await journal.remove_project(KEY.project, NOW)
        assert ("text of gate", True, False) == await looked_at(journal, "gate")


async def test_a_track_that_was_changed_by_hand_tells_nothing_of_it(tmp_path: Path) -> None:
    """What waited then still does; also when nothing can be read there, and nothing is there."""
    path = tmp_path / "journal.db"
    async with opened(path) as journal:
        await journal.outbox.keep([GATE], 1)
        await journal.add_project(KEY.project, "shop", NOW)
        await journal.commit(record())
        for change in ("UPDATE tracks SET body = '{'", "DELETE FROM tracks"):
            with closing(sqlite3.connect(path)) as db:
                db.execute(change)
                db.commit()

            now = await journal.outbox.matter_now("gate")
            assert now is not None
            assert (None, True, True) == (now.track, now.unsound, now.supervised)
            assert 0 == (await journal.counts()).waiting_for_people


async def test_a_journal_of_schema_8_opens_with_what_waits(tmp_path: Path) -> None:
    """And with what is held back."""
    path = tmp_path / "journal.db"
    shutil.copy(GOLDEN / "schema-8.db", path)
    async with opened(path) as journal:
        assert [("held", 60.0)] == [(one.notice, one.reached_min) for one in await journal.outbox.matters()]
        assert [("webhook", "quiet", 1)] == [
            (one.sink, one.reason, one.count) for one in await journal.outbox.held_back()
        ]


async def test_in_an_older_journal_nothing_waits(tmp_path: Path) -> None:
    """Looked at while no daemon has brought it up to date."""
    async with older(5, tmp_path) as journal:
        assert () == await journal.outbox.matters()
