"""The fan-out: every sink gets every notice, and none of them holds up anything else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
from tests.support.eventually import eventually
from tests.support.notices import NOTICE, serving

from handoffd.clock import SystemClock
from handoffd.notify.fanout import QUEUE_LIMIT, Notifier
from handoffd.notify.notice import Notice
from handoffd.notify.sink import Undelivered
from handoffd.settings import NotifySettings

QUICK = NotifySettings(backoff_s=0.01)


class Recording:
    """A sink that fails `failures` times, then notes what it gets; it waits while `gate` is shut."""

    def __init__(self, name: str = "recording", failures: Sequence[Exception] = ()) -> None:
        self.name = name
        self.failures = list(failures)
        self.tries = 0
        self.got: list[str] = []
        self.gate = anyio.Event()
        self.gate.set()

    def shut(self) -> None:
        """Let deliveries hang from now on."""
        self.gate = anyio.Event()

    async def deliver(self, notice: Notice) -> None:
        """Deliver, hang or fail."""
        self.tries += 1
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.got.append(notice.id)


@asynccontextmanager
async def running(settings: NotifySettings, *sinks: Recording) -> AsyncIterator[Notifier]:
    """Run a notifier for as long as the block lasts."""
    notifier = Notifier(settings, SystemClock(), sinks=sinks)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(notifier.run)
            yield notifier
            group.cancel_scope.cancel()


def notices(count: int) -> list[Notice]:
    """Return `count` notices with the ids 0, 1, …."""
    return [replace(NOTICE, id=str(number)) for number in range(count)]


async def test_every_sink_gets_every_notice_in_order() -> None:
    """Notices arrive in the order in which they were sent."""
    one, two = Recording("one"), Recording("two")
    async with running(QUICK, one, two) as notifier:
        for notice in notices(5):
            notifier.send(notice)
        assert 0 == await notifier.drain(60)

    assert (["0", "1", "2", "3", "4"],) * 2 == (one.got, two.got)


async def test_kinds_nobody_asked_for_are_not_sent() -> None:
    """`events` selects by kind."""
    sink = Recording()
    async with running(NotifySettings(events=("done",)), sink) as notifier:
        notifier.send(replace(NOTICE, id="a", kind="warning"))
        notifier.send(replace(NOTICE, id="b", kind="done"))
        await notifier.drain(60)

    assert ["b"] == sink.got


async def test_a_slow_sink_does_not_hold_up_another() -> None:
    """While one sink hangs, the other delivers."""
    slow, quick = Recording("slow"), Recording("quick")
    slow.shut()
    async with running(QUICK, slow, quick) as notifier:
        for notice in notices(3):
            notifier.send(notice)
        await eventually(lambda: 3 == len(quick.got))

    assert (1, []) == (slow.tries, slow.got)


async def test_a_failure_is_tried_again_and_then_given_up() -> None:
    """Three tries are made; the next notice gets its own."""
    failures = [Undelivered("no"), Undelivered("no"), Undelivered("no"), Undelivered("no")]
    sink = Recording(failures=failures)
    async with running(QUICK, sink) as notifier:
        for notice in notices(2):
            notifier.send(notice)
        await notifier.drain(60)

    assert (["1"], 5) == (sink.got, sink.tries)


async def test_a_failure_that_will_not_pass_is_not_tried_again() -> None:
    """Where trying again is pointless, the notice is given up at once."""
    sink = Recording(failures=[Undelivered("gone", worth_retrying=False)])
    async with running(QUICK, sink) as notifier:
        for notice in notices(2):
            notifier.send(notice)
        await notifier.drain(60)

    assert (["1"], 2) == (sink.got, sink.tries)


async def test_a_sink_that_crashes_is_tried_again() -> None:
    """A bug in a sink costs a try, not the sink."""
    sink = Recording(failures=[RuntimeError("a bug")])
    async with running(QUICK, sink) as notifier:
        notifier.send(NOTICE)
        await notifier.drain(60)

    assert [NOTICE.id] == sink.got


async def test_too_many_notices_cost_the_oldest() -> None:
    """The queue is bounded, sending never blocks, and the newest are what a person needs."""
    sink = Recording()
    notifier = Notifier(QUICK, SystemClock(), sinks=[sink])
    for notice in notices(QUEUE_LIMIT + 5):
        notifier.send(notice)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(notifier.run)
            await notifier.drain(60)
            group.cancel_scope.cancel()

    assert [str(number) for number in range(5, QUEUE_LIMIT + 5)] == sink.got


async def test_drain_has_a_limit_and_counts_what_is_left() -> None:
    """At stop nobody waits for ever; the notice in hand counts as undelivered."""
    sink = Recording()
    sink.shut()
    async with running(QUICK, sink) as notifier:
        for notice in notices(3):
            notifier.send(notice)
        await eventually(lambda: 1 == sink.tries)
        assert 3 == await notifier.drain(0.05)


async def test_drain_of_nothing_returns_at_once() -> None:
    """Without sinks, or without notices, there is nothing to wait for, even if nothing runs."""
    assert 0 == await Notifier(NotifySettings(), SystemClock()).drain(60)
    assert 0 == await Notifier(QUICK, SystemClock(), sinks=[Recording()]).drain(60)


async def test_the_settings_choose_the_sinks(tmp_path: Path) -> None:
    """A configured program and a configured URL are both told; a hanging program delays nobody."""
    with serving(200) as server:
        settings = NotifySettings.model_validate(
            {
                "command": ["/bin/sh", "-c", "echo started >> $HOME/got; sleep 1000"],
                "webhook": {"url": server.address("/hook")},
            }
        )
        notifier = Notifier(settings, SystemClock(), environ={"HOME": str(tmp_path)})
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(notifier.run)
                for notice in notices(2):
                    notifier.send(notice)
                await eventually(lambda: 2 == len(server.requests))
                await eventually((tmp_path / "got").exists)
                group.cancel_scope.cancel()

    assert ["0", "1"] == [body["id"] for _, _, _, body in server.requests]
