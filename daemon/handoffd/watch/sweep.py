"""Slow sweep over the projects' known files.

The watch is a convenience: inotify queues overflow in silence, network mounts say nothing, and a
watched folder that is replaced goes deaf. The sweep is what makes a missed change a delay instead
of a hang. It is also what makes the watcher's rebuilds lossless: whatever falls between an old
and a new watch differs from the last signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import anyio
import anyio.to_thread

from handoffd.watch.folders import Identity, Signature, signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one sweep found: the roots that changed, and the `.ai` folder of every root it looked at."""

    changed: frozenset[str]
    folders: dict[str, Identity | None]


@dataclass(slots=True)
class _Known:
    hint_first: bool
    last: Signature | None = field(default=None)


class Sweeper:
    """Calls `touched` for every project whose known files differ from what the last sweep saw."""

    def __init__(self, touched: Callable[[str], None]) -> None:
        self._touched = touched
        self._known: dict[str, _Known] = {}
        self._turn = anyio.Lock()

    def add(self, root: str, *, hint_first: bool = False) -> None:
        """Include `root`. Its first sight is only remembered, unless `hint_first` asks for a hint as well."""
        self._known.setdefault(root, _Known(hint_first))

    def remove(self, root: str) -> None:
        """Forget `root`."""
        self._known.pop(root, None)

    async def sweep_now(self, roots: Iterable[str] | None = None) -> Swept:
        """Look at `roots` (None: at all) in a worker thread, hint the changed ones and return them.

        Sweeps take turns, so a signature is never replaced by an older one. A file system that
        hangs holds the sweep up for as long as it hangs (no limit would give its thread back),
        but not a cancellation.
        """
        async with self._turn:
            wanted = [root for root in (self._known if roots is None else roots) if root in self._known]
            seen = await anyio.to_thread.run_sync(_look, wanted, abandon_on_cancel=True)
            changed = frozenset(root for root, now in seen.items() if self._is_news(root, now))
        for root in changed:
            self._touched(root)
        return Swept(changed=changed, folders={root: now.ai for root, now in seen.items()})

    def _is_news(self, root: str, now: Signature) -> bool:
        known = self._known.get(root)
        if known is None:
            return False  # removed while the thread looked
        before, known.last = known.last, now
        return known.hint_first if before is None else before != now


def _look(roots: list[str]) -> dict[str, Signature]:
    return {root: signature(root) for root in roots}
