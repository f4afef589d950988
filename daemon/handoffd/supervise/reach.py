"""Whether a project's folder answers at all.

A network mount that hangs keeps every thread that touches it, and there are only so many: a few
dozen projects on it would take the daemon away from all others. So what a look needs of a folder is
asked by a thread that is given up after a moment, and by no second one while the first still waits.
Those threads are not taken from the ones that work, and what waits for its turn to ask is not silent.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import anyio
from anyio import to_thread

from handoffd.errors import NotFound, StoreError
from handoffd.supervise.services import Services

_T = TypeVar("_T")

LIMIT_S = 5.0


class Reach:
    """The way to one folder, a project's; `asking`: whose turns are taken, if not those of all projects."""

    def __init__(self, root: str, services: Services, asking: anyio.CapacityLimiter | None = None) -> None:
        self._asking = services.asking if asking is None else asking
        self._root = root
        self._waiting = False

    async def asked(self, look: Callable[[], _T], limit_s: float = LIMIT_S) -> _T:
        """Return what `look` finds, in a thread. Raises StoreError for silence, as of the look before."""
        if not self._waiting:
            async with self._asking:
                if not self._waiting:  # nor since
                    return await _within(limit_s, partial(self._ask, look), self._root)
        raise _silent(self._root)

    def _ask(self, look: Callable[[], _T]) -> _T:
        self._waiting = True
        try:
            return look()
        finally:
            self._waiting = False


async def resolved(root: str, limit_s: float = LIMIT_S) -> str:
    """Return where a folder is, without symbolic links. Raises NotFound, and StoreError for silence."""
    path = await _within(limit_s, partial(_folder, root), root)
    if path is None:
        raise NotFound(f"{root} is no folder", hint="give the root of a project")
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
