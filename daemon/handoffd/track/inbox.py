"""A track's inbox: facts and questions in the order they came, and the askers that wait for an answer.

Unbounded on purpose: its producers are few, and a lost fact would be a lost result. No asker waits here for
ever: a question that will not be decided on fails.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from handoffd.engine.decision import Decision
from handoffd.engine.events import Event
from handoffd.errors import Refused


@dataclass(slots=True, eq=False)
class Question:
    """An event whose sender may wait for the decision. `event` None: it is the track's turn."""

    event: Event | None
    request: str | None = None
    """The key of the request it came with, if any."""
    decision: Decision | None = None
    error: Exception | None = None
    _over: anyio.Event = field(default_factory=anyio.Event, init=False)

    def answer(self) -> None:
        """Give the asker the decision or the error."""
        self._over.set()

    def fail(self, error: Exception) -> None:
        """Give the asker an error: nothing was decided."""
        self.error = error
        self.answer()

    async def decided(self) -> Decision:
        """Return what was decided, once it is committed. Raises what kept it from being decided."""
        await self._over.wait()  # no limit: every question is answered, or failed
        if self.decision is None:
            raise self.error or given_up()
        return self.decision


class Questions:
    """The facts and questions queued for the one consumer of a track."""

    def __init__(self) -> None:
        self._waiting: deque[Question] = deque()
        self._filled = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def closed(self) -> bool:
        """Whether no question will ever be taken out again."""
        return self._closed

    def put(self, event: Event | None, request: str | None = None) -> Question:
        """Append a question; once this is closed it fails at once, and never raises here.

        Who posts a fact (a watcher, a slot that became free) is not to suffer from a track that ends.
        """
        question = Question(event, request)
        if self._closed:
            question.fail(given_up())
        else:
            self._waiting.append(question)
            self._filled.set()
        return question

    async def take(self) -> Question:
        """Return the oldest question, once there is one."""
        await anyio.lowlevel.checkpoint()
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        return self._waiting.popleft()

    def turn_away(self, error: Exception, *, keep: Callable[[Event], bool] = lambda _: False) -> None:
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


def must_not_be_lost(event: Event) -> bool:
    """Return whether a fact exists nowhere else: what a person asked can be asked again, an end cannot."""
    return event.kind in {
        "baseline_measured", "executor_exited", "checks_finished", "spawn_refused", "executor_started",
        "handoff_settled", "landed", "landing_refused",
    }  # fmt: skip
