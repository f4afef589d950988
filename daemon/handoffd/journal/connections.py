"""The journal's connections: one thread that writes, and a few that read.

Writing: fsync is what a durable commit costs, and one fsync can serve many callers. The thread takes all
requests that have queued up meanwhile, runs them in one transaction, and reports to the event loop once.
No caller pays for a neighbour: when a transaction fails, its requests are run again one by one, and only the
culprit gets the error. A caller that is cancelled while it waits changes nothing
for the others; its own request may still be committed.

Reading: in WAL mode readers see the last commit and never wait for the writer, nor it for them. They have
their own small thread limit, because watchers hold some of the shared one for ever.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread
import structlog
from msgspec import Struct

from handoffd.errors import StoreError
from handoffd.failpoints import reached
from handoffd.files.errors import storage_error
from handoffd.journal.database import open_reader

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

Work = Callable[[sqlite3.Connection], _T]
"""What to do inside a transaction; run again from the start when a neighbour made it fail."""

_READERS = 4
"""Connections that read at the same time."""
_LARGEST_BATCH = 512
_ANSWERED_AT_ONCE = 4
"""How many callers go on before the event loop looks at anything else: each has a decision to show."""


class Run(Protocol):
    """How work gets to the database: `activity` says in an error what was being done."""

    def __call__(self, activity: str, work: Work[_T], /) -> Awaitable[_T]:
        """Return what `work` returned."""


class Readers:
    """A few connections, opened when needed and kept until `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._limit = anyio.CapacityLimiter(_READERS)
        self._idle: deque[sqlite3.Connection] = deque()
        self._closed = False

    async def run(self, activity: str, query: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return what `query` returned; StoreError when the database cannot be read."""
        if self._closed:
            raise StoreError(f"cannot {activity}: {self._path}: the journal is closed")
        return await anyio.to_thread.run_sync(self._ask, activity, query, limiter=self._limit)

    def close(self) -> None:
        """Close the connections; one in use is closed when its question is answered."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _ask(self, activity: str, query: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            connection = self._idle.pop() if self._idle else open_reader(self._path)
        except (OSError, sqlite3.Error) as error:
            raise storage_error(activity, self._path, error) from error
        try:
            answer = query(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error):
                raise storage_error(activity, self._path, error) from error
            raise
        self._idle.append(connection)
        if self._closed:
            self.close()
        return answer


class _Request(Struct, frozen=True, eq=False):
    activity: str
    work: Work[Any]
    answer: asyncio.Future[Any]


class _Outcome(Struct, frozen=True):
    request: _Request
    value: Any = None
    error: Exception | None = None


class Writer:
    """Owns the writing connection. Made, used and closed on one event loop.

    `committed` is called on the loop with the values of each batch's successful requests, before
    any caller resumes.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path, committed: Callable[[Sequence[object]], None]
    ) -> None:
        self._connection = connection
        self._path = path
        self._identity = _identity(path)
        self._committed = committed
        # Plain asyncio: anyio has no wake-up from a thread that does not block that thread.
        self._loop = asyncio.get_running_loop()
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._closing = False
        self._unanswered = 0
        self.waiting_since: float | None = None
        """Since when callers have waited without any answer, in monotonic seconds; None: no caller waits."""
        self.outage: str | None = None
        """Why the latest write failed, until one succeeds."""
        # A daemon thread: a process that dies without `close` must not hang on it, and SQLite
        # rolls back what was not committed.
        self._thread = threading.Thread(target=self._run, name="journal writer", daemon=True)
        self._thread.start()

    async def run(self, activity: str, work: Work[_T]) -> _T:
        """Return what `work` returned, once its transaction is on the disk.

        Raises StoreError when the disk or database fails (`activity` says what was being done), and
        whatever `work` itself raised, rolled back.
        """
        if self._closing:
            raise StoreError(f"cannot {activity}: {self._path}: the journal is closed")
        answer: asyncio.Future[_T] = self._loop.create_future()
        if not self._unanswered:
            self.waiting_since = self._loop.time()
        self._unanswered += 1
        self._requests.put(_Request(activity, work, answer))
        # No limit: the thread always answers, and giving up on a slow disk would not undo the write.
        return await answer

    async def close(self) -> None:
        """Write what is queued, then close the connection. Harmless when repeated."""
        if not self._closing:
            self._closing = True
            self._requests.put(None)
        # Shielded: this is the write of results already promised, and it ends by itself.
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)

    # --- on the thread ---------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            while batch := self._next_batch():
                self._report(self._perform(batch))
        finally:
            self._connection.close()

    def _next_batch(self) -> list[_Request]:
        """Return all that waits, at least one request; nothing once the writer is closing."""
        first = self._requests.get()
        if first is None:
            return []
        batch = [first]
        with suppress(queue.Empty):
            while len(batch) < _LARGEST_BATCH:
                request = self._requests.get_nowait()
                if request is None:
                    self._requests.put(None)
                    break
                batch.append(request)
        return batch

    def _perform(self, batch: list[_Request]) -> list[_Outcome]:
        try:
            values = self._transact(batch)
        except Exception as error:
            if len(batch) > 1:
                log.debug("batch failed, trying one by one", requests=len(batch), error=str(error))
                return [outcome for request in batch for outcome in self._perform([request])]
            return [_Outcome(batch[0], error=self._explained(batch[0], error))]
        return [_Outcome(request, value) for request, value in zip(batch, values, strict=True)]

    def _transact(self, batch: list[_Request]) -> list[Any]:
        if self._connection.in_transaction:
            # A rollback failed, together with the disk. Nothing may be added to that transaction.
            self._connection.execute("ROLLBACK")
        if _identity(self._path) != self._identity:
            raise StoreError(
                f"{self._path} was moved or replaced while handoffd had it open; nothing more is written",
                hint="put it back, then: handoffd stop; handoffd doctor   (says how the daemon is started)",
            )
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            values = [request.work(self._connection) for request in batch]
            reached("before_commit")
            self._connection.execute("COMMIT")
            reached("after_commit")
        except BaseException:
            # SQLite has already rolled back by itself after some errors, a full disk among them.
            if self._connection.in_transaction:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            raise
        return values

    def _explained(self, request: _Request, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error | OSError):
            explained = storage_error(request.activity, self._path, error)
            explained.__cause__ = error
            return explained
        return error

    def _report(self, outcomes: list[_Outcome]) -> None:
        # The loop may be gone when the process is being torn down; then no caller waits any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._answer, outcomes)

    # --- on the loop -----------------------------------------------------------------------------
    def _answer(self, outcomes: list[_Outcome]) -> None:
        self._unanswered -= len(outcomes)
        self.waiting_since = self._loop.time() if self._unanswered else None
        self._committed([outcome.value for outcome in outcomes if outcome.error is None])
        self._wake(outcomes)

    def _wake(self, outcomes: list[_Outcome]) -> None:
        """Let some callers go on, and the rest after their turn."""
        if rest := outcomes[_ANSWERED_AT_ONCE:]:
            self._loop.call_soon(self._wake, rest)
        for outcome in outcomes[:_ANSWERED_AT_ONCE]:
            if outcome.error is None:
                self.outage = None
            elif isinstance(outcome.error, StoreError):
                self.outage = outcome.error.message
            answer = outcome.request.answer
            if answer.done():  # its caller was cancelled
                continue
            if outcome.error is None:
                answer.set_result(outcome.value)
            else:
                answer.set_exception(outcome.error)


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
