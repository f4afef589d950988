"""One sink and what waits for it: takes notices out of the box, sends them, and says what came of it.

Only a window of what waits is in memory, and of that only the numbers; the box has the rest. What to
do next is decided in `outbox.py`. A box that cannot be written or read is asked again: a notice that
was taken is not sent again in this life for want of a note of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import anyio
import structlog

from handoffd.clock import Clock
from handoffd.errors import StoreError
from handoffd.notify.box import Box, Expired
from handoffd.notify.notice import Notice
from handoffd.notify.outbox import Pauses, Queue, Send, joined, next_step, not_taken, taken, without
from handoffd.notify.sink import Sink, Undelivered

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

WINDOW = 200
"""How many waiting notices of a sink are known at once."""

REST_AFTER_S = 60.0
"""A sink that had nothing to do for so long lets go of what it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a sink is tried: with which pauses, and until when."""

    pauses: Pauses
    give_up_s: float
    jitter: Callable[[], float]
    box_retry_s: float = 5.0
    """How long a box that cannot be read or written is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """Notices of one track that a sink will not get any more. `first`: the id of the first of them."""

    sink: str
    project: str
    track: str
    count: int
    first: str
    why: str


class _Finishing(Exception):
    """Nothing more is to be begun, and nothing is in hand that must be noted."""


class Line:
    """Delivers what the box holds for one sink, until cancelled."""

    def __init__(
        self, sink: Sink, box: Box, clock: Clock, terms: Terms, lived_s: Callable[[], float]
    ) -> None:
        self.sink = sink
        self.idle = anyio.Event()
        """Set while nothing is due."""
        self.idle.set()
        self.next_s: float | None = None
        """When it is tried next, by the monotonic clock; None when nothing waits for a pause."""
        self._box = box
        self._clock = clock
        self.terms = terms
        self._lived_s = lived_s
        self._queue = Queue()
        self._newest = 0
        self._more = True
        """Whether the box may hold notices that are not known here."""
        self._hint = anyio.Event()
        self.finishing = anyio.Event()
        """Set when it was told to finish."""
        self.ended = anyio.Event()
        """Set when it was told to finish, and has."""

    def finish(self) -> None:
        """Begin nothing more. What is being sent goes on to its end: cut short, it would be told twice."""
        self.finishing.set()
        self._hint.set()

    def hint(self) -> None:
        """Tell that the box may hold more."""
        self._more = True
        self._be_busy()
        self._hint.set()

    def _be_busy(self) -> None:
        if self.idle.is_set():  # else somebody may wait for this very one
            self.idle = anyio.Event()

    async def run(self, given_up: Callable[[GivenUp], None]) -> None:
        """Deliver until cancelled, or told to finish; what is given up is passed on."""
        try:
            with suppress(_Finishing):
                await self._run(given_up)
        finally:
            self.sink.close()
            if self.finishing.is_set():
                self.ended.set()

    async def _run(self, given_up: Callable[[GivenUp], None]) -> None:
        self._be_busy()
        while not self.finishing.is_set():
            hint = self._hint = anyio.Event()
            await self._look()
            step = next_step(self._queue, self._clock.monotonic())
            if isinstance(step, Send):
                await self._send(step.number, given_up)
                continue
            self.next_s = step.until_s
            self.idle.set()
            await self._pause(hint, step.until_s)
            self.next_s = None

    async def _pause(self, hint: anyio.Event, until_s: float | None) -> None:
        """Wait for news, or for a time of the monotonic clock."""
        limit = REST_AFTER_S if until_s is None else until_s - self._clock.monotonic()
        with anyio.move_on_after(limit):
            await hint.wait()
        if until_s is None and not hint.is_set():
            self.sink.close()
            await hint.wait()  # without a limit: there may be no news for days

    async def _look(self) -> None:
        room = WINDOW - len(self._queue.waiting)
        if not self._more or room < WINDOW // 2:
            return
        self._more = False
        name, after = self.sink.name, self._newest
        found = await self._surely("look for", lambda: self._box.waiting(name, after, room))
        if found:
            self._more = self._more or len(found) == room
            self._newest = found[-1].number
            self._queue = joined(self._queue, found)

    async def _send(self, number: int, given_up: Callable[[GivenUp], None]) -> None:
        notice = await self._surely("read", lambda: self._box.read(number))
        if self.finishing.is_set():  # it came during one of the waits since this was last asked
            return
        if notice is None:
            self._queue = without(self._queue, frozenset({number}))
            await self._give_up(number, "its record cannot be read", given_up)
            return
        failure = await attempt(self.sink, notice)
        now_s, pauses, jitter = self._clock.monotonic(), self.terms.pauses, self.terms.jitter()
        about = {"sink": self.sink.name, "id": notice.id, "kind": notice.kind, "project": notice.project}
        if failure is None:
            self._queue = taken(self._queue, number, now_s, pauses, jitter)
            await self._surely("mark", lambda: self._box.delivered(number, self._lived_s()), taken=True)
            log.debug("notice delivered", **about)
        elif not failure.worth_retrying:
            # It answered, so it works: only this notice is not for it.
            self._queue = taken(self._queue, number, now_s, pauses, jitter)
            await self._give_up(number, failure.why, given_up)
        else:
            self._queue = not_taken(self._queue, number, now_s, pauses, jitter)
            rest_s = round(self._queue.rest_until_s - now_s, 1)
            log.warning("notice not delivered, trying again", why=failure.why, rest_s=rest_s, **about)
            await self._surely("count", lambda: self._box.failed(number, failure.why, self._lived_s()))
            await self._expire(failure.why, given_up)

    async def _give_up(self, number: int, why: str, given_up: Callable[[GivenUp], None]) -> None:
        lost = await self._surely("give up", lambda: self._box.give_up(number, why, self._lived_s()))
        self._tell((lost,), why, given_up)

    async def _expire(self, why: str, given_up: Callable[[GivenUp], None]) -> None:
        name, age_s = self.sink.name, self.terms.give_up_s
        lost = await self._surely("give up", lambda: self._box.expire(name, age_s, self._lived_s()))
        self._queue = without(self._queue, frozenset(number for one in lost for number in one.numbers))
        self._tell(lost, why, given_up)

    def _tell(self, lost: tuple[Expired, ...], why: str, given_up: Callable[[GivenUp], None]) -> None:
        for one in lost:
            project, track = one.lane
            count = len(one.numbers)
            log.error(
                "notice given up", sink=self.sink.name, id=one.first, count=count, project=project, why=why
            )
            given_up(
                GivenUp(
                    sink=self.sink.name, project=project, track=track, count=count, first=one.first, why=why
                )
            )

    async def _surely(self, activity: str, work: Callable[[], Awaitable[_T]], *, taken: bool = False) -> _T:
        """Return what the box says, however long it takes to say it.

        Raises _Finishing when it cannot say it and this is to finish, unless a notice was `taken`.
        """
        while True:
            try:
                return await work()
            except StoreError as error:
                log.warning(
                    "notices wait for the journal",
                    sink=self.sink.name,
                    activity=activity,
                    error=error.message,
                )
            if taken:
                await anyio.sleep(self.terms.box_retry_s)
                continue
            with anyio.move_on_after(self.terms.box_retry_s):
                await self.finishing.wait()
                raise _Finishing


async def attempt(sink: Sink, notice: Notice) -> Undelivered | None:
    """Try once to deliver; return why it failed, or None when it did not."""
    try:
        await sink.deliver(notice)
    except Undelivered as failure:
        return failure
    except Exception:
        log.exception("notification sink crashed", sink=sink.name, id=notice.id)
        return Undelivered("the sink crashed")
    return None
