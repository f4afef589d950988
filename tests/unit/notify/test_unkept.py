"""What could not be recorded is sent from memory, a few times."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from tests.support.eventually import eventually
from tests.unit.notify.making import Recording, notices

from handoffd.notify.line import Terms
from handoffd.notify.outbox import Pauses
from handoffd.notify.sink import Undelivered
from handoffd.notify.unkept import MOST, TRIES, Unkept

TERMS = Terms(pauses=Pauses(first_s=0.01, longest_s=0.01), give_up_s=1, jitter=lambda: 0.0)


@asynccontextmanager
async def telling(sink: Recording) -> AsyncIterator[Unkept]:
    """Run it for as long as the block lasts."""
    unkept = Unkept(sink, TERMS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(unkept.run)
        yield unkept
        tasks.cancel_scope.cancel()


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
