"""The fan-out: every sink gets every notice, none of them holds up anything else, and nothing is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
from tests.support.eventually import eventually
from tests.support.notices import NOTICE, MemoryBox, serving
from tests.unit.notify.making import QUICK, Recording, notices, running

from handoffd.clock import SystemClock
from handoffd.notify.notifier import Notifier, terms_of
from handoffd.notify.ports import Opened, Parcel, Undelivered
from handoffd.notify.retry_policy import Waiting
from handoffd.settings.notify import EXAMPLE_TOPIC, NotifySettings


async def test_every_sink_gets_every_notice_in_order() -> None:
    """Notices arrive in the order in which they were sent, and are marked for each sink."""
    one, two, box = Recording("one"), Recording("two"), MemoryBox()
    async with running(QUICK, one, two, box=box) as notifier:
        for notice in notices(5):
            notifier.send(notice)
        assert await notifier.drain(60)

    assert (["0", "1", "2", "3", "4"],) * 2 == (one.got, two.got)
    assert ["delivered"] * 10 == box.outcomes()


async def test_kinds_nobody_asked_for_are_not_sent() -> None:
    """`events` selects by kind; an order that is not told of is done all the same."""
    sink, box = Recording(), MemoryBox()
    async with running(NotifySettings(events=("done",)), sink, box=box) as notifier:
        notifier.send(replace(NOTICE, id="a", kind="warning"))
        notifier.send(replace(NOTICE, id="b", kind="done"), 7)
        notifier.send(replace(NOTICE, id="c", kind="timeout"), 8)
        await notifier.drain(60)

    assert (["b"], [7, 8]) == (sink.got, box.orders)


async def test_routes_follow_the_groups_of_projects() -> None:
    """Also when the settings of these change; what is configured without them leaves them as they were."""
    web, sink, other = {"/srv/shop": "web"}, Recording("a"), Recording("b")
    settings = NotifySettings.model_validate({
        "sinks": {"a": {"command": ["true"]}, "b": {"command": ["true"]}},
        "routes": [{"projects": ["group:web"], "to": ["a"]}, {"to": ["b"]}],
    })  # fmt: skip
    async with running(settings, sink, other) as notifier:
        notifier.send(replace(NOTICE, id="0"))
        notifier.configure(settings, web.get)
        notifier.send(replace(NOTICE, id="1"))
        notifier.configure(settings)
        notifier.send(replace(NOTICE, id="2"))
        await notifier.drain(60)

    assert (["1", "2"], ["0"]) == (sink.got, other.got)


async def test_without_sinks_orders_are_done_at_once() -> None:
    """There is nobody to tell."""
    box = MemoryBox()
    async with running(QUICK, box=box) as notifier:
        notifier.send(NOTICE, 7)
        assert await notifier.drain(60)

    assert ([7], []) == (box.orders, box.kept)


async def test_a_dead_sink_does_not_hold_up_another() -> None:
    """While one sink hangs and one fails, the third gets all."""
    slow, dead, quick = Recording("slow"), Recording("dead"), Recording("quick")
    slow.shut()
    dead.dead = Undelivered("no route")
    async with running(QUICK, slow, dead, quick) as notifier:
        for notice in notices(30):
            notifier.send(notice)
        await eventually(lambda: 30 == len(quick.got))
        await eventually(lambda: dead.tries > 3)

        assert (1, [], []) == (slow.tries, slow.got, dead.got)


async def test_what_was_not_delivered_is_sent_by_the_next_one_under_the_same_id() -> None:
    """A notice in hand when everything ends counts as undelivered."""
    box, old, new = MemoryBox(), Recording("it"), Recording("it")
    old.shut()
    async with running(QUICK, old, box=box) as notifier:
        for notice in notices(3):
            notifier.send(notice)
        await eventually(lambda: old.tries)
        assert not await notifier.drain(0.05)

    async with running(QUICK, new, box=box):
        await eventually(lambda: 3 == len(new.got))
    assert ["0", "1", "2"] == new.got


async def test_a_sink_that_is_new_gets_nothing_old_and_one_that_is_gone_is_dropped() -> None:
    """Whoever takes a sink out of the settings wants nothing told by it any more."""
    box, gone, stays, new = MemoryBox(), Recording("gone"), Recording("stays"), Recording("new")
    gone.dead = stays.dead = Undelivered("no route")
    async with running(QUICK, gone, stays, box=box) as notifier:
        notifier.send(NOTICE)
        await eventually(lambda: gone.tries and stays.tries)
    stays.dead = None

    async with running(QUICK, stays, new, box=box) as notifier:
        await eventually(lambda: stays.got)
        notifier.send(replace(NOTICE, id="later"))
        await eventually(lambda: new.got)
    assert (["main-7"], ["later"]) == (stays.got[:1], new.got)
    assert ["dropped", "delivered"] == box.outcomes()[:2]


class Leisurely(MemoryBox):
    """A box that can be opened only while `gate` is open."""

    def __init__(self) -> None:
        super().__init__()
        self.opening = 0
        self.gate = anyio.Event()
        self.gate.set()

    async def open(self, sinks: Collection[str]) -> Opened:
        """Drop what waits for others than these."""
        self.opening += 1
        await self.gate.wait()
        return await super().open(sinks)


def programs(*names: str, **values: object) -> NotifySettings:
    """Return settings of sinks that take nothing."""
    sinks = {name: {"command": ["false"]} for name in names}
    return NotifySettings.model_validate({"sinks": sinks, "remind": {"after_min": []}, **values})


@asynccontextmanager
async def configurable(box: MemoryBox, *names: str) -> AsyncIterator[Notifier]:
    """Run a notifier of such sinks, for each of which a notice waits, for as long as the block lasts."""
    terms = replace(terms_of(QUICK), box_retry_s=0.01)
    notifier = Notifier(programs(*names), SystemClock(), box, environ={}, terms=terms)
    await box.keep([Parcel(notice=NOTICE, sinks=names)], 0)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(notifier.run)
            await anyio.wait_all_tasks_blocked()  # it has been opened by then
            yield notifier
            group.cancel_scope.cancel()


async def test_a_sink_that_is_taken_out_is_dropped_whatever_is_edited_before_the_box_can_be_written() -> None:
    """Its notices would be called undelivered until the next start."""
    box = Leisurely()
    async with configurable(box, "gone", "stays") as notifier:
        box.broken = True
        before = box.opening
        notifier.configure(programs("stays"))
        await eventually(lambda: box.opening > before + 1)
        notifier.configure(programs("stays", backoff_s=7))
        box.broken = False
        await eventually(lambda: ["dropped", None] == box.outcomes())


async def test_a_sink_that_is_taken_out_while_another_one_is_dropped_is_dropped_too() -> None:
    """Two edits in a row."""
    box = Leisurely()
    async with configurable(box, "gone", "next", "stays") as notifier:
        box.gate, before = anyio.Event(), box.opening
        notifier.configure(programs("next", "stays"))
        await eventually(lambda: box.opening > before)
        notifier.configure(programs("stays"))
        box.gate.set()
        await eventually(lambda: ["dropped", "dropped", None] == box.outcomes())


async def test_a_box_that_cannot_write_keeps_orders_back_and_tells_the_rest_from_memory() -> None:
    """That the disk is full reaches people although it cannot be recorded; orders wait for the disk."""
    sink, box = Recording(failures=[Undelivered("once")]), MemoryBox()
    async with running(QUICK, sink, box=box) as notifier:
        assert await notifier.drain(60)
        box.broken = True
        notifier.send(replace(NOTICE, id="order"), 7)
        notifier.send(replace(NOTICE, id="disk full"))
        await eventually(lambda: sink.got)
        assert (["disk full"], []) == (sink.got, box.orders)
        assert not await notifier.drain(0.05)

        box.broken = False
        assert await notifier.drain(60)

    assert (["disk full", "order"], [7], ["delivered"]) == (sink.got, box.orders, box.outcomes())


async def test_to_finish_ends_what_is_on_its_way_and_begins_nothing_more() -> None:
    """What a stopping daemon leaves half sent would be told twice: by this life and by the next."""
    sink, box = Recording(), MemoryBox()
    async with running(NotifySettings(), sink, box=box) as notifier:
        sink.shut()
        for notice in notices(2):
            notifier.send(notice)
        await eventually(lambda: sink.tries)
        assert not await notifier.finish(0.05)
        sink.gate.set()
        assert await notifier.finish(60)

    assert (["0"], ["delivered", None]) == (sink.got, box.outcomes())


async def test_a_box_that_cannot_be_opened_at_first_is_opened_later() -> None:
    """The daemon lives on meanwhile."""
    sink, box = Recording(), MemoryBox()
    box.broken = True
    async with running(QUICK, sink, box=box) as notifier:
        notifier.send(NOTICE, 7)
        await anyio.wait_all_tasks_blocked()
        box.broken = False
        await eventually(lambda: sink.got)

    assert [7] == box.orders


async def test_many_undelivered_notices_are_not_held_in_memory() -> None:
    """The box has them; a sink that works again gets all, in order."""
    box, sink = MemoryBox(), Recording()
    sink.dead = Undelivered("no route")
    async with running(QUICK, sink, box=box) as notifier:
        for notice in notices(2000):
            notifier.send(notice)
        await eventually(lambda: 2000 == len(box.kept))
        await eventually(lambda: sink.tries > 2)
        assert box.largest <= 200
        sink.dead = None
        await eventually(lambda: 2000 == len(sink.got))

    assert sorted(map(int, sink.got)) == list(range(2000))
    assert box.largest <= 200


async def test_next_tries_tell_how_long_a_sink_rests() -> None:
    """Only of one that rests."""
    dead, fine = Recording("dead"), Recording("fine")
    dead.dead = Undelivered("no route")
    async with running(NotifySettings(), dead, fine) as notifier:
        assert {} == notifier.next_tries()
        notifier.send(NOTICE)
        ((name, seconds),) = (await eventually(notifier.next_tries)).items()
        assert "dead" == name
        assert 0 <= seconds <= 5


async def test_drain_of_nothing_returns_at_once() -> None:
    """Without sinks, or without notices, there is nothing to wait for, even if nothing runs."""
    assert await Notifier(NotifySettings(), SystemClock(), MemoryBox()).drain(60)
    assert await Notifier(QUICK, SystemClock(), MemoryBox(), sinks=[Recording()]).drain(60)


class _LateAnswers(MemoryBox):
    """Answers a worker's look when `gate` opens: what it held as the look began."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()

    async def waiting(self, sink: str, after: int, limit: int) -> tuple[Waiting, ...]:
        """Look, and answer later."""
        found = await super().waiting(sink, after, limit)
        await self.gate.wait()
        return found


async def test_drain_waits_for_a_notice_that_was_recorded_during_a_look() -> None:
    """The look did not find it, so the worker looks once more before it rests."""
    sink, box = Recording(), _LateAnswers()
    async with running(QUICK, sink, box=box) as notifier:
        await anyio.wait_all_tasks_blocked()
        notifier.send(NOTICE)
        await anyio.wait_all_tasks_blocked()
        assert 1 == len(box.kept)
        box.gate.set()
        assert await notifier.drain(60)
        assert [NOTICE.id] == sink.got


async def test_the_settings_choose_the_sinks(tmp_path: Path) -> None:
    """A configured program and a configured URL are both told; a hanging program delays nobody."""
    with serving(200) as server:
        settings = NotifySettings.model_validate(
            {
                "command": ["/bin/sh", "-c", "echo started >> $HOME/got; sleep 1000"],
                "webhook": {"url": server.address("/hook")},
            }
        )
        notifier = Notifier(settings, SystemClock(), MemoryBox(), environ={"HOME": str(tmp_path)})
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(notifier.run)
                for notice in notices(2):
                    notifier.send(notice)
                await eventually(lambda: 2 == len(server.requests))
                await eventually((tmp_path / "got").exists)
                group.cancel_scope.cancel()

    assert ["0", "1"] == [body["id"] for _, _, _, body in server.requests]


async def test_a_sink_that_is_switched_off_is_not_there() -> None:
    """Nothing is recorded for it, so nothing waits until it is switched on."""
    settings = NotifySettings.model_validate({"command": ["true"], "ntfy": {"topic": EXAMPLE_TOPIC}})
    notifier = Notifier(settings, SystemClock(), MemoryBox(), environ={})

    assert ("command",) == notifier._lines.names
