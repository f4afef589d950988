"""Folders that may not answer: a look at one is limited in time, and threads that hang are replaced.

Threads that work share one interpreter with the event loop, which then gets its turn less often: with forty
of them it was late by four times as much as with eight, and nothing was done sooner. A thread that waits for
a disk that does not answer takes nothing but a place; so there are few places, and one more for each that
hangs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from shlex import quote
from typing import Final, TypeVar

import anyio
from anyio import to_thread

from handoffd.errors import NotFound, StoreError

# --- a folder that may not answer ---------------------------------------------------------------------
_T = TypeVar("_T")

LIMIT_S = 5.0


class Reach:
    """Access to the folder of a project; `asking` limits how many folders are asked at once."""

    def __init__(self, root: str, asking: anyio.CapacityLimiter) -> None:
        self._asking = asking
        self._root = root
        self._turn = anyio.Lock()
        self._unanswered = False

    async def asked(self, look: Callable[[], _T], limit_s: float = LIMIT_S) -> _T:
        """Return what `look` finds, in a thread, once the looks before it have ended.

        Raises StoreError for silence: at once while the thread of an earlier look still hangs.
        """
        async with self._turn, self._asking:
            if self._unanswered:
                raise _silent(self._root)
            return await _within(limit_s, partial(self._ask, look), self._root)

    def _ask(self, look: Callable[[], _T]) -> _T:
        self._unanswered = True
        try:
            return look()
        finally:
            self._unanswered = False


async def resolved(root: str, limit_s: float = LIMIT_S) -> str:
    """Return where a folder is, without symbolic links. Raises NotFound, and StoreError for silence."""
    path = await _within(limit_s, partial(_folder, root), root)
    if path is None:
        raise NotFound(f"{root} is not a folder", hint=f"ls {quote(os.path.dirname(root))}")
    return path


async def _within(limit_s: float, ask: Callable[[], _T], root: str) -> _T:
    with anyio.move_on_after(limit_s):
        return await to_thread.run_sync(ask, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    raise _silent(root)


def _folder(root: str) -> str | None:
    try:
        path = os.path.realpath(root)
    except ValueError:  # a character that no name can have
        return None
    return path if os.path.isdir(path) else None


def _silent(root: str) -> StoreError:
    why = f"{root} does not answer, as a network mount does that has lost its server"
    return StoreError(why, hint=f"stat {root}")


# --- how many threads there may be --------------------------------------------------------------------
FEW: Final = 8
MOST: Final = 200
LOOK_S: Final = 0.5
LOOKS: Final = 4
"""A thread that is busy at LOOKS consecutive samples is treated as hung."""


def allowed(looks: Iterable[int]) -> int:
    """Return the limit of threads. `looks`: for each busy one, at how many samples in a row it was busy."""
    return min(MOST, FEW + sum(count >= LOOKS for count in looks))


async def follow(places: anyio.CapacityLimiter, look_s: float = LOOK_S) -> None:
    """Keep the limit at what is allowed, until cancelled."""
    looks: dict[object, int] = {}
    while True:
        looks = {one: looks.get(one, 0) + 1 for one in places.statistics().borrowers}
        places.total_tokens = allowed(looks.values())
        await anyio.sleep(look_s)
