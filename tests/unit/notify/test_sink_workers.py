"""The workers of sinks: retries, notices that are given up, a broken box, changed settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs
from tests.support.eventually import eventually
from tests.support.notices import NOTICE, MemoryBox
from tests.unit.notify.making import QUICK, Recording, notices, running, send

from handoffd.clock import SystemClock
from handoffd.engine.notice import Notice, Parcel, Waiting
from handoffd.errors import StoreError
from handoffd.notify.notifier import terms_of
from handoffd.notify.ports import Undelivered
from handoffd.notify.retry_policy import Pauses
from handoffd.notify.sink_workers import MOST, TRIES, GivenUp, Line, Lines, Terms, Unkept, attempt
from handoffd.settings.notify import NotifySettings, SinkSettings

ONE, OTHER, THIRD = (SinkSettings(command=(name,)) for name in ("one", "other", "third"))


class Rooms:
    """Workers over a box, and every sink that was made for them."""

    def __init__(self) -> None:
        self.box = MemoryBox()
        self.made: list[Recording] = []
        self.lines = Lines(self.box, SystemClock(), lambda: 0.0)

    def configure(self, **sinks: SinkSettings) -> None:
        """Apply settings with these sinks."""

        def make(name: str, _: SinkSettings) -> Recording:
            self.made.append(Recording(name))
            return self.made[-1]

        self.lines.configure(sinks, make, terms_of(QUICK))

    async def keep(self, name: str, *sinks: str) -> None:
        """Record a notice, and hint at it."""
        await self.box.keep([Parcel(notice=replace(NOTICE, id=name), sinks=sinks)], 0)
        self.lines.hint()

    async def sending(self) -> Recording:
        """Return the only sink, `a`, which delivers notice 1 until its gate is opened."""
        (sink,) = self.made
        sink.shut()
        await self.keep("1", "a")
        await eventually(lambda: sink.tries)
        return sink

    def tell_from_memory(self, *names: str) -> None:
        """Give `a` notices that cannot be recorded."""
        unkept = self.lines.unkept("a")
        assert unkept is not None
        for name in names:
            unkept.put(replace(NOTICE, id=name))


@asynccontextmanager
async def rooms(*names: str, is_open: bool = True) -> AsyncIterator[Rooms]:
    """Run workers of sinks with these names for as long as the block lasts."""
    there = Rooms()
    there.configure(**dict.fromkeys(names, ONE))
    if is_open:
        there.lines.opened.set()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(there.lines.run, lambda _: None)
            yield there
            group.cancel_scope.cancel()


async def test_nothing_is_sent_before_the_box_is_opened() -> None:
    """Notices of an earlier daemon may be for other sinks."""
    async with rooms("a", is_open=False) as there:
        await there.keep("1", "a")
        await anyio.wait_all_tasks_blocked()
        assert [] == there.made[0].got
        there.lines.opened.set()
        await eventually(lambda: there.made[0].got)


async def test_an_unchanged_sink_continues() -> None:
    """Its current notice is not sent again because another sink changed."""
    async with rooms("a", "b") as there:
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


async def test_a_changed_sink_gets_the_queue_of_the_old_one() -> None:
    """A corrected address gets all that the wrong one did not take; a removed sink gets nothing more."""
    async with rooms("a", "gone") as there:
        for sink in there.made:
            sink.dead = Undelivered("no route")
        await there.keep("1", "a", "gone")
        await eventually(lambda: all(sink.tries for sink in there.made))
        there.configure(a=OTHER)
        await eventually(lambda: ["1"] == there.made[2].got)
        await eventually(lambda: all(sink.closed for sink in there.made[:2]))
        assert there.lines.unkept("gone") is None
        assert {"a": OTHER} == there.lines.sinks


@pytest.mark.parametrize("edits", [(OTHER,), (OTHER, THIRD)])
async def test_the_old_sink_completes_its_delivery_and_the_new_one_does_not_repeat_it(
    edits: tuple[SinkSettings, ...],
) -> None:
    """People edit settings while a notice is being sent; of two edits only the last sink starts."""
    async with rooms("a") as there:
        old = await there.sending()
        for edit in edits:
            there.configure(a=edit)
        await there.keep("2", "a")
        await anyio.wait_all_tasks_blocked()
        assert [] == there.made[-1].got
        old.gate.set()
        await eventually(lambda: ["2"] == there.made[-1].got)

    assert (["1"], ["delivered", "delivered"]) == (old.got, there.box.outcomes())
    assert [1, *[0] * (len(edits) - 1), 1] == [sink.tries for sink in there.made]


async def test_finishing_does_not_wait_for_a_box_that_was_never_opened() -> None:
    """No sink has sent anything; also when the settings changed meanwhile."""
    async with rooms("a", "b", is_open=False) as there:
        await anyio.wait_all_tasks_blocked()
        there.configure(a=OTHER, b=ONE)
        await anyio.wait_all_tasks_blocked()
        await there.lines.finish()

    assert [0, 0, 0] == [sink.tries for sink in there.made]


async def test_a_sink_that_is_added_while_all_finish_does_not_start() -> None:
    """The stopping daemon would interrupt its delivery."""
    async with rooms("a") as there:
        old = await there.sending()
        async with anyio.create_task_group() as group:
            group.start_soon(there.lines.finish)
            await anyio.wait_all_tasks_blocked()
            there.configure(a=OTHER, b=ONE)
            await there.keep("2", "a", "b")
            old.gate.set()
        await anyio.wait_all_tasks_blocked()

    assert [1, 0, 0] == [sink.tries for sink in there.made]


async def test_notices_in_memory_go_to_the_changed_sink() -> None:
    """They are recorded nowhere."""
    async with rooms("a") as there:
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


async def test_finishing_completes_a_delivery_from_memory() -> None:
    """It starts no other."""
    async with rooms("a", is_open=False) as there:
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


NO_ROUTE = Undelivered("no route")


DAY_S = 24 * 3600.0


async def test_a_sink_that_fails_for_a_while_gets_all_in_order() -> None:
    """Each failure is counted."""
    sink, box = Recording(failures=[NO_ROUTE] * 4), MemoryBox()
    async with running(QUICK, sink, box=box) as notifier:
        send(notifier.send, 3)
        await eventually(lambda: 3 == len(sink.got))
        await eventually(lambda: ["delivered"] * 3 == box.outcomes())

    assert (["0", "1", "2"], 7) == (sink.got, sink.tries)
    assert [4, 0, 0] == [one.tries for one in box.kept]


async def test_a_notice_that_will_never_be_taken_is_given_up_at_once() -> None:
    """The next one follows without a pause, and the loss is reported."""
    lost: list[GivenUp] = []
    sink, box = Recording(failures=[Undelivered("422", worth_retrying=False)]), MemoryBox()
    async with running(NotifySettings(), sink, box=box, lost=lost) as notifier:
        send(notifier.send, 2)
        await eventually(lambda: box.outcomes() and None not in box.outcomes())

    assert (["1"], 2, ["given_up", "delivered"]) == (sink.got, sink.tries, box.outcomes())
    assert [
        GivenUp(sink="recording", project="/srv/shop", track="main", count=1, first="0", why="422")
    ] == lost


async def test_what_is_too_old_is_given_up_all_of_it() -> None:
    """Also notices that were never tried, so a dead sink keeps nothing for ever."""
    lost: list[GivenUp] = []
    sink, box = Recording(), MemoryBox()
    sink.dead = NO_ROUTE
    box.lived_s = 2 * DAY_S
    async with running(QUICK, sink, box=box, lost=lost) as notifier:
        send(notifier.send, 10)
        await eventually(lambda: sink.tries > 3 and len(box.kept) == 10)
        assert [None] * 10 == box.outcomes()
        for one in box.kept:
            one.born_s -= DAY_S
        await eventually(lambda: 10 == len(lost))

    assert ["given_up"] * 10 == box.outcomes()
    assert {"no route"} == {one.why for one in lost}
    assert 10 == sum(one.count for one in lost)


async def test_age_goes_on_from_one_life_to_the_next() -> None:
    """Time without a daemon does not count."""
    box, sink = MemoryBox(), Recording()
    sink.dead = NO_ROUTE
    box.lived_s = 5000.0
    async with running(QUICK, sink, box=box) as notifier:
        notifier.send(NOTICE)
        await eventually(lambda: sink.tries > 1)
    assert 5000 <= box.kept[0].born_s <= box.lived_s < 5100


async def test_a_box_that_cannot_note_a_delivery_does_not_make_it_happen_twice() -> None:
    """The delivery is recorded later; until then the sink gets nothing more."""
    sink, box = Recording(), MemoryBox()
    sink.shut()
    async with running(QUICK, sink, box=box) as notifier:
        send(notifier.send, 2)
        await eventually(lambda: sink.tries)
        await eventually(lambda: 2 == len(box.kept))
        box.broken = True
        sink.gate.set()
        await eventually(lambda: sink.got)
        box.broken = False
        await eventually(lambda: ["delivered"] * 2 == box.outcomes())

    assert (["0", "1"], 2) == (sink.got, sink.tries)


async def test_a_record_that_cannot_be_read_is_given_up() -> None:
    """The next one is delivered."""
    box, sink = MemoryBox(), Recording()
    async with running(QUICK, sink, box=box) as notifier:
        notifier.send(replace(NOTICE, id=""))
        notifier.send(NOTICE)
        await eventually(lambda: sink.got)
        await eventually(lambda: ["given_up", "delivered"] == box.outcomes())


class SlowBox(MemoryBox):
    """A box that answers one kind of question only when `gate` is opened."""

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = question
        self.asked = anyio.Event()
        self.gate = anyio.Event()

    async def _wait(self, question: str) -> None:
        if question == self.question:
            self.asked.set()
            await self.gate.wait()

    async def waiting(self, sink: str, after: int, limit: int) -> tuple[Waiting, ...]:
        """Return the queue."""
        await self._wait("waiting")
        return await super().waiting(sink, after, limit)

    async def read(self, number: int) -> Notice | None:
        """Return a notice."""
        await self._wait("read")
        return await super().read(number)


@asynccontextmanager
async def finishing(sink: Recording, box: MemoryBox, box_retry_s: float = 0.01) -> AsyncIterator[Line]:
    """Run a sink's worker until it has finished, as the block tells it to."""
    terms = replace(terms_of(QUICK), box_retry_s=box_retry_s)
    line = Line(sink, box, SystemClock(), terms, lambda: 0.0)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(line.run, lambda _: None)
            yield line
            await line.ended.wait()


@pytest.mark.parametrize("question", ["waiting", "read"])
async def test_a_worker_that_finishes_while_the_box_answers_sends_nothing_more(question: str) -> None:
    """A stop might interrupt the delivery, and after an edit it would go to the old address."""
    sink, box = Recording(), SlowBox(question)
    await box.keep([Parcel(notice=NOTICE, sinks=(sink.name,))], 0)
    async with finishing(sink, box) as line:
        await box.asked.wait()
        line.finish()
        box.gate.set()

    assert (0, [None]) == (sink.tries, box.outcomes())


async def test_a_worker_finishes_without_a_box_that_fails() -> None:
    """It delivers nothing, so a stop need not wait."""
    sink, box = Recording(), MemoryBox()
    box.broken = True
    async with finishing(sink, box, box_retry_s=1000) as line:
        await anyio.wait_all_tasks_blocked()
        line.finish()

    assert (0, 1) == (sink.tries, sink.closed)


class Unmarking(MemoryBox):
    """A box that cannot record deliveries at first."""

    refusals = 3

    async def delivered(self, number: int, lived_s: float) -> None:
        """Record it after three refusals."""
        self.refusals -= 1
        if self.refusals >= 0:
            raise StoreError("no space left")
        await super().delivered(number, lived_s)


async def test_a_worker_that_finishes_records_its_delivery() -> None:
    """It asks the box until it can: the notice would be sent twice."""
    sink, box = Recording(), Unmarking()
    await box.keep([Parcel(notice=one, sinks=(sink.name,)) for one in notices(2)], 0)
    sink.shut()
    async with finishing(sink, box) as line:
        await eventually(lambda: sink.tries)
        line.finish()
        sink.gate.set()

    assert (["0"], ["delivered", None]) == (sink.got, box.outcomes())


async def test_an_attempt_returns_the_failure() -> None:
    """None means delivered."""
    assert await attempt(Recording(), NOTICE) is None
    assert NO_ROUTE is await attempt(Recording(failures=[NO_ROUTE]), NOTICE)
    crashed = await attempt(Recording(failures=[KeyError("bug")]), NOTICE)
    assert crashed is not None
    assert crashed.worth_retrying


TERMS = Terms(pauses=Pauses(first_s=0.01, longest_s=0.01), give_up_s=1, jitter=lambda: 0.0)


@asynccontextmanager
async def from_memory(sink: Recording) -> AsyncIterator[Unkept]:
    """Run deliveries from memory for as long as the block lasts."""
    unkept = Unkept(sink, TERMS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(unkept.run)
        yield unkept
        tasks.cancel_scope.cancel()


async def changed_in_hand(unkept: Unkept, old: Recording, new: Recording, count: int) -> None:
    """Put `count` notices, and change the address while the old one delivers the first."""
    old.shut()
    send(unkept.put, count)
    await eventually(lambda: old.tries)
    unkept.go_by(new)
    old.gate.set()


@pytest.mark.parametrize(
    ("failures", "tries"),
    [([Undelivered("no")] * (TRIES + 2), TRIES + 3), ([Undelivered("no", worth_retrying=False)], 2)],
)
async def test_a_notice_from_memory_is_tried_a_few_times_or_once(
    failures: list[Exception], tries: int
) -> None:
    """Then it is lost; the next one has its own tries. A refused one is not tried again."""
    sink = Recording(failures=failures)
    async with from_memory(sink) as unkept:
        send(unkept.put, 2)
        await eventually(lambda: sink.got)

    assert (["1"], tries) == (sink.got, sink.tries)


async def test_memory_is_bounded() -> None:
    """The newest notices are kept."""
    sink = Recording()
    async with from_memory(sink) as unkept:
        send(unkept.put, MOST + 5)
        await eventually(lambda: MOST == len(sink.got))

    assert [str(number) for number in range(5, MOST + 5)] == sink.got


async def test_queued_notices_go_to_the_changed_address_at_once() -> None:
    """Also one that the old address refused, or that rests; each is sent once."""
    old, new = Recording(failures=[Undelivered("no", worth_retrying=False)]), Recording()
    async with from_memory(old) as unkept:
        await changed_in_hand(unkept, old, new, 3)
        await eventually(lambda: 3 == len(new.got))
    assert ([], ["0", "1", "2"], 1) == (old.got, new.got, old.closed)

    old, new = Recording(failures=[Undelivered("no")]), Recording()
    async with from_memory(old) as unkept:
        unkept.terms = replace(TERMS, pauses=Pauses(first_s=1000, longest_s=1000))
        unkept.put(notices(1)[0])
        await eventually(lambda: old.tries)
        await anyio.wait_all_tasks_blocked()
        unkept.go_by(new)
        await eventually(lambda: new.got)
    assert ([], ["0"]) == (old.got, new.got)


async def test_a_notice_that_the_old_address_takes_is_not_repeated() -> None:
    """It was being sent when the address changed."""
    old, new = Recording(), Recording()
    async with from_memory(old) as unkept:
        await changed_in_hand(unkept, old, new, 2)
        await eventually(lambda: new.got)

    assert (["0"], ["1"]) == (old.got, new.got)


async def test_finishing_completes_the_delivery_and_logs_lost_notices() -> None:
    """Later ones are lost, too: they are recorded nowhere."""
    sink = Recording()
    sink.shut()
    with anyio.fail_after(60), capture_logs() as logs:
        async with from_memory(sink) as unkept:
            first, second, third = notices(3)
            unkept.put(first)
            unkept.put(second)
            await eventually(lambda: sink.tries)
            unkept.finish()
            sink.gate.set()
            await unkept.ended.wait()
            unkept.put(third)

    assert (["0"], 1) == (sink.got, sink.closed)
    assert ["1", "2"] == [line["id"] for line in logs if line["log_level"] == "error"]


async def test_finishing_does_not_wait_for_a_sink_that_rests() -> None:
    """The failed notice is lost."""
    sink = Recording(failures=[Undelivered("no")])
    with anyio.fail_after(60), capture_logs() as logs:
        async with from_memory(sink) as unkept:
            unkept.terms = replace(TERMS, pauses=Pauses(first_s=1000, longest_s=1000))
            unkept.put(notices(1)[0])
            await eventually(lambda: sink.tries)
            await anyio.wait_all_tasks_blocked()
            unkept.finish()
            await unkept.ended.wait()

    assert [("0", "no")] == [(line["id"], line["why"]) for line in logs if line["log_level"] == "error"]
