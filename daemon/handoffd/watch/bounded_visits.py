"""Visits to many projects by one worker thread, of which a disk that hangs takes only its own.

A call to a dead network mount does not come back, and no limit gives its thread back. So a visit that
takes too long is left behind with the project it hangs in; the others go on with another thread, and that
project is passed over until its call returns.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
import anyio.to_thread
import structlog

log = structlog.get_logger(__name__)

Found = TypeVar("Found")

LIMIT_S = 5.0
"""How long a visit to some hundred projects may take, which is milliseconds as a rule."""
SILENT = "its folder does not answer"


@dataclass(slots=True)
class _Round(Generic[Found]):
    found: dict[str, Found] = field(default_factory=dict)
    at: str | None = None
    left_behind: bool = False


class Visits:
    """Calls a function for each of many projects in a thread, and knows which of them hang."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._silent: set[str] = set()
        self._lock = threading.Lock()
        # One of its own: threads that hang are not to keep others from theirs.
        self._threads = anyio.CapacityLimiter(math.inf)

    @property
    def silent(self) -> frozenset[str]:
        """The projects that were visited and have not answered yet."""
        return frozenset(self._silent)

    async def pay(self, roots: Sequence[str], look: Callable[[str], Found]) -> dict[str, Found]:
        """Return what `look` found by root; those that do not answer are missing. `look` must not raise."""
        found: dict[str, Found] = {}
        while left := [root for root in roots if root not in found and root not in self._silent]:
            one = _Round[Found]()
            try:
                with anyio.move_on_after(self._limit_s) as limit:
                    await anyio.to_thread.run_sync(
                        self._visit, one, left, look, abandon_on_cancel=True, limiter=self._threads
                    )
            finally:
                self._leave(one)
            found |= one.found
            if limit.cancelled_caught:
                log.warning("a project's folder does not answer", project=one.at, after_s=self._limit_s)
        return found

    def _leave(self, one: _Round[Found]) -> None:
        """Expect nothing more of a visit; where it is just now, it hangs."""
        with self._lock:
            one.left_behind = True
            if one.at is not None:
                self._silent.add(one.at)

    def _visit(self, one: _Round[Found], roots: Sequence[str], look: Callable[[str], Found]) -> None:
        for root in roots:
            if not self._comes_to(one, root):
                return
            seen = look(root)
            with self._lock:
                one.at = None
                if one.left_behind:
                    self._silent.discard(root)
                    return
                one.found[root] = seen

    def _comes_to(self, one: _Round[Found], root: str) -> bool:
        with self._lock:
            if not one.left_behind:
                one.at = root
            return not one.left_behind
