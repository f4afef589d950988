"""The lines of the sinks that there are, while settings change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
from tests.support.eventually import eventually
from tests.support.notices import NOTICE, MemoryBox
from tests.unit.notify.making import QUICK, Recording

from handoffd.clock import SystemClock
from handoffd.notify.notifier import terms_of
from handoffd.notify.ports import Parcel, Undelivered
from handoffd.notify.sink_workers import Lines
from handoffd.settings.notify import SinkSettings

ONE, OTHER = SinkSettings(command=("one",)), SinkSettings(command=("other",))


class Rooms:
    """Lines over a box, and every sink that was made for them."""

    def __init__(self) -> None:
        self.box = MemoryBox()
        self.made: list[Recording] = []
        self.lines = Lines(self.box, SystemClock(), lambda: 0.0)

    def configure(self, **sinks: SinkSettings) -> None:
        """Have these sinks."""

        def make(name: str, _: SinkSettings) -> Recording:
            self.made.append(Recording(name))
            return self.made[-1]

        self.lines.configure(sinks, make, terms_of(QUICK))

    async def keep(self, name: str, *sinks: str) -> None:
        """Record a notice, and say so."""
        await self.box.keep([Parcel(notice=replace(NOTICE, id=name), sinks=sinks)], 0)
        self.lines.hint()

    async def sending(self) -> Recording:
        """Have one sink, `a`, and leave it with notice 1 in hand until its gate is opened."""
        self.lines.opened.set()
        self.configure(a=ONE)
        (sink,) = self.made
        sink.shut()
        await self.keep("1", "a")
        await eventually(lambda: sink.tries)
        return sink

    def tell_from_memory(self, *names: str) -> None:
        """Have `a` told what cannot be recorded."""
        unkept = self.lines.unkept("a")
        assert unkept is not None
        for name in names:
            unkept.put(replace(NOTICE, id=name))


@asynccontextmanager
async def rooms() -> AsyncIterator[Rooms]:
    """Run lines for as long as the block lasts."""
    there = Rooms()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(there.lines.run, lambda _: None)
            yield there
            group.cancel_scope.cancel()


async def test_nothing_is_sent_before_the_box_is_opened() -> None:
    """What waits from an earlier life may not be for these sinks."""
    async with rooms() as there:
        there.configure(a=ONE)
        await there.keep("1", "a")
        await anyio.wait_all_tasks_blocked()
        assert [] == there.made[0].got
        there.lines.opened.set()
        await eventually(lambda: there.made[0].got)


async def test_a_sink_that_stays_as_it_was_goes_on_undisturbed() -> None:
    """A notice that it has in hand is not sent again because another sink was changed."""
    async with rooms() as there:
        there.lines.opened.set()
        there.configure(a=ONE, b=ONE)
        a, b = there.made
        a.shut()
        await there.keep("1", "a", "b")
        await eventually(lambda: a.tries and b.got)
        there.configure(b=OTHER, c=ONE, a=ONE)
        assert (4, ("b", "c", "a")) == (len(there.made), there.lines.names)
        a.gate.set()
        await eventually(lambda: a.got)
        await there.keep("2", "a", "b", "c")
        await eventually(lambda: there.made[2].got and there.made[3].got and 2 == len(a.got))

    assert (["1", "2"], 2, ["1"], ["2"], ["2"]) == (
        a.got, a.tries, b.got, there.made[2].got, there.made[3].got,
    )  # fmt: skip
    assert all(sink.closed for sink in there.made)


async def test_what_waits_for_a_changed_sink_goes_to_the_new_one() -> None:
    """A mended address gets all that the old one did not take; a sink that is gone gets nothing more."""
    async with rooms() as there:
        there.lines.opened.set()
        there.configure(a=ONE, gone=ONE)
        for sink in there.made:
            sink.dead = Undelivered("no route")
        await there.keep("1", "a", "gone")
        await eventually(lambda: all(sink.tries for sink in there.made))
        there.configure(a=OTHER)
        await eventually(lambda: ["1"] == there.made[2].got)
        await eventually(lambda: all(sink.closed for sink in there.made[:2]))
        assert there.lines.unkept("gone") is None
        assert {"a": OTHER} == there.lines.sinks


async def test_a_changed_sink_ends_what_it_has_in_hand_and_the_new_one_does_not_repeat_it() -> None:
    """A person who edits the settings while a notice is on its way is not told twice."""
    async with rooms() as there:
        old = await there.sending()
        there.configure(a=OTHER)
        await there.keep("2", "a")
        await anyio.wait_all_tasks_blocked()
        assert [] == there.made[1].got
        old.gate.set()
        await eventually(lambda: ["2"] == there.made[1].got)

    assert (["1"], 1, ["delivered", "delivered"]) == (old.got, old.tries, there.box.outcomes())


async def test_to_finish_does_not_wait_for_a_box_that_was_never_opened() -> None:
    """Whoever has sent nothing has nothing to end; also when its settings were changed meanwhile."""
    async with rooms() as there:
        there.configure(a=ONE, b=ONE)
        await anyio.wait_all_tasks_blocked()
        there.configure(a=OTHER, b=ONE)
        await anyio.wait_all_tasks_blocked()
        await there.lines.finish()

    assert [0, 0, 0] == [sink.tries for sink in there.made]


async def test_what_is_configured_while_all_finish_is_not_begun() -> None:
    """A daemon that stops follows its settings to the end; what they begin it would cut short."""
    async with rooms() as there:
        old = await there.sending()
        async with anyio.create_task_group() as group:
            group.start_soon(there.lines.finish)
            await anyio.wait_all_tasks_blocked()
            there.configure(a=OTHER, b=ONE)
            await there.keep("2", "a", "b")
            old.gate.set()
        await anyio.wait_all_tasks_blocked()

    assert [1, 0, 0] == [sink.tries for sink in there.made]


async def test_what_waits_in_memory_goes_to_the_changed_sink() -> None:
    """A changed address is the same sink: nothing else has what could not be recorded."""
    async with rooms() as there:
        there.lines.opened.set()
        there.configure(a=ONE)
        old = there.made[0]
        old.shut()
        old.dead = Undelivered("no route")
        there.tell_from_memory("1", "2")
        await eventually(lambda: old.tries)
        there.configure(a=OTHER)
        await anyio.wait_all_tasks_blocked()
        old.gate.set()
        await eventually(lambda: ["1", "2"] == there.made[1].got)

    assert ([], 1) == (old.got, old.tries)


async def test_to_finish_waits_for_what_is_told_from_memory() -> None:
    """As for what the box has; but not for what has not begun."""
    async with rooms() as there:
        there.configure(a=ONE)
        sink = there.made[0]
        sink.shut()
        there.tell_from_memory("1", "2")
        await eventually(lambda: sink.tries)
        ended = []

        async def finish() -> None:
            await there.lines.finish()
            ended.append(tuple(sink.got))

        async with anyio.create_task_group() as group:
            group.start_soon(finish)
            await anyio.wait_all_tasks_blocked()
            assert [] == ended
            sink.gate.set()

    assert [("1",)] == ended


async def test_two_changes_at_once_leave_one_who_has_something_in_hand_alone() -> None:
    """The one between them never began; what the first one sends would be told twice."""
    async with rooms() as there:
        old = await there.sending()
        there.configure(a=OTHER)
        there.configure(a=SinkSettings(command=("third",)))
        await there.keep("2", "a")
        await anyio.wait_all_tasks_blocked()
        old.gate.set()
        await eventually(lambda: ["2"] == there.made[2].got)

    assert (["1"], 0, ["delivered", "delivered"]) == (old.got, there.made[1].tries, there.box.outcomes())
