"""Questions to the journal, answered in worker threads on connections that cannot write.

In WAL mode readers see the last commit and never wait for the writer, nor it for them. They have
their own small thread limit, because watchers hold some of the shared one for ever.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from handoffd.errors import StoreError
from handoffd.store.database import open_reader
from handoffd.store.faults import storage_error

_T = TypeVar("_T")

_AT_ONCE = 4


class Readers:
    """A few connections, opened when needed and kept until `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._limit = anyio.CapacityLimiter(_AT_ONCE)
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
