"""A worker for each sink: takes notices out of the box, sends them, and records the results.

Only a window of the queue is in memory, and of that only the numbers; the box has the rest. What to do
next is decided in `retry_policy`. A box that cannot be written or read is asked again: a notice that was
taken is not sent again in this life for want of a note of it. What cannot be recorded at all is sent from
memory (`Unkept`).

`Lines` keeps the workers as the settings have them now. A sink that the settings leave as it was goes on
undisturbed when they change. A changed sink gets a new worker, which finds its queue in the box.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

import anyio
import structlog
from msgspec import Struct

from handoffd.clock import Clock
from handoffd.engine.notice import Expired, Notice
from handoffd.errors import StoreError
from handoffd.notify.ports import Box, Sink, Undelivered
from handoffd.notify.retry_policy import Pauses, Queue, Send, joined, next_step, not_taken, taken, without
from handoffd.settings.notify import SinkSettings

log = structlog.get_logger(__name__)


# --- one sink ----------------------------------------------------------------------------------------
_T = TypeVar("_T")

WINDOW = 200
"""How many waiting notices of a sink are known at once."""

REST_AFTER_S = 60.0
"""A sink that had nothing to do for so long lets go of what it holds."""


class Terms(Struct, frozen=True, kw_only=True):
    """How a sink is tried: with which pauses, and until when."""

    pauses: Pauses
    give_up_s: float
    jitter: Callable[[], float]
    box_retry_s: float = 5.0
    """How long a box that cannot be read or written is left alone."""


class GivenUp(Struct, frozen=True, kw_only=True):
    """Notices of one track that a sink will not get any more. `first`: the id of the first of them."""

    sink: str
    project: str
    track: str
    count: int
    first: str
    why: str


class _Finishing(Exception):
    """Nothing more may start, and no result must be recorded."""


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
        """Set when the worker was asked to finish."""
        self.ended = anyio.Event()
        """Set when the worker has finished on request."""

    def finish(self) -> None:
        """Start nothing more. A notice being sent is completed: cut short, it would be sent twice."""
        self.finishing.set()
        self._hint.set()

    def hint(self) -> None:
        """Tell that the box may hold more."""
        self._more = True
        self._be_busy()
        self._hint.set()

    def _be_busy(self) -> None:
        if self.idle.is_set():  # otherwise a task may wait for this very event
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
            if not hint.is_set():  # else the box got more while we looked
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

        Raises _Finishing if it cannot record the result and should finish, unless a notice was `taken`.
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


# --- what could not be recorded: a full disk above all -----------------------------------------------
MOST = 100
"""How many wait at once; the oldest makes room."""
TRIES = 6

_OVER = "its sink is not in the settings any more, or the daemon ends"


class Unkept:
    """The notices that one sink gets from memory, also when its settings change."""

    def __init__(self, sink: Sink, terms: Terms) -> None:
        self._sink = sink
        self.terms = terms
        self._waiting: deque[Notice] = deque(maxlen=MOST)
        self._filled = anyio.Event()
        self._changed = anyio.Event()
        self._finishing = False
        self.begun = False
        """Whether it runs or has run; set by the code that starts it."""
        self.ended = anyio.Event()
        """Set when it has run."""

    def put(self, notice: Notice) -> None:
        """Take a notice; never blocks."""
        if self._finishing:
            self._lose(notice, _OVER)
        else:
            self._waiting.append(notice)
            self._filled.set()

    def go_by(self, sink: Sink) -> None:
        """Use another sink from now on, for queued notices and for the current one if it fails."""
        self._sink = sink
        self._changed.set()

    def finish(self) -> None:
        """Begin nothing more. What is being sent goes on to its end, and is not tried again."""
        self._finishing = True
        self._changed.set()
        self._filled.set()

    async def run(self) -> None:
        """Deliver until cancelled, or told to finish; what is lost with that is logged."""
        try:
            while not self._finishing:
                self._filled = anyio.Event()
                while self._waiting and not self._finishing:
                    await self._deliver(self._waiting.popleft())
                if not self._finishing:
                    await self._filled.wait()  # no limit: as a rule there is nothing here
        finally:
            while self._waiting:
                self._lose(self._waiting.popleft(), _OVER)
            self._sink.close()
            self.ended.set()

    async def _deliver(self, notice: Notice) -> None:
        while True:
            sink, self._changed = self._sink, anyio.Event()
            why = await self._try(sink, notice)
            if sink is not self._sink:
                sink.close()  # its line may have let go of it before
            if why is None or self._finishing or not self._changed.is_set():
                break
        if why is None:
            log.info("notice delivered that could not be recorded", **self._about(notice))
        else:
            self._lose(notice, why)

    async def _try(self, sink: Sink, notice: Notice) -> str | None:
        """Try a few times, or until something has changed; return why it failed, None when it did not."""
        why = ""
        for tries in range(1, TRIES + 1):
            failure = await attempt(sink, notice)
            if failure is None:
                return None
            why = failure.why
            if not failure.worth_retrying or tries == TRIES:
                break
            with anyio.move_on_after(self.terms.pauses.after(tries, self.terms.jitter())):
                await self._changed.wait()
                break
        return why

    def _lose(self, notice: Notice, why: str) -> None:
        log.error("notice given up that could not be recorded", why=why, **self._about(notice))

    def _about(self, notice: Notice) -> dict[str, str]:
        return {"sink": self._sink.name, "id": notice.id, "project": notice.project}


# --- all sinks ---------------------------------------------------------------------------------------
class _Way(Struct, kw_only=True):
    settings: SinkSettings
    line: Line
    unkept: Unkept
    before: Line | None = None
    """The line that the sink had by its last settings, if that may still be sending."""
    begun: bool = False


class Lines:
    """The lines by the names of their sinks. They deliver while `run` runs, and once the box is `opened`."""

    def __init__(self, box: Box, clock: Clock, lived_s: Callable[[], float]) -> None:
        self._box = box
        self._clock = clock
        self._lived_s = lived_s
        self._ways: dict[str, _Way] = {}
        self._finishing = False
        self._changed = anyio.Event()
        self.opened = anyio.Event()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sinks there are."""
        return tuple(self._ways)

    @property
    def sinks(self) -> Mapping[str, SinkSettings]:
        """Their settings."""
        return {name: way.settings for name, way in self._ways.items()}

    def __iter__(self) -> Iterator[Line]:
        return iter([way.line for way in self._ways.values()])

    def configure(
        self, wanted: Mapping[str, SinkSettings], made: Callable[[str, SinkSettings], Sink], terms: Terms
    ) -> None:
        """Have these sinks from now on, in this order; `made` returns one that is new or changed."""
        before, self._ways = self._ways, {}
        for name, settings in wanted.items():
            way = before.pop(name, None)
            if way is None or way.settings != settings:
                sink = made(name, settings)
                line = Line(sink, self._box, self._clock, terms, self._lived_s)
                if way is None:
                    way = _Way(settings=settings, line=line, unkept=Unkept(sink, terms))
                else:
                    way.unkept.go_by(sink)
                    way = _Way(settings=settings, line=line, unkept=way.unkept, before=_finished(way))
            way.line.terms = way.unkept.terms = terms
            self._ways[name] = way
        for way in before.values():
            _finished(way)
            way.unkept.finish()
        self._changed.set()

    def hint(self, name: str | None = None) -> None:
        """Tell the line of a sink, or all, that the box may hold more."""
        for way in [way for other, way in self._ways.items() if name in {None, other}]:
            way.line.hint()

    async def finish(self) -> None:
        """Begin nothing more, and return when what was being sent is over: as long as sinks may take.

        What is configured from then on is not begun either.
        """
        self._finishing = True
        ways = tuple(self._ways.values())
        lines = [_finished(way) for way in ways]
        for way in ways:
            way.unkept.finish()
        ends = [line.ended for line in lines if line is not None]
        for ended in ends + [way.unkept.ended for way in ways if way.unkept.begun]:
            await ended.wait()

    def unkept(self, name: str) -> Unkept | None:
        """Return what tells a sink of that which cannot be recorded."""
        way = self._ways.get(name)
        return None if way is None else way.unkept

    async def run(self, given_up: Callable[[GivenUp], None]) -> None:
        """Deliver until cancelled; calls `given_up` for each notice that it stops trying to deliver."""
        try:
            await self._run(given_up)
        finally:
            self.opened = anyio.Event()
            for way in self._ways.values():
                way.begun = way.unkept.begun = False

    async def _run(self, given_up: Callable[[GivenUp], None]) -> None:
        async with anyio.create_task_group() as group:
            while True:
                self._changed = anyio.Event()
                for name, way in self._ways.items() if not self._finishing else ():
                    if not way.begun:
                        way.begun = True
                        group.start_soon(self._follow, way, given_up, name=f"notify by {name}")
                    if not way.unkept.begun:
                        way.unkept.begun = True
                        group.start_soon(way.unkept.run, name=f"notify by {name} from memory")
                await self._changed.wait()  # without a limit: settings may never change

    async def _follow(self, way: _Way, given_up: Callable[[GivenUp], None]) -> None:
        await _first(self.opened, way.line.finishing)
        if way.before is not None:  # what that has in hand, this one would find in the box as well
            await way.before.ended.wait()
        await way.line.run(given_up)


def _finished(way: _Way) -> Line | None:
    """Tell the line of a way to finish; return the one that may still be sending, if there is one."""
    way.line.finish()
    return way.line if way.begun else way.before


async def _first(*events: anyio.Event) -> None:
    """Return when one of these is set."""

    async def watch(event: anyio.Event) -> None:
        await event.wait()
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for event in events:
            group.start_soon(watch, event)
