"""What is held back is told of once, in one notice, when its time has come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import anyio
from tests.support.eventually import eventually
from tests.support.notices import NOTICE, MemoryBox
from tests.unit.notify.making import NIGHT, NOON, Recording, WallClock

from handoffd.notify.notifier import Notifier, terms_of
from handoffd.notify.sink_workers import Terms
from handoffd.settings.notify import NotifySettings

QUIET = {"start": "22:00", "end": "07:00", "timezone": "UTC"}
OFF: dict[str, Any] = {"remind": {"after_min": []}}


def settings(**values: Any) -> NotifySettings:
    """Return settings of notices that are told at once, and never again."""
    return NotifySettings.model_validate({**OFF, **values})


def quick(values: NotifySettings) -> Terms:
    """Return terms by which nothing is waited for."""
    return replace(terms_of(values), box_retry_s=0.01)


@asynccontextmanager
async def telling(
    values: NotifySettings, clock: WallClock, box: MemoryBox, *sinks: Recording
) -> AsyncIterator[Notifier]:
    """Run a notifier for as long as the block lasts."""
    notifier = Notifier(values, clock, box, sinks=sinks, terms=quick(values), place="/state")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(notifier.run)
            yield notifier
            group.cancel_scope.cancel()


def send(notifier: Notifier, *names: str, **changes: Any) -> None:
    """Send a notice for each name, which is its id."""
    for name in names:
        notifier.send(replace(NOTICE, id=name, **changes))


async def test_the_quiet_hours_hold_back_all_but_what_is_urgent() -> None:
    """At their end the rest is told in one notice."""
    clock, box, sink = WallClock(NIGHT), MemoryBox(), Recording()
    values = settings(quiet={**QUIET, "urgent": ["timeout"]})
    async with telling(values, clock, box, sink) as notifier:
        send(notifier, "a", "b", at=NIGHT)
        send(notifier, "late", at=NIGHT, kind="timeout")
        await eventually(lambda: sink.got)
        assert await notifier.drain(60)
        assert ["late"] == sink.got
        assert {("recording", "quiet"): NIGHT.replace(hour=7) + timedelta(days=1)} == notifier.releases()

        clock.move(hours=9)
        notifier.configure(values)
        await eventually(lambda: len(sink.got) == 2)

    digest = sink.notices[1]
    assert ("digest", 2, "/state", "2 notices: shop (2)") == (
        digest.kind, digest.count, digest.project, digest.text,
    )  # fmt: skip
    assert ["folded", "folded", "delivered", "delivered"] == box.outcomes()


async def test_what_an_earlier_life_held_back_is_told_by_the_next_one_and_once() -> None:
    """Although the daemon was down when the hours ended; and whether it dies before or after that."""
    clock, box = WallClock(NIGHT), MemoryBox()
    values = settings(quiet=QUIET)
    async with telling(values, clock, box, Recording()) as notifier:
        send(notifier, "a", "b", at=NIGHT)
        assert await notifier.drain(60)

    clock.move(hours=11)
    deaf = Recording()
    deaf.shut()
    async with telling(values, clock, box, deaf):
        await eventually(lambda: deaf.tries)
    sink = Recording()
    async with telling(values, clock, box, sink) as notifier:
        await eventually(lambda: sink.got)
        assert await notifier.drain(60)

    assert 1 == len(sink.got)
    assert ["folded", "folded", "delivered"] == box.outcomes()


async def test_the_digests_of_two_daemons_are_not_taken_for_one() -> None:
    """They have the same hours, sinks and numbers; whoever gets both drops repetitions by the id."""
    sinks = (Recording(), Recording())
    for sink in sinks:
        clock, values = WallClock(NIGHT), settings(quiet=QUIET)
        async with telling(values, clock, MemoryBox(), sink) as notifier:
            send(notifier, "a", "b", at=NIGHT)
            assert await notifier.drain(60)
            clock.move(hours=9)
            notifier.configure(values)
            await eventually(lambda sink=sink: sink.got)  # type: ignore[misc]

    assert 2 == len({*sinks[0].got, *sinks[1].got})


async def test_a_digest_collects_its_kinds_until_its_time() -> None:
    """Others are told at once; one that is alone is told as it is; and nothing is told of nothing."""
    clock, box, sink = WallClock(NOON), MemoryBox(), Recording()
    values = settings(digest={"at": "18:00", "timezone": "UTC", "kinds": ["done"]})
    async with telling(values, clock, box, sink) as notifier:
        send(notifier, "done-1", "done-2", at=NOON, kind="done")
        send(notifier, "now", at=NOON)
        await eventually(lambda: ["now"] == sink.got)
        clock.move(hours=6)
        notifier.configure(values)
        await eventually(lambda: 2 == len(sink.got))
        clock.move(hours=24)
        notifier.configure(values)
        send(notifier, "done-3", at=clock.now(), kind="done", text="US-9 is done")
        assert await notifier.drain(60)
        assert 2 == len(sink.got)
        clock.move(hours=24)
        notifier.configure(values)
        await eventually(lambda: 3 == len(sink.got))

    assert ["needs_human", "digest", "done"] == [notice.kind for notice in sink.notices]
    assert "US-9 is done" == sink.notices[2].text


async def test_a_digest_that_comes_due_at_night_waits_for_the_morning() -> None:
    """Quiet hours go before it, and there is one notice then for each."""
    clock, box, sink = WallClock(NOON), MemoryBox(), Recording()
    values = settings(digest={"at": "23:00", "timezone": "UTC"}, quiet=QUIET)
    async with telling(values, clock, box, sink) as notifier:
        send(notifier, "a", "b", at=NOON, kind="done")
        assert await notifier.drain(60)
        morning = NOON.replace(hour=7) + timedelta(days=1)
        assert [morning] == list(notifier.releases().values())
        clock.move(hours=12)
        notifier.configure(values)
        await anyio.wait_all_tasks_blocked()
        assert [] == sink.got

        clock.move(hours=8)
        notifier.configure(values)
        await eventually(lambda: sink.got)


async def test_settings_that_hold_nothing_back_any_more_release_it() -> None:
    """At once: it is not lost with the setting."""
    clock, box, sink = WallClock(NIGHT), MemoryBox(), Recording()
    async with telling(settings(quiet=QUIET), clock, box, sink) as notifier:
        send(notifier, "a", "b", at=NIGHT)
        assert await notifier.drain(60)
        notifier.configure(settings())
        await eventually(lambda: sink.got)

    assert 2 == sink.notices[0].count


async def test_a_box_that_cannot_fold_is_asked_again() -> None:
    """A full disk in the morning costs no digest."""
    clock, box, sink = WallClock(NIGHT), MemoryBox(), Recording()
    values = settings(quiet=QUIET)
    async with telling(values, clock, box, sink) as notifier:
        send(notifier, "a", "b", at=NIGHT)
        assert await notifier.drain(60)
        box.broken = True
        clock.move(hours=9)
        notifier.configure(values)
        await anyio.wait_all_tasks_blocked()
        box.broken = False
        await eventually(lambda: sink.got)

    assert 1 == len(sink.got)


async def test_a_digest_says_what_is_over_and_not_what_to_type_for_it() -> None:
    """The same command would decide on whatever waits by then; what a project as a whole waits for stays."""
    clock, box, sink = WallClock(NIGHT), MemoryBox(), Recording()
    async with telling(settings(quiet=QUIET), clock, box, sink) as notifier:
        send(notifier, "decided", "waits", "done", kind="needs_human", track="main")
        send(notifier, "cap", kind="blocked", track="")
        box.over |= {"decided", "cap"}
        assert await notifier.drain(60)
        clock.move(hours=12)
        notifier.configure(settings(quiet=QUIET))
        await eventually(lambda: sink.notices)
    [digest] = sink.notices
    over = [line for line in digest.lines if "(that is over by now)" in line]
    assert (4, 1, 1) == (digest.count, len(over), sum("over by now" in line for line in digest.lines))
    assert ">" not in over[0]
    assert 3 == sum(f"> {NOTICE.action}" in line for line in digest.lines)

    alone = Recording("alone")
    box, clock = MemoryBox(), WallClock(NIGHT)
    async with telling(settings(quiet=QUIET), clock, box, alone) as notifier:
        send(notifier, "decided", kind="needs_human", track="main")
        box.over.add("decided")
        assert await notifier.drain(60)
        clock.move(hours=12)
        notifier.configure(settings(quiet=QUIET))
        await eventually(lambda: alone.notices)
    assert (None, True) == (alone.notices[0].action, alone.notices[0].text.endswith("over by now)"))


async def test_a_clock_that_is_put_back_by_years_holds_nothing_back_for_years() -> None:
    """The digest is told at its next time by the clock that there is."""
    clock, box, sink = WallClock(NOON), MemoryBox(), Recording()
    values = settings(digest={"at": "18:00", "timezone": "UTC", "kinds": ["done"]})
    async with telling(values, clock, box, sink) as notifier:
        send(notifier, "a", "b", at=NOON, kind="done")
        assert await notifier.drain(60)
        clock.move(days=-1000)
        moment = clock.now().replace(hour=18)
        assert [moment] == list(notifier.releases().values())


async def test_a_storm_is_a_few_notices_and_one_that_counts_the_rest() -> None:
    """A thousand blocked at once; each of them is recorded."""
    clock, box = WallClock(NOON), MemoryBox()
    told: list[datetime] = []
    values = NotifySettings.model_validate(
        {**OFF, "burst": {"most": 3, "within_s": 60}, "sinks": {"p": {"command": ["true"], "burst": True}}}
    )
    notifier = Notifier(values, clock, box, terms=quick(values))
    async with anyio.create_task_group() as group:
        group.start_soon(notifier.run)
        for number in range(1000):
            send(notifier, str(number), at=NOON, kind="blocked", project=f"/srv/{number}", name=f"p{number}")
        send(notifier, "other", at=NOON, kind="timeout")
        await eventually(lambda: 1001 == len(box.kept), within_s=60)
        assert [None] * 4 == [one.held for one in box.kept if one.held is None]
        clock.move(minutes=2)
        told.append(clock.now())
        notifier.configure(values)
        await eventually(lambda: 1002 == len(box.kept), within_s=60)
        group.cancel_scope.cancel()

    digest = box.kept[-1].notice
    assert ("digest", 997) == (digest.kind, digest.count)
    assert digest.text.startswith("997 notices: p3 (1), p4 (1), p5 (1) and others")
    assert 997 == box.outcomes().count("folded")
