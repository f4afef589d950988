"""What people have not been told yet, and what they will be told again."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.notices import NOTICE, MemoryDesk
from tests.unit.journal.making import KEY, NOW, opened, record, track

from handoffd.api.reads import MOST_WAITING, NoDesk, notices_json, trials_json
from handoffd.journal.journal import Journal
from handoffd.journal.records import Outgoing
from handoffd.protocol.state import Status

LATELY_S = 3600.0


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    """A journal with one project, whose track waits at bdd."""
    async with opened(tmp_path / "journal.db") as there:
        await there.add_project(KEY.project, "shop", NOW)
        waiting = track()
        assert waiting.state is not None
        await there.commit(replace(record(), track=waiting.with_state(status=Status.NEEDS_HUMAN)))
        yield there


async def gate(journal: Journal, name: str = "gate", **changes: object) -> Outgoing:
    """Return a notice of what that track waits for."""
    (stored,) = await journal.tracks()
    state = stored.track.state
    assert state is not None
    notice = replace(NOTICE, id=name, story=state.story, step=state.step)
    plain = Outgoing(
        id=name, key=KEY, at=NOW, body=notice.as_json(), sinks=("web",), effect=None, opens=(KEY, 0.0)
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


async def test_what_waits_says_when_people_hear_of_it_again(journal: Journal) -> None:
    """With what to type; without a daemon nobody knows when."""
    await journal.outbox.keep([await gate(journal)], 1)
    await journal.outbox.keep([replace(await gate(journal, "r"), opens=None, climbed=("gate", 60.0))], 2)
    desk = MemoryDesk(again={"gate": NOW + timedelta(hours=1)})

    found = await notices_json(journal.outbox, desk, LATELY_S)
    (state,) = [stored.track.state for stored in await journal.tracks()]
    assert state is not None
    shown = {
        "project": "/srv/shop", "track": "main", "name": "shop", "story": state.story, "kind": "needs_human",
        "text": NOTICE.text, "next": NOTICE.action, "since": "2026-01-31T22:15:09.123Z", "reminded_min": 60.0,
        "again_at": "2026-01-31T23:15:09.123Z",
    }  # fmt: skip
    assert ([shown], 0) == (found["waiting"], found["more_waiting"])
    elsewhere = await notices_json(journal.outbox, desk, LATELY_S, "/srv/other")
    assert ([], 0) == (elsewhere["waiting"], elsewhere["more_waiting"])
    assert [shown] == (await notices_json(journal.outbox, desk, LATELY_S, KEY.project))["waiting"]
    offline = await notices_json(journal.outbox, NoDesk(), LATELY_S)
    assert [{**shown, "again_at": None}] == offline["waiting"]
    assert ["web"] == [one["sink"] for one in offline["sinks"]]


async def test_what_is_over_waits_no_more(journal: Journal) -> None:
    """Although no daemon has looked since; nor does what nobody can read, or looks after."""
    await journal.outbox.keep([await gate(journal)], 1)
    await journal.commit(record())
    assert [] == (await notices_json(journal.outbox, NoDesk(), LATELY_S))["waiting"]

    await journal.outbox.keep([await gate(journal, "odd", body="{")], 1)
    assert [] == (await notices_json(journal.outbox, NoDesk(), LATELY_S))["waiting"]
    itself = KEY._replace(track="")
    trust = await gate(journal, "trust", key=itself, opens=(itself, 0.0))
    await journal.outbox.keep([trust], 1)
    assert 1 == len((await notices_json(journal.outbox, NoDesk(), LATELY_S))["waiting"])
    await journal.remove_project(KEY.project, NOW)
    assert [] == (await notices_json(journal.outbox, NoDesk(), LATELY_S))["waiting"]


async def test_what_is_held_back_says_until_when(journal: Journal) -> None:
    """And why."""
    await journal.outbox.keep([await gate(journal, held={"web": "quiet"}, opens=None)], 1)
    desk = MemoryDesk(held={("web", "quiet"): NOW})

    found = await notices_json(journal.outbox, desk, LATELY_S)
    at = "2026-01-31T22:15:09.123Z"
    held = {"sink": "web", "reason": "quiet", "count": 1, "since": at, "until": at}
    assert ([held], []) == (found["held"], found["sinks"])


async def test_of_many_the_oldest_are_shown(journal: Journal) -> None:
    """And the others counted."""
    many = [
        await gate(journal, str(number), opens=(KEY._replace(track=str(number)), 0.0))
        for number in range(MOST_WAITING + 3)
    ]
    await journal.outbox.keep(many, 1)

    assert 3 == (await notices_json(journal.outbox, NoDesk(), LATELY_S))["more_waiting"]


async def test_what_nobody_is_told_of_again_waits_too(journal: Journal) -> None:
    """JSON knows no numbers without an end."""
    trouble = await gate(journal, opens=(KEY._replace(track="~condition"), math.inf))
    await journal.outbox.keep([replace(trouble, body=replace(NOTICE, track="").as_json())], 1)

    (shown,) = (await notices_json(journal.outbox, NoDesk(), LATELY_S))["waiting"]
    assert ("", None, None) == (shown["track"], shown["reminded_min"], shown["again_at"])


def test_a_trial_is_fine_when_every_sink_took_it() -> None:
    """Each says how it went."""
    both = trials_json([("a", "ntfy", None, 0.1), ("b", "command", "exit code 1", 0.2)])

    assert (False, [True, False]) == (both["ok"], [one["ok"] for one in both["sinks"]])
    assert trials_json([("a", "ntfy", None, 0.1)])["ok"]
