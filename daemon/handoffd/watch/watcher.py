"""Watches the `.ai` folder of every project and says «look again» when a known file changes.

A hint is never a fact: the same change may be hinted twice, and a hint may be about nothing.
What is promised is that after every change there is a hint: at once while the folder is watched,
at the next sweep otherwise. Neither kinds of events nor single files can be relied upon (atomic
replacement arrives as «added»), and watchfiles can neither add nor remove a path, so:

- projects are spread over a few shards, one watchfiles watcher each; a change of a shard's
  projects builds a new watcher, live before the old one stops, then sweeps the shard's files;
- a folder that appears, vanishes or is replaced is noticed by its event, or by its inode at the
  next sweep, or by a change that the sweep sees and the watch did not; each causes a rebuild;
- a fault (a name that is not UTF-8 ends a whole watcher) costs the project that caused it its
  watch until the next sweep, and the others a rebuild.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskGroup

from handoffd.settings import WatchSettings
from handoffd.watch.demand import ROOTS_PER_SHARD
from handoffd.watch.folders import Place, place_of
from handoffd.watch.shard import LIMIT_REACHED, Fault, Watch, open_watch
from handoffd.watch.sweep import Sweeper, Swept

log = structlog.get_logger(__name__)

_BATCH_S = 0.02
_RESTLESS = 20
"""Folder events of one project between two sweeps, after which it is only swept for a while."""
_BURST_PAUSE_S = 0.5
"""How long after a burst the sweep comes, and how long until the next one because of a burst."""
_FIRST_BACK_OFF_S = 0.05
_LAST_BACK_OFF_S = 5.0
_CALM_S = 60.0


@dataclass(slots=True, eq=False)
class _Shard:
    roots: set[str] = field(default_factory=set)
    watch: Watch | None = None
    places: dict[str, Place] = field(default_factory=dict)
    dirty: bool = False
    failures: int = 0
    failed_at: float = -math.inf
    not_before: float = -math.inf


class Watcher:
    """Calls `touched(root)` on the event loop whenever a known file of a project may have changed.

    A project that is added is hinted once as soon as it is known how it will be watched: what
    was written before is there to be seen, what is written later will be hinted.
    """

    def __init__(self, touched: Callable[[str], None], settings: WatchSettings) -> None:
        self._touched = touched
        self._settings = settings
        self._sweeper = Sweeper(self._touch)
        self._shards: list[_Shard] = []
        self._shard_of: dict[str, _Shard] = {}
        self._degraded: dict[str, str] = {}
        self._excluded: dict[str, str] = {}
        self._wary: set[str] = set()
        self._unrest: Counter[str] = Counter()
        self._heard: set[str] = set()
        self._wake = anyio.Event()
        self._burst = anyio.Event()
        self._threads = anyio.CapacityLimiter(math.inf)

    @property
    def degraded(self) -> Mapping[str, str]:
        """The projects that are only swept, each with the reason why it cannot be watched.

        It goes with what happens: ask again instead of keeping it.
        """
        return MappingProxyType(self._degraded)

    def add(self, root: str) -> None:
        """Watch the project at `root` (absolute path) soon; many additions become one rebuild."""
        if root in self._shard_of:
            return
        shard = self._roomiest()
        shard.roots.add(root)
        self._shard_of[root] = shard
        self._mark(shard)

    def remove(self, root: str) -> None:
        """Hint nothing more about `root`, from now on."""
        shard = self._shard_of.pop(root, None)
        if shard is None:
            return
        shard.roots.discard(root)
        self._sweeper.remove(root)
        self._degraded.pop(root, None)
        self._excluded.pop(root, None)
        self._wary.discard(root)
        self._mark(shard)

    async def sweep_now(self, roots: Iterable[str] | None = None) -> None:
        """Hint every one of `roots` (None: of all) whose known files changed since the last sweep."""
        self._compare_folders(await self._sweeper.sweep_now(roots))

    async def run(self) -> None:
        """Watch and sweep until cancelled."""
        for shard in self._shards:
            shard.watch, shard.places = None, {}
            self._mark(shard)
        async with anyio.create_task_group() as group:
            group.start_soon(self._sweep_for_ever, name="sweep")
            while True:
                for shard in await self._due():
                    await self._rebuild(shard, group)

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

    async def _rebuild(self, shard: _Shard, group: TaskGroup) -> None:
        shard.dirty = False
        roots = set(shard.roots)
        found = await anyio.to_thread.run_sync(self._places, sorted(roots), abandon_on_cancel=True)
        watch, refused = await self._open(shard, found)
        old, shard.watch = shard.watch, watch
        shard.places = {place.root: place for place in found}
        if watch is not None:
            group.start_soon(self._serve, shard, watch, name="watch")
        if old is not None:
            old.stop()
        roots &= shard.roots
        self._report(roots, refused)
        for root in roots:
            self._sweeper.add(root, hint_first=True)
        self._compare_folders(await self._sweeper.sweep_now(roots))

    def _places(self, roots: list[str]) -> list[Place]:
        places = []
        for root in roots:
            place = place_of(root, wary=root in self._wary)
            why = self._excluded.get(root)
            places.append(Place(root=root, folder=None, ai=place.ai, why_not=why) if why else place)
        return places

    async def _open(self, shard: _Shard, places: list[Place]) -> tuple[Watch | None, dict[str, str]]:
        """Open a new watch beside the old one, or in its stead where the limit leaves no room for both."""
        covered_first = sorted(places, key=lambda place: place.root in self._degraded)
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

    async def _serve(self, shard: _Shard, watch: Watch) -> None:
        fault = await watch.run(self._deliver, self._threads, self._note_burst)
        if fault is None:
            return
        log.warning("watch failed", why=fault.why, project=fault.root, projects=len(shard.roots))
        if fault.root is not None:
            self._wary.add(fault.root)
            self._excluded[fault.root] = fault.why
        if shard.watch is watch:
            shard.watch = None
            self._back_off(shard, fault)
            self._mark(shard)

    def _note_burst(self) -> None:
        self._burst.set()

    def _back_off(self, shard: _Shard, fault: Fault) -> None:
        now = anyio.current_time()
        if now - shard.failed_at > _CALM_S:
            shard.failures = 0
        shard.failed_at = now
        if fault.root is None:  # else the cause is out of the way, and nobody else has to wait for it
            shard.failures += 1
            delay_s = _FIRST_BACK_OFF_S * 2 ** min(shard.failures, 10)
            shard.not_before = now + min(delay_s, _LAST_BACK_OFF_S)

    def _deliver(self, touched: frozenset[str], moved: frozenset[str]) -> None:
        self._heard |= touched
        for root in touched:
            self._touch(root)
        for root in moved:
            self._folder_changed(root)

    def _folder_changed(self, root: str) -> None:
        """Watch the folder that is there now; a project that never rests is left to the sweep."""
        if root in self._excluded:
            return
        self._heard.add(root)
        self._unrest[root] += 1
        if self._unrest[root] > _RESTLESS:
            self._excluded[root] = "its .ai folder comes and goes all the time"
        self._mark_root(root)

    def _touch(self, root: str) -> None:
        if root not in self._shard_of:
            return
        try:
            self._touched(root)
        except Exception:
            log.exception("a hint failed", project=root)

    async def _sweep_for_ever(self) -> None:
        while True:
            with anyio.move_on_after(self._settings.sweep_s):
                await self._burst.wait()
                log.warning("many changes at once, some may have been missed: sweeping")
                await anyio.sleep(_BURST_PAUSE_S)
            self._burst = anyio.Event()
            swept = await self._sweeper.sweep_now()
            self._compare_folders(swept)
            for root in swept.changed - self._heard:  # the watch is deaf there, whatever the reason
                self._mark_root(root)
            self._heard.clear()
            self._unrest.clear()
            self._excluded.clear()
            for root in self._degraded:
                self._mark_root(root)

    def _compare_folders(self, swept: Swept) -> None:
        """Rebuild where the `.ai` folder is not the one that the last rebuild found."""
        for root, identity in swept.folders.items():
            shard = self._shard_of.get(root)
            place = shard.places.get(root) if shard else None
            if place is not None and place.ai != identity:
                self._folder_changed(root)

    def _mark_root(self, root: str) -> None:
        shard = self._shard_of.get(root)
        if shard is not None:
            self._mark(shard)

    def _report(self, roots: set[str], refused: dict[str, str]) -> None:
        before = {root: self._degraded.pop(root, None) for root in roots}
        now = {root: why for root, why in refused.items() if root in roots}
        self._degraded |= now
        news: dict[str, list[str]] = {}
        for root, why in now.items():
            if before[root] != why:
                news.setdefault(why, []).append(root)
        for why, those in news.items():
            log.warning("swept, not watched", why=why, projects=len(those), first=those[0])
        again = [root for root in roots if before[root] is not None and root not in now]
        if again:
            log.info("watched again", projects=len(again), first=again[0])
