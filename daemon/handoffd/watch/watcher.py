"""Watches the `.ai` folder of every project and says «look again» when a known file changes.

A hint is never a fact: the same change may be hinted twice, and a hint may be about nothing.
What is promised is that after every change there is a hint: at once while the folder is watched,
at the next sweep otherwise. Neither kinds of events nor single files can be relied upon (atomic
replacement arrives as «added», a folder that is replaced goes deaf). How folders are watched is a
back end's business (backend.py); here is what holds for all of them:

- a folder that appears, vanishes or is replaced is noticed by its event, or by its inode at the next
  sweep, or by a change that the sweep sees and the watch did not; each has it watched anew;
- whoever is watched anew is swept afterwards: nothing is lost between;
- who cannot be watched, or never rests, is swept, and said to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import anyio
import structlog

from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import Backend
from handoffd.watch.choice import backend_of
from handoffd.watch.folders import Place
from handoffd.watch.sweep import Sweeper

log = structlog.get_logger(__name__)

_RESTLESS = 20
"""Folder events of one project between two sweeps, after which it is only swept for a while."""
_BURST_PAUSE_S = 0.5
"""How long after a burst the sweep comes, and how long until the next one because of a burst."""


class Watcher:
    """Calls `touched(root)` on the event loop whenever a known file of a project may have changed.

    A project that is added is hinted once as soon as it is known how it will be watched: what
    was written before is there to be seen, what is written later will be hinted.
    """

    def __init__(
        self, touched: Callable[[str], None], settings: WatchSettings, backend: Backend | None = None
    ) -> None:
        self._touched = touched
        self._settings = settings
        self._backend: Backend = backend or backend_of(settings)
        self._sweeper = Sweeper(self._touch)
        self._roots: set[str] = set()
        self._degraded: dict[str, str] = {}
        self._barred: dict[str, str] = {}
        self._unrest: Counter[str] = Counter()
        self._heard: set[str] = set()
        self._burst = False
        self._stirred = anyio.Event()

    @property
    def degraded(self) -> Mapping[str, str]:
        """The projects that are only swept, each with the reason why it cannot be watched.

        It goes with what happens: ask again instead of keeping it.
        """
        return MappingProxyType(self._degraded)

    def add(self, root: str) -> None:
        """Watch the project at `root` (absolute path) soon."""
        if root not in self._roots:
            self._roots.add(root)
            self._backend.add(root)

    def remove(self, root: str) -> None:
        """Hint nothing more about `root`, from now on."""
        if root not in self._roots:
            return
        self._roots.discard(root)
        self._backend.remove(root)
        self._sweeper.remove(root)
        self._degraded.pop(root, None)
        self._barred.pop(root, None)

    def configure(self, settings: WatchSettings) -> None:
        """Go by these settings from now on; the back end stays the one it began with."""
        self._settings = settings
        self._backend.configure(settings)
        self._stirred.set()

    async def sweep_now(self, roots: Iterable[str] | None = None) -> None:
        """Hint every one of `roots` (None: of all) whose known files changed since the last sweep."""
        self.moved((await self._sweeper.sweep_now(roots)).moved)

    async def run(self) -> None:
        """Watch and sweep until cancelled."""
        for root in self._roots:
            self._backend.add(root)
        async with anyio.create_task_group() as group:
            group.start_soon(self._sweep_for_ever, name="sweep")
            await self._backend.run(self)

    # --- what the back end tells -----------------------------------------------------------------
    def touched(self, roots: Iterable[str]) -> None:
        """Hint these."""
        for root in roots:
            self._heard.add(root)
            self._touch(root)

    def moved(self, roots: Iterable[str]) -> None:
        """Have the folders watched that are there now; a project that never rests is left to the sweep."""
        for root in roots:
            if root not in self._roots or root in self._barred:
                continue
            self._heard.add(root)
            self._unrest[root] += 1
            if self._unrest[root] > _RESTLESS:
                self._barred[root] = "its .ai folder comes and goes all the time"
            self._backend.renew((root,))

    def overflowed(self) -> None:
        """Sweep soon."""
        self._burst = True
        self._stirred.set()

    def barred(self, root: str) -> str | None:
        """Return why this project is left alone until the next sweep, if it is."""
        return self._barred.get(root)

    def bar(self, root: str, why: str) -> None:
        """Have this project left alone until the next sweep."""
        self._barred[root] = why

    async def placed(self, places: Sequence[Place]) -> None:
        """Report who is not watched, and find what changed before these were."""
        self._report(places)
        for place in places:
            if place.root in self._roots:
                self._sweeper.add(place.root, hint_first=True)
        expected = {place.root: place.ai for place in places}
        self.moved((await self._sweeper.sweep_now(expected, expected=expected)).moved)

    # --- the sweep -------------------------------------------------------------------------------
    async def _sweep_for_ever(self) -> None:
        while True:
            overflowed = await self._due()
            swept = await self._sweeper.sweep_now()
            self.moved(swept.moved)
            deaf = swept.changed - self._heard  # whatever the reason
            self._backend.renew(deaf & self._roots)
            self._heard.clear()
            self._unrest.clear()
            self._barred.clear()
            self._backend.renew(tuple(self._degraded))
            if overflowed:
                self._backend.recover()

    async def _due(self) -> bool:
        """Wait until it is time for a sweep; return whether that is because of lost events."""
        began = anyio.current_time()
        while not self._burst:
            self._stirred = anyio.Event()
            with anyio.move_on_at(began + self._settings.sweep_s) as limit:
                await self._stirred.wait()
            if limit.cancelled_caught:
                return False
        log.warning("many changes at once, some may have been missed: sweeping")
        await anyio.sleep(_BURST_PAUSE_S)
        self._burst = False
        return True

    def _touch(self, root: str) -> None:
        if root not in self._roots:
            return
        try:
            self._touched(root)
        except Exception:
            log.exception("a hint failed", project=root)

    def _report(self, places: Sequence[Place]) -> None:
        news: dict[str, list[str]] = {}
        again: list[str] = []
        for place in places:
            if place.root not in self._roots:
                continue
            before = self._degraded.pop(place.root, None)
            if place.why_not is not None:
                self._degraded[place.root] = place.why_not
                if before != place.why_not:
                    news.setdefault(place.why_not, []).append(place.root)
            elif before is not None:
                again.append(place.root)
        for why, those in news.items():
            log.warning("swept, not watched", why=why, projects=len(those), first=those[0])
        if again:
            log.info("watched again", projects=len(again), first=again[0])
