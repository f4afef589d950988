"""What could not be recorded is sent from memory, a few times."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
from structlog.testing import capture_logs
from tests.support.eventually import eventually
from tests.unit.notify.making import Recording, notices

from handoffd.notify.ports import Undelivered
from handoffd.notify.retry_policy import Pauses
from handoffd.notify.sink_workers import MOST, TRIES, Terms, Unkept

TERMS = Terms(pauses=Pauses(first_s=0.01, longest_s=0.01), give_up_s=1, jitter=lambda: 0.0)


@asynccontextmanager
async def telling(sink: Recording) -> AsyncIterator[Unkept]:
    """Run it for as long as the block lasts."""
    unkept = Unkept(sink, TERMS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(unkept.run)
        yield unkept
        tasks.cancel_scope.cancel()


async def changed_in_hand(unkept: Unkept, old: Recording, new: Recording, count: int) -> None:
    """Put so many notices, and change the address while the old one has the first in hand."""
    old.shut()
    for notice in notices(count):
        unkept.put(notice)
    await eventually(lambda: old.tries)
    unkept.go_by(new)
    old.gate.set()


async def test_it_is_tried_a_few_times_and_then_lost() -> None:
    """The next one has its own tries."""
    sink = Recording(failures=[Undelivered("no")] * (TRIES + 2))
    async with telling(sink) as unkept:
        for notice in notices(2):
            unkept.put(notice)
        await eventually(lambda: sink.got)

    assert (["1"], TRIES + 3) == (sink.got, sink.tries)


async def test_what_will_never_be_taken_is_not_tried_again() -> None:
    """As for everything else."""
    sink = Recording(failures=[Undelivered("no", worth_retrying=False)])
    async with telling(sink) as unkept:
        for notice in notices(2):
            unkept.put(notice)
        await eventually(lambda: sink.got)

    assert (["1"], 2) == (sink.got, sink.tries)


async def test_memory_is_bounded() -> None:
    """The newest are what a person needs."""
    sink = Recording()
    unkept = Unkept(sink, TERMS)
    for notice in notices(MOST + 5):
        unkept.put(notice)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(unkept.run)
        await eventually(lambda: MOST == len(sink.got))
        tasks.cancel_scope.cancel()

    assert [str(number) for number in range(5, MOST + 5)] == sink.got


async def test_what_waits_goes_to_the_changed_address_at_once() -> None:
    """Also what failed at the old one for good, or rests; each is told once."""
    old, new = Recording(failures=[Undelivered("no", worth_retrying=False)]), Recording()
    async with telling(old) as unkept:
        await changed_in_hand(unkept, old, new, 3)
        await eventually(lambda: 3 == len(new.got))
    assert ([], ["0", "1", "2"], 1) == (old.got, new.got, old.closed)

    old, new = Recording(failures=[Undelivered("no")]), Recording()
    async with telling(old) as unkept:
        unkept.terms = replace(TERMS, pauses=Pauses(first_s=1000, longest_s=1000))
        unkept.put(notices(1)[0])
        await eventually(lambda: old.tries)
        await anyio.wait_all_tasks_blocked()
        unkept.go_by(new)
        await eventually(lambda: new.got)
    assert ([], ["0"]) == (old.got, new.got)


async def test_what_the_old_address_takes_after_all_is_not_told_again() -> None:
    """It was on its way."""
    old, new = Recording(), Recording()
    async with telling(old) as unkept:
        await changed_in_hand(unkept, old, new, 2)
        await eventually(lambda: new.got)

    assert (["0"], ["1"]) == (old.got, new.got)


async def test_to_finish_ends_what_is_being_sent_and_logs_what_is_lost() -> None:
    """That goes for what comes later, too; nothing else has it."""
    sink = Recording()
    sink.shut()
    with anyio.fail_after(60), capture_logs() as logs:
        async with telling(sink) as unkept:
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


async def test_to_finish_does_not_wait_for_a_sink_that_rests() -> None:
    """What failed is lost with the process."""
    sink = Recording(failures=[Undelivered("no")])
    with anyio.fail_after(60), capture_logs() as logs:
        async with telling(sink) as unkept:
            unkept.terms = replace(TERMS, pauses=Pauses(first_s=1000, longest_s=1000))
            unkept.put(notices(1)[0])
            await eventually(lambda: sink.tries)
            await anyio.wait_all_tasks_blocked()
            unkept.finish()
            await unkept.ended.wait()

    assert [("0", "no")] == [(line["id"], line["why"]) for line in logs if line["log_level"] == "error"]
