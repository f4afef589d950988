"""Watching by watchfiles, which runs on every system but can neither add nor remove a path, so:

- projects are spread over a few shards, one watchfiles watcher each; a change of a shard's
  projects builds a new watcher, live before the old one stops;
- a folder that is replaced costs a rebuild of its shard as well;
- a fault (a name that is not UTF-8 ends a whole watcher) costs the project that caused it its
  watch until the next sweep, and the others a rebuild.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskGroup

from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import Listener
from handoffd.watch.demand import LIMIT_REACHED, ROOTS_PER_SHARD
from handoffd.watch.folders import Place, place_of
from handoffd.watch.shard import Fault, Watch, bearable, open_watch

log = structlog.get_logger(__name__)

_BATCH_S = 0.02
_FIRST_BACK_OFF_S = 0.05
_LAST_BACK_OFF_S = 5.0
_CALM_S = 60.0


@dataclass(slots=True, eq=False)
class _Shard:
    roots: set[str] = field(default_factory=set)
    watch: Watch | None = None
    dirty: bool = False
    failures: int = 0
    failed_at: float = -math.inf
    not_before: float = -math.inf


class WatchfilesBackend:
    """A `Backend` that leaves it to watchfiles; one thread a shard waits for it."""

    def __init__(self, settings: WatchSettings) -> None:
        self._settings = settings
        self._shards: list[_Shard] = []
        self._shard_of: dict[str, _Shard] = {}
        self._wary: set[str] = set()
        self._refused: set[str] = set()
        self._wake = anyio.Event()
        self._threads = anyio.CapacityLimiter(math.inf)

    def add(self, root: str) -> None:
        """Watch `root` soon; many additions become one rebuild."""
        if root not in self._shard_of:
            shard = self._shard_of[root] = self._roomiest()
            shard.roots.add(root)
        self._mark(self._shard_of[root])

    def remove(self, root: str) -> None:
        """Watch `root` no more, soon."""
        shard = self._shard_of.pop(root, None)
        if shard is not None:
            shard.roots.discard(root)
            self._wary.discard(root)
            self._refused.discard(root)
            self._mark(shard)

    def renew(self, roots: Iterable[str]) -> None:
        """Rebuild the shards of `roots`."""
        for shard in {self._shard_of[root] for root in roots if root in self._shard_of}:
            self._mark(shard)

    def recover(self) -> None:
        """Do nothing: a burst is no proof that events were lost, and what went deaf the sweep gives away."""

    def configure(self, settings: WatchSettings) -> None:
        """Go by these settings from now on; a shard that is live keeps its own until it is rebuilt."""
        self._settings = settings

    async def run(self, listener: Listener) -> None:
        """Watch until cancelled."""
        for shard in self._shards:
            shard.watch = None
            self._mark(shard)
        async with anyio.create_task_group() as group:
            while True:
                for shard in await self._due():
                    await self._rebuild(shard, group, listener)

    def _roomiest(self) -> _Shard:
        roomiest = min(self._shards, key=lambda shard: len(shard.roots), default=None)
        if roomiest is not None and (
            len(roomiest.roots) < ROOTS_PER_SHARD or len(self._shards) >= self._settings.shards
        ):
            return roomiest
        self._shards.append(_Shard())
        return self._shards[-1]

    def _mark(self, shard: _Shard) -> None:
        shard.dirty = True
        self._wake.set()

    async def _due(self) -> list[_Shard]:
        """Wait until a shard must be built anew, and a moment longer: additions come in bursts."""
        while True:
            now = anyio.current_time()
            dirty = [shard for shard in self._shards if shard.dirty]
            due = [shard for shard in dirty if shard.not_before <= now]
            if due:
                await anyio.sleep(_BATCH_S)
                return due
            self._wake = anyio.Event()
            # Without a shard that backs off there is nothing to do until something is marked.
            with anyio.move_on_at(min((shard.not_before for shard in dirty), default=math.inf)):
                await self._wake.wait()

    async def _rebuild(self, shard: _Shard, group: TaskGroup, listener: Listener) -> None:
        shard.dirty = False
        roots = sorted(shard.roots)
        barred = {root: why for root in roots if (why := listener.barred(root)) is not None}
        wary = frozenset(self._wary)
        found = await anyio.to_thread.run_sync(_places, roots, barred, wary, abandon_on_cancel=True)
        watch, refused = await self._open(shard, found)
        old, shard.watch = shard.watch, watch
        if watch is not None:
            group.start_soon(self._serve, shard, watch, listener, name="watch")
        if old is not None:
            old.stop()
        there = [place for place in found if place.root in shard.roots]
        self._refused = self._refused.difference(roots) | refused.keys()
        await listener.placed(
            [place.refused(refused[place.root]) if place.root in refused else place for place in there]
        )

    async def _open(self, shard: _Shard, places: list[Place]) -> tuple[Watch | None, dict[str, str]]:
        """Open a new watch beside the old one, or in its stead where the limit leaves no room for both."""
        covered_first = sorted(places, key=lambda place: place.root in self._refused)
        opened = partial(open_watch, covered_first, self._settings)
        # Not abandoned when cancelled: the watch that comes out would be nobody's to close.
        watch, refused = await anyio.to_thread.run_sync(opened)
        if shard.watch is None or LIMIT_REACHED not in refused.values():
            return watch, refused
        shard.watch.stop()
        if watch is not None:
            watch.close()
        await anyio.sleep(3 * self._settings.step_ms / 1000)
        return await anyio.to_thread.run_sync(opened)

    async def _serve(self, shard: _Shard, watch: Watch, listener: Listener) -> None:
        def deliver(touched: frozenset[str], moved: frozenset[str]) -> None:
            listener.touched(touched)
            listener.moved(moved)

        fault = await watch.run(deliver, self._threads, listener.overflowed)
        if fault is None:
            return
        log.warning("watch failed", why=fault.why, project=fault.root, projects=len(shard.roots))
        if fault.root is not None:
            self._wary.add(fault.root)
            listener.bar(fault.root, fault.why)
        if shard.watch is watch:
            shard.watch = None
            self._back_off(shard, fault)
            self._mark(shard)

    def _back_off(self, shard: _Shard, fault: Fault) -> None:
        now = anyio.current_time()
        if now - shard.failed_at > _CALM_S:
            shard.failures = 0
        shard.failed_at = now
        if fault.root is None:  # else the cause is out of the way, and nobody else has to wait for it
            shard.failures += 1
            delay_s = _FIRST_BACK_OFF_S * 2 ** min(shard.failures, 10)
            shard.not_before = now + min(delay_s, _LAST_BACK_OFF_S)


def _places(roots: list[str], barred: dict[str, str], wary: frozenset[str]) -> list[Place]:
    places = [bearable(place_of(root), wary=root in wary) for root in roots]
    return [place.refused(barred[place.root]) if place.root in barred else place for place in places]
