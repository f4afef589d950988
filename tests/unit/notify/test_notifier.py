"""The notifier: every sink gets every notice, no sink delays another, and no notice is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.support.eventually import eventually
from tests.support.notices import NOTICE, MemoryBox, serving
from tests.unit.notify.making import QUICK, Recording, running, send

from handoffd.clock import SystemClock
from handoffd.engine.notice import Opened, Opening, Parcel, Waiting
from handoffd.notify.notifier import Intake, Notifier, sinks_for, terms_of
from handoffd.notify.ports import Undelivered
from handoffd.settings.notify import EXAMPLE_TOPIC, NotifySettings


async def test_every_sink_gets_every_notice_in_order() -> None:
    """Notices arrive in the order in which they were sent, and are marked for each sink."""
    one, two, box = Recording("one"), Recording("two"), MemoryBox()
    async with running(QUICK, one, two, box=box) as notifier:
        send(notifier.send, 5)
        assert await notifier.drain(60)

    assert (["0", "1", "2", "3", "4"],) * 2 == (one.got, two.got)
    assert ["delivered"] * 10 == box.outcomes()


async def test_kinds_outside_events_are_not_sent() -> None:
    """Their orders are done all the same."""
    sink, box = Recording(), MemoryBox()
    async with running(NotifySettings(events=("done",)), sink, box=box) as notifier:
        notifier.send(replace(NOTICE, id="a", kind="warning"))
        notifier.send(replace(NOTICE, id="b", kind="done"), 7)
        notifier.send(replace(NOTICE, id="c", kind="timeout"), 8)
        await notifier.drain(60)

    assert (["b"], [7, 8]) == (sink.got, box.orders)


async def test_routes_follow_the_groups_of_projects() -> None:
    """Also when the groups change; settings without groups keep the last ones."""
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
    """No sink has to deliver them."""
    box = MemoryBox()
    async with running(QUICK, box=box) as notifier:
        notifier.send(NOTICE, 7)
        assert await notifier.drain(60)

    assert ([7], []) == (box.orders, box.kept)


async def test_a_dead_sink_does_not_hold_up_another() -> None:
    """While one sink hangs and one fails, the third gets every notice."""
    slow, dead, quick = Recording("slow"), Recording("dead"), Recording("quick")
    slow.shut()
    dead.dead = Undelivered("no route")
    async with running(QUICK, slow, dead, quick) as notifier:
        send(notifier.send, 30)
        await eventually(lambda: 30 == len(quick.got))
        await eventually(lambda: dead.tries > 3)

        assert (1, [], []) == (slow.tries, slow.got, dead.got)


async def test_what_was_not_delivered_is_sent_by_the_next_one_under_the_same_id() -> None:
    """Also a notice that a sink was just delivering."""
    box, old, new = MemoryBox(), Recording("it"), Recording("it")
    old.shut()
    async with running(QUICK, old, box=box) as notifier:
        send(notifier.send, 3)
        await eventually(lambda: old.tries)
        assert not await notifier.drain(0.05)

    async with running(QUICK, new, box=box):
        await eventually(lambda: 3 == len(new.got))
    assert ["0", "1", "2"] == new.got


async def test_a_new_sink_gets_no_old_notices_and_those_of_a_removed_one_are_dropped() -> None:
    """A sink that stays gets its undelivered ones."""
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
        """Open the box once the gate is open."""
        self.opening += 1
        await self.gate.wait()
        return await super().open(sinks)


def programs(*names: str, **values: object) -> NotifySettings:
    """Return settings of sinks whose programs fail."""
    sinks = {name: {"command": ["false"]} for name in names}
    return NotifySettings.model_validate({"sinks": sinks, "remind": {"after_min": []}, **values})


@asynccontextmanager
async def configurable(box: MemoryBox, *names: str) -> AsyncIterator[Notifier]:
    """Run a notifier with such sinks, each with a queued notice, for as long as the block lasts."""
    terms = replace(terms_of(QUICK), box_retry_s=0.01)
    notifier = Notifier(programs(*names), SystemClock(), box, environ={}, terms=terms)
    await box.keep([Parcel(notice=NOTICE, sinks=names)], 0)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(notifier.run)
            await anyio.wait_all_tasks_blocked()  # the box is open by then
            yield notifier
            group.cancel_scope.cancel()


async def test_a_removed_sink_is_dropped_despite_another_edit_before_the_box_can_be_written() -> None:
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


async def test_a_sink_that_is_removed_while_another_is_dropped_is_dropped_too() -> None:
    """After two edits in a row."""
    box = Leisurely()
    async with configurable(box, "gone", "next", "stays") as notifier:
        box.gate, before = anyio.Event(), box.opening
        notifier.configure(programs("next", "stays"))
        await eventually(lambda: box.opening > before)
        notifier.configure(programs("stays"))
        box.gate.set()
        await eventually(lambda: ["dropped", "dropped", None] == box.outcomes())


async def test_a_box_that_cannot_write_keeps_orders_back_and_tells_the_rest_from_memory() -> None:
    """People learn that the disk is full although it cannot be recorded; orders wait for the disk."""
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


async def test_finishing_completes_the_current_delivery_and_starts_no_other() -> None:
    """The next daemon would send an interrupted one again."""
    sink, box = Recording(), MemoryBox()
    async with running(NotifySettings(), sink, box=box) as notifier:
        sink.shut()
        send(notifier.send, 2)
        await eventually(lambda: sink.tries)
        assert not await notifier.finish(0.05)
        sink.gate.set()
        assert await notifier.finish(60)

    assert (["0"], ["delivered", None]) == (sink.got, box.outcomes())


async def test_a_box_that_cannot_be_opened_at_first_is_opened_later() -> None:
    """The notifier runs meanwhile."""
    sink, box = Recording(), MemoryBox()
    box.broken = True
    async with running(QUICK, sink, box=box) as notifier:
        notifier.send(NOTICE, 7)
        await anyio.wait_all_tasks_blocked()
        box.broken = False
        await eventually(lambda: sink.got)

    assert [7] == box.orders


async def test_many_undelivered_notices_are_not_held_in_memory() -> None:
    """The box has them; a repaired sink gets all, in order."""
    box, sink = MemoryBox(), Recording()
    sink.dead = Undelivered("no route")
    async with running(QUICK, sink, box=box) as notifier:
        send(notifier.send, 2000)
        await eventually(lambda: 2000 == len(box.kept))
        await eventually(lambda: sink.tries > 2)
        assert box.largest <= 200
        sink.dead = None
        await eventually(lambda: 2000 == len(sink.got))

    assert sorted(map(int, sink.got)) == list(range(2000))
    assert box.largest <= 200


async def test_next_tries_have_the_pauses_of_failing_sinks() -> None:
    """A working sink is not among them."""
    dead, fine = Recording("dead"), Recording("fine")
    dead.dead = Undelivered("no route")
    async with running(NotifySettings(), dead, fine) as notifier:
        assert {} == notifier.next_tries()
        notifier.send(NOTICE)
        ((name, seconds),) = (await eventually(notifier.next_tries)).items()
        assert "dead" == name
        assert 0 <= seconds <= 5


async def test_drain_of_nothing_returns_at_once() -> None:
    """Without sinks, or without notices, even if the notifier does not run."""
    assert await Notifier(NotifySettings(), SystemClock(), MemoryBox()).drain(60)
    assert await Notifier(QUICK, SystemClock(), MemoryBox(), sinks=[Recording()]).drain(60)


class _LateAnswers(MemoryBox):
    """A box that lists the queue only when `gate` opens: as it was when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()

    async def waiting(self, sink: str, after: int, limit: int) -> tuple[Waiting, ...]:
        """Read, and answer later."""
        found = await super().waiting(sink, after, limit)
        await self.gate.wait()
        return found


async def test_drain_waits_for_a_notice_that_was_recorded_while_the_box_was_read() -> None:
    """The worker reads the box again before it rests."""
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
    """A program and a webhook get each notice; a program that hangs does not delay the webhook."""
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
                send(notifier.send, 2)
                await eventually(lambda: 2 == len(server.requests))
                await eventually((tmp_path / "got").exists)
                group.cancel_scope.cancel()

    assert ["0", "1"] == [body["id"] for _, _, _, body in server.requests]


async def test_a_sink_that_is_switched_off_has_no_queue() -> None:
    """No notice is recorded for it."""
    settings = NotifySettings.model_validate({"command": ["true"], "ntfy": {"topic": EXAMPLE_TOPIC}})
    notifier = Notifier(settings, SystemClock(), MemoryBox(), environ={})

    assert ("command",) == notifier._lines.names


SINKS = ("mail", "phone")


@pytest.mark.parametrize(
    ("routes", "sinks"),
    [
        ([], SINKS),
        ([{"to": ["phone"]}], ("phone",)),
        ([{"kinds": ["done"], "to": ["phone"]}], SINKS),
        ([{"kinds": ["done", "needs_human"], "to": ["phone"]}], ("phone",)),
        ([{"projects": ["shop"], "to": ["phone"]}], ("phone",)),
        ([{"projects": ["/srv/*"], "to": ["phone"]}], ("phone",)),
        ([{"projects": ["sho", "SHOP", "/srv"], "to": ["phone"]}], SINKS),
        ([{"projects": ["group:web"], "to": ["phone"]}], ("phone",)),
        ([{"projects": ["group:w*"], "to": ["phone"]}], SINKS),
        ([{"projects": ["blog", "s*"], "kinds": ["needs_human"], "to": ["mail"]}], ("mail",)),
        ([{"projects": ["s*"], "kinds": ["done"], "to": ["mail"]}], SINKS),
        ([{"projects": ["s*"], "to": ["mail"]}, {"to": ["phone"]}], ("mail",)),  # the first that fits
        ([{"kinds": ["done"], "to": ["mail"]}, {"to": []}], ()),
    ],
)
def test_the_first_route_that_fits_decides(routes: list[dict[str, Any]], sinks: tuple[str, ...]) -> None:
    """If none fits, every sink gets the notice."""
    form = {"command": ["true"]}
    settings = NotifySettings.model_validate({"sinks": dict.fromkeys(SINKS, form), "routes": routes})

    assert sinks == sinks_for(NOTICE, settings, SINKS, {"/srv/shop": "web"}.get)


SHOP, BLOG = ("/srv/shop", ""), ("/srv/blog", "")


def parcel(name: str, lane: tuple[str, str] | None = None, order: int | None = None) -> Parcel:
    """Return a notice; with a lane it opens a matter there."""
    opens = None if lane is None else Opening(lane=lane)
    return Parcel(notice=replace(NOTICE, id=name), sinks=(), order=order, opens=opens)


def test_the_intake_keeps_the_order_of_new_and_ended_matters() -> None:
    """The end of a matter does not end the next one in its lane."""
    intake, one, two = Intake(), parcel("one", SHOP), parcel("two", SHOP)
    for found in (one, parcel("other")):
        intake.put(found)
    assert intake.put_over(SHOP, lambda: False)  # it is on its way
    intake.put(two)

    assert ["one", "other"] == [each.notice.id for each in intake.parcels(10)]
    assert [one] == intake.parcels(1)
    assert [] == intake.overs()
    intake.take(2)
    assert ([SHOP], []) == (intake.overs(), intake.parcels(10))
    intake.take(1)
    assert ([], [two]) == (intake.overs(), intake.parcels(10))
    intake.take(1)
    assert 0 == len(intake)


def test_the_end_of_a_matter_is_taken_in_once() -> None:
    """Every check reports it, also for hours in which nothing can be recorded."""
    intake = Intake()
    assert [True, False, False] == [intake.put_over(SHOP, lambda: True) for _ in range(3)]
    assert not intake.put_over(BLOG, lambda: False)  # it has no matter
    assert 1 == len(intake)

    intake.put(parcel("next", SHOP))
    assert [True, False] == [intake.put_over(SHOP, lambda: False) for _ in range(2)]
    intake.take(3)
    assert not intake.put_over(SHOP, lambda: False)


def test_notices_without_an_order_can_be_taken_out() -> None:
    """They exist nowhere else."""
    intake, order, loose = Intake(), parcel("order", order=7), parcel("loose")
    intake.put(loose)
    intake.put(order)
    intake.put_over(SHOP, lambda: True)

    assert [loose] == intake.take_those_of_no_order()
    assert [order] == intake.parcels(10)
    intake.take(1)
    assert [SHOP] == intake.overs()
