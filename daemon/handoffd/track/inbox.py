"""What takes facts in one at a time, decides on each, and owns the work that follows: of a track, or a flow.

An inbox holds facts and questions in the order they came, and the askers that wait for an answer. It is
unbounded on purpose: its producers are few, and a lost fact would be a lost result. No asker waits here for
ever: a question that will not be decided on fails.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio
import anyio.abc
import anyio.lowlevel
import structlog

from handoffd.errors import HandoffdError, Refused, StoreError
from handoffd.journal.records import PendingEffect

E = TypeVar("E")
"""What happens to it."""
D = TypeVar("D")
"""What is decided on that."""


@dataclass(slots=True, eq=False)
class Question(Generic[E, D]):
    """An event whose sender may wait for the decision. `event` None: it is the track's turn."""

    event: E | None
    request: str | None = None
    """The key of the request it came with, if any."""
    decision: D | None = None
    error: Exception | None = None
    _over: anyio.Event = field(default_factory=anyio.Event, init=False)

    def answer(self) -> None:
        """Give the asker the decision or the error."""
        self._over.set()

    def fail(self, error: Exception) -> None:
        """Give the asker an error: nothing was decided."""
        self.error = error
        self.answer()

    async def decided(self) -> D:
        """Return what was decided, once it is committed. Raises what kept it from being decided."""
        await self._over.wait()  # no limit: every question is answered, or failed
        if self.decision is None:
            raise self.error or given_up()
        return self.decision


class Questions(Generic[E, D]):
    """The facts and questions queued for one consumer."""

    def __init__(self) -> None:
        self._waiting: deque[Question[E, D]] = deque()
        self._filled = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        """Whether no question will ever be taken out again."""
        return self._closed

    def put(self, event: E | None, request: str | None = None) -> Question[E, D]:
        """Append a question; once this is closed it fails at once, and never raises here.

        Who posts a fact (a watcher, a slot that became free) is not to suffer from a track that ends.
        """
        question: Question[E, D] = Question(event, request)
        if self._closed:
            question.fail(given_up())
        else:
            self._waiting.append(question)
            self._filled.set()
        return question

    async def take(self) -> Question[E, D]:
        """Return the oldest question, once there is one."""
        await anyio.lowlevel.checkpoint()
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        return self._waiting.popleft()

    def turn_away(self, error: Exception, *, keep: Callable[[E], bool] = lambda _: False) -> None:
        """Fail everything that waits, except for events that `keep` accepts."""
        waiting, self._waiting = self._waiting, deque()
        for question in waiting:
            if question.event is not None and keep(question.event):
                self._waiting.append(question)
            else:
                question.fail(error)

    def close(self) -> None:
        """Fail everything that waits, and everything that comes later."""
        self._closed = True
        self.turn_away(given_up())


def given_up() -> Refused:
    """Return the refusal of a question whose track ended before it was decided on."""
    return Refused(
        "the project was removed, or is being started again after a crash",
        code="RESTARTING",
        hint="handoffd status",
    )


# --- commits that end whole ---------------------------------------------------------------------------
FINISH_LIMIT_S = 5.0
"""How long a commit may go on when its consumer ends. A disk that answers needs milliseconds; one that hangs
must not hold up the stop of the daemon, which systemd kills after a minute."""


class Commits:
    """What makes the decisions of a consumer durable, each of them whole also when that is ended."""

    def __init__(self, finish_limit_s: float = FINISH_LIMIT_S) -> None:
        self.stuck: str | None = None
        """Why a fact that must not be lost waits for the journal, while it does."""
        self._finish_limit_s = finish_limit_s
        self._shielded = False
        """Whether `finish` waits for the end of the consumer."""
        self._committing: anyio.CancelScope | None = None

    async def finish(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Wait until cancelled; a commit that is cancelled at the same time then has some seconds to end.

        Cut off at once, it would leave a decision in the journal that its caller and the files do not show.
        """
        self._shielded = True
        try:
            task_status.started()
            await anyio.sleep_forever()
        finally:
            self._shielded = False
            if self._committing is not None:
                self._committing.deadline = anyio.current_time() + self._finish_limit_s

    @asynccontextmanager
    async def kept_whole(self) -> AsyncIterator[None]:
        """Let a commit end though its task is cancelled, within the limit that `finish` sets."""
        await anyio.lowlevel.checkpoint_if_cancelled()  # nothing new is committed then
        self._committing = scope = anyio.CancelScope(shield=self._shielded)
        try:
            with scope:
                yield
        finally:
            self._committing = None
        if scope.cancelled_caught:
            await anyio.lowlevel.checkpoint()  # the shield is down: this raises the cancellation of the task


# --- the consumer -------------------------------------------------------------------------------------
class Consumer(ABC, Generic[E, D]):
    """Takes one fact at a time from its inbox; nothing else changes what it keeps.

    The order of every step is the promise: after the commit a decision has happened, even if this process
    dies; before it, nothing has. It has no loop where a verb is given without a daemon.
    """

    committed: Commits
    retry_s: float
    """How long a fact waits for a journal that cannot be written, before it is tried again."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self._questions: Questions[E, D] = Questions()
        self._alone = asyncio.Lock()
        """Held while a verb decides without a loop, so that one is not begun meanwhile."""
        self._tasks: anyio.abc.TaskGroup | None = None
        self._lasting = 0
        """Tasks that were begun and have not ended."""
        self._listens = False
        """Whether it does nothing but wait."""

    # --- what is its own -------------------------------------------------------------------------
    @abstractmethod
    async def _apply(self, question: Question[E, D]) -> D:
        """Decide on a fact, commit the decision, and carry it out."""

    @abstractmethod
    async def _take_turn(self) -> None:
        """Go as far as it can by itself."""

    @abstractmethod
    async def _take_up(self, pending: tuple[PendingEffect, ...]) -> None:
        """Carry out what was ordered before there was this loop."""

    @abstractmethod
    def _rest(self) -> None:
        """Let go of what is only held while something is decided."""

    @abstractmethod
    def must_not_be_lost(self, event: E) -> bool:
        """Return whether a fact exists nowhere else: what a person asked can be asked again."""

    def _context(self) -> Mapping[str, str]:
        """Return what a line of the log says of what is at work."""
        return {}

    # --- the inbox -------------------------------------------------------------------------------
    def post(self, event: E) -> None:
        """Hand in a fact; it is decided on in its turn."""
        self._questions.put(event)

    def wake(self) -> None:
        """Let it take its turn, if it has one."""
        self._questions.put(None)

    async def give(self, event: E, request: str | None = None) -> D:
        """Hand in an event and return what was decided. `request`: the key that is recorded with it.

        Raises HandoffdError when it was not recorded: the consumer answers every question, and when
        it ends or cannot write the journal, it fails the ones that wait.
        """
        async with self._alone:
            if self._tasks is None and not self._questions.closed:
                return await self._apply(Question(event, request))
        return await self._questions.put(event, request).decided()

    async def settle(self, event: E) -> None:
        """Hand in a fact and return when it is committed, however long the journal is unwritable."""
        await self._questions.put(event).decided()

    def begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start lasting work in its task group; without a loop it is left for the daemon."""
        if self._tasks is not None:
            self._lasting += 1
            self._tasks.start_soon(self._last, work, name=name)

    async def _last(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        finally:
            self._lasting -= 1

    def close(self) -> None:
        """Accept nothing more: it is not supervised any longer."""
        self._questions.close()
        self._rest()

    def reopen(self) -> None:
        """Accept facts and verbs again, after a temporary loop."""
        self._questions = Questions()

    @property
    def lasting(self) -> bool:
        """Whether it has a loop: a daemon's, not a verb's that was given without one."""
        return self._tasks is not None

    # --- its loop --------------------------------------------------------------------------------
    async def consume(self, pending: tuple[PendingEffect, ...], started: Callable[[], None]) -> None:
        """Take up what an earlier life left undone, then consume facts until cancelled.

        It has `started` when whatever is given to it waits for its turn.
        """
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self.committed.finish)
                async with self._alone:
                    self._tasks = tasks
                started()
                await self._take_up(pending)
                while True:
                    await self._answer(await self._next_question())
        finally:
            self._tasks, self._lasting, self._listens = None, 0, False
            self.close()  # after a crash another one is built from the journal

    async def _next_question(self) -> Question[E, D]:
        self._listens = True
        question = await self._questions.take()
        self._listens = False
        return question

    async def _answer(self, question: Question[E, D]) -> None:
        with structlog.contextvars.bound_contextvars(**self._context()):
            await self._carry_out(question)

    async def _carry_out(self, question: Question[E, D]) -> None:
        try:
            if question.event is not None:
                await self._apply_stubbornly(question)
            await self._take_turn()
        except HandoffdError as error:
            # A turn that failed is repeated by the poller; a refusal is the answer to a verb.
            tell = self._log.info if isinstance(error, Refused) else self._log.error
            tell("not done", error=str(error))
            question.error = error
        except Exception as error:
            question.error = error  # the caller must not wait for the restart that follows
            raise
        finally:
            self._rest()
            question.answer()

    async def _apply_stubbornly(self, question: Question[E, D]) -> None:
        """Apply a fact even if the journal is unwritable for a while; a verb fails at once instead."""
        try:
            while True:
                try:
                    await self._apply(question)
                except StoreError as error:
                    if question.event is None or not self.must_not_be_lost(question.event):
                        raise
                    self._log.error(
                        "journal unwritable, trying again", error=str(error), retry_s=self.retry_s
                    )
                    self.committed.stuck = error.message
                    self._questions.turn_away(error, keep=self.must_not_be_lost)
                else:
                    return
                await anyio.sleep(self.retry_s)
        finally:
            self.committed.stuck = None
