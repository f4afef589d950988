"""Slow sweep over the projects' known files.

The watch is a convenience: inotify queues overflow, network mounts say nothing, and a watched folder
that is replaced goes deaf. The sweep is what makes a missed change a delay instead of a hang. It is
also what makes a change of watches lossless: whatever falls between an old and a new one differs from
the last signature.

Looking and comparing is a worker thread's business, a slice at a time; the event loop is handed only
what differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

import anyio

from handoffd.watch.folders import NOWHERE, Identity, Signature, differ, identity_in, signature
from handoffd.watch.visits import Visits

SLICE = 500
"""So many projects are looked at in one go, some 5 ms on a disk that is in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The roots whose known files changed, and those whose `.ai` folder is not the one expected there."""

    changed: frozenset[str]
    moved: frozenset[str]


class Sweeper:
    """Calls `touched` for every project whose known files differ from what the last sweep saw."""

    def __init__(self, touched: Callable[[str], None]) -> None:
        self._touched = touched
        self._known: dict[str, Signature | None] = {}
        self._hint_first: set[str] = set()
        self._turn = anyio.Lock()
        self._visits = Visits()

    def add(self, root: str, *, hint_first: bool = False) -> None:
        """Include `root`. Its first sight is only remembered, unless `hint_first` asks for a hint as well."""
        if root in self._known:
            return
        self._known[root] = None
        if hint_first:
            self._hint_first.add(root)

    def remove(self, root: str) -> None:
        """Forget `root`."""
        self._known.pop(root, None)
        self._hint_first.discard(root)

    async def sweep_now(
        self, roots: Iterable[str] | None = None, *, expected: Mapping[str, Identity] | None = None
    ) -> Swept:
        """Look at `roots` (None: at all) in a worker thread, hint the changed ones and return them.

        Of roots in `expected` the `.ai` folder is compared with that one, else with the one that was
        there last. Sweeps take turns, slice by slice, so a signature is never replaced by an older one.
        A project whose disk hangs is passed over until it answers.
        """
        wanted = iter(list(self._known) if roots is None else [root for root in roots if root in self._known])
        changed: set[str] = set()
        moved: set[str] = set()
        while some := list(islice(wanted, SLICE)):
            async with self._turn:
                # File systems go by this clock, and nobody can set it for them.
                look = partial(_look, known=self._known, expected=expected or {}, now_ns=time.time_ns())
                seen = await self._visits.pay(some, look)
                hints = [
                    root
                    for root, one in seen.items()
                    if one.news is not None and self._is_news(root, one.news)
                ]
            moved.update(root for root, one in seen.items() if one.moved)
            changed.update(hints)
            for root in hints:
                self._touched(root)
        return Swept(changed=frozenset(changed), moved=frozenset(moved))

    def _is_news(self, root: str, now: Signature) -> bool:
        if root not in self._known:
            return False  # removed while the thread looked
        before, self._known[root] = self._known[root], now
        hint_first = root in self._hint_first
        self._hint_first.discard(root)
        return hint_first if before is None else differ(before, now)


class _Sight(NamedTuple):
    news: Signature | None
    """The signature, if it is another one than before."""
    moved: bool


_AS_BEFORE = _Sight(None, moved=False)


def _look(
    root: str, *, known: Mapping[str, Signature | None], expected: Mapping[str, Identity], now_ns: int
) -> _Sight:
    """Return what is new about a project. `known` may change meanwhile: who takes the result looks again."""
    before = known.get(root)
    now = signature(root, before or NOWHERE, now_ns=now_ns)
    folder = expected.get(root, None if before is None else identity_in(before))
    moved = folder is not None and folder != identity_in(now)
    return _AS_BEFORE if now == before and not moved else _Sight(None if now == before else now, moved)
