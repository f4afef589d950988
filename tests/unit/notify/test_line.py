"""One sink and its line: what is tried again, what is given up, and what a broken box costs."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from tests.support.eventually import eventually
from tests.support.notices import NOTICE, MemoryBox, serving
from tests.unit.notify.making import QUICK, Recording, notices, running

from handoffd.clock import SystemClock
from handoffd.errors import StoreError
from handoffd.notify.notice import Notice
from handoffd.notify.notifier import terms_of
from handoffd.notify.ports import Parcel, Undelivered
from handoffd.notify.retry_policy import Waiting
from handoffd.notify.sink_workers import GivenUp, Line, attempt
from handoffd.notify.sinks import WebhookSink
from handoffd.settings.notify import NotifySettings, WebhookSettings

NO_ROUTE = Undelivered("no route")
DAY_S = 24 * 3600.0


async def test_a_sink_that_fails_for_a_while_gets_all_in_order() -> None:
    """However often it fails, within the time."""
    sink, box = Recording(failures=[NO_ROUTE] * 4), MemoryBox()
    async with running(QUICK, sink, box=box) as notifier:
        for notice in notices(3):
            notifier.send(notice)
        await eventually(lambda: 3 == len(sink.got))
        await eventually(lambda: ["delivered"] * 3 == box.outcomes())

    assert (["0", "1", "2"], 7) == (sink.got, sink.tries)
    assert [4, 0, 0] == [one.tries for one in box.kept]


async def test_a_sink_that_crashes_is_tried_again() -> None:
    """A bug in a sink is logged, and treated like any failure."""
    sink = Recording(failures=[KeyError("bug")])
    async with running(QUICK, sink) as notifier:
        notifier.send(NOTICE)
        await eventually(lambda: sink.got)

    assert 2 == sink.tries


async def test_a_notice_that_will_never_be_taken_is_given_up_at_once() -> None:
    """The sink said so; it works, so the next one follows without a pause, and somebody hears of it."""
    lost: list[GivenUp] = []
    sink, box = Recording(failures=[Undelivered("422", worth_retrying=False)]), MemoryBox()
    async with running(NotifySettings(), sink, box=box, lost=lost) as notifier:
        for notice in notices(2):
            notifier.send(notice)
        await eventually(lambda: box.outcomes() and None not in box.outcomes())

    assert (["1"], 2, ["given_up", "delivered"]) == (sink.got, sink.tries, box.outcomes())
    assert [
        GivenUp(sink="recording", project="/srv/shop", track="main", count=1, first="0", why="422")
    ] == lost


async def test_what_is_too_old_is_given_up_all_of_it() -> None:
    """Also what was never tried itself, so that a sink that is dead for ever holds nothing for ever."""
    lost: list[GivenUp] = []
    sink, box = Recording(), MemoryBox()
    sink.dead = NO_ROUTE
    box.lived_s = 2 * DAY_S
    async with running(QUICK, sink, box=box, lost=lost) as notifier:
        for notice in notices(10):
            notifier.send(notice)
        await eventually(lambda: sink.tries > 3 and len(box.kept) == 10)
        assert [None] * 10 == box.outcomes()
        for one in box.kept:
            one.born_s -= DAY_S
        await eventually(lambda: 10 == len(lost))

    assert ["given_up"] * 10 == box.outcomes()
    assert {"no route"} == {one.why for one in lost}
    assert 10 == sum(one.count for one in lost)


async def test_age_goes_on_from_one_life_to_the_next() -> None:
    """Not by the wall clock: time between the lives does not count."""
    box, sink = MemoryBox(), Recording()
    sink.dead = NO_ROUTE
    box.lived_s = 5000.0
    async with running(QUICK, sink, box=box) as notifier:
        notifier.send(NOTICE)
        await eventually(lambda: sink.tries > 1)
    assert 5000 <= box.kept[0].born_s <= box.lived_s < 5100


async def test_a_box_that_cannot_note_a_delivery_does_not_make_it_happen_twice() -> None:
    """It is noted when it can be; until then the sink gets nothing more."""
    sink, box = Recording(), MemoryBox()
    sink.shut()
    async with running(QUICK, sink, box=box) as notifier:
        for notice in notices(2):
            notifier.send(notice)
        await eventually(lambda: sink.tries)
        await eventually(lambda: 2 == len(box.kept))
        box.broken = True
        sink.gate.set()
        await eventually(lambda: sink.got)
        box.broken = False
        await eventually(lambda: ["delivered"] * 2 == box.outcomes())

    assert (["0", "1"], 2) == (sink.got, sink.tries)


async def test_a_record_that_cannot_be_read_is_given_up() -> None:
    """The rest goes on."""
    box, sink = MemoryBox(), Recording()
    async with running(QUICK, sink, box=box) as notifier:
        notifier.send(replace(NOTICE, id=""))
        notifier.send(NOTICE)
        await eventually(lambda: sink.got)
        await eventually(lambda: ["given_up", "delivered"] == box.outcomes())


async def test_a_real_server_that_answers_500_then_nothing_then_200_is_told_once_it_listens() -> None:
    """Each time under the same id."""
    with serving(500) as server:
        settings = WebhookSettings.model_validate({"url": server.address("/hook"), "timeout_s": 0.2})
        sink, box = WebhookSink(settings), MemoryBox()
        async with running(QUICK, sink, box=box) as notifier:  # type: ignore[arg-type]
            notifier.send(NOTICE)
            await eventually(lambda: len(server.requests) >= 2)
            server.hold.clear()
            server.status = 200
            await eventually(lambda: "did not answer" in box.kept[0].why)
            server.hold.set()
            await eventually(lambda: ["delivered"] == box.outcomes())

    assert {NOTICE.id} == {headers["Idempotency-Key"] for _, _, headers, _ in server.requests}


class Slow(MemoryBox):
    """A box that answers one question only when `gate` is opened."""

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
        """Return what waits."""
        await self._wait("waiting")
        return await super().waiting(sink, after, limit)

    async def read(self, number: int) -> Notice | None:
        """Return a notice."""
        await self._wait("read")
        return await super().read(number)


@pytest.mark.parametrize("question", ["waiting", "read"])
async def test_who_is_told_to_finish_while_the_box_is_asked_sends_nothing_more(question: str) -> None:
    """At a stop it might be cut short, at an edit it would go to the old address."""
    sink, box = Recording(), Slow(question)
    await box.keep([Parcel(notice=NOTICE, sinks=(sink.name,))], 0)
    line = Line(sink, box, SystemClock(), terms_of(QUICK), lambda: 0.0)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(line.run, lambda _: None)
            await box.asked.wait()
            line.finish()
            box.gate.set()
            await line.ended.wait()

    assert (0, [None]) == (sink.tries, box.outcomes())


async def test_who_is_told_to_finish_does_not_wait_for_a_box_that_answers_nothing() -> None:
    """Nothing is in hand; a stop waits for what is, and would say that it was cut short."""
    sink, box = Recording(), MemoryBox()
    box.broken = True
    terms = replace(terms_of(QUICK), box_retry_s=1000)
    line = Line(sink, box, SystemClock(), terms, lambda: 0.0)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(line.run, lambda _: None)
            await anyio.wait_all_tasks_blocked()
            line.finish()
            await line.ended.wait()

    assert (0, 1) == (sink.tries, sink.closed)


class Unmarking(MemoryBox):
    """A box that cannot note deliveries at first."""

    refusals = 3

    async def delivered(self, number: int, lived_s: float) -> None:
        """Mark a notice in the end."""
        self.refusals -= 1
        if self.refusals >= 0:
            raise StoreError("no space left")
        await super().delivered(number, lived_s)


async def test_who_is_told_to_finish_still_notes_what_was_taken() -> None:
    """However often the box must be asked for that: it would be told twice."""
    sink, box = Recording(), Unmarking()
    await box.keep([Parcel(notice=one, sinks=(sink.name,)) for one in notices(2)], 0)
    sink.shut()
    terms = replace(terms_of(QUICK), box_retry_s=0.01)
    line = Line(sink, box, SystemClock(), terms, lambda: 0.0)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(line.run, lambda _: None)
            await eventually(lambda: sink.tries)
            line.finish()
            sink.gate.set()
            await line.ended.wait()

    assert (["0"], ["delivered", None]) == (sink.got, box.outcomes())


async def test_one_attempt_says_why_it_failed() -> None:
    """None is a delivery."""
    assert await attempt(Recording(), NOTICE) is None
    assert NO_ROUTE is await attempt(Recording(failures=[NO_ROUTE]), NOTICE)
    crashed = await attempt(Recording(failures=[KeyError("bug")]), NOTICE)
    assert crashed is not None
    assert crashed.worth_retrying
