"""Watches the `.ai` folder of every project and hints «look again» when a known file changes.

A hint is never a fact: the same change may be hinted twice, and a hint may be about nothing. What is
promised is that after every change there is a hint: at once while the folder is watched, at the next sweep
otherwise. Neither kinds of events nor single files can be relied upon (atomic replacement arrives as
«added», a folder that is replaced goes deaf). How folders are watched is a back end's business (`backend`);
this holds for all of them:

- a folder that appears, vanishes or is replaced is noticed by its event, or by its inode at the next sweep,
  or by a change that the sweep sees and the watch did not; then it is watched anew;
- a folder that is watched anew is swept afterwards, so no change in between is lost;
- a folder that cannot be watched, or never rests, is swept, and reported as such.

The sweep is what makes a missed change a delay instead of a hang (inotify queues overflow, network mounts
say nothing), and what makes a change of watches lossless: a change between an old and a new one
differs from the last signature. A worker thread looks and compares, a slice at a time; the event loop gets
only the differences.
"""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

import anyio
import structlog
from msgspec import Struct

from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import Backend, reads_inotify
from handoffd.watch.folders import NOWHERE, Identity, Place, Signature, Visits, differ, identity_in, signature
from handoffd.watch.inotify_backend import Inotify, InotifyBackend

log = structlog.get_logger(__name__)


_RESTLESS = 20
"""Folder events of one project between two sweeps, after which it is only swept for a while."""
_BURST_PAUSE_S = 0.5
"""How long after a burst the sweep comes, and how long until the next one because of a burst."""


class Watcher:
    """Calls `touched(root)` on the event loop whenever a known file of a project may have changed.

    A project that is added is hinted once as soon as it is watched, or known not to be: the hint covers what
    was written before, and later changes are hinted as they come.
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

        It changes all the time: read it again instead of keeping it.
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
        """Use these settings from now on; the back end stays the one it began with."""
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

    # --- what the back end calls -----------------------------------------------------------------
    def touched(self, roots: Iterable[str]) -> None:
        """Hint these."""
        for root in roots:
            self._heard.add(root)
            self._touch(root)

    def moved(self, roots: Iterable[str]) -> None:
        """Watch the folders that exist now; leave a project that never rests to the sweep."""
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
        """Do not watch this project until the next sweep."""
        self._barred[root] = why

    async def placed(self, places: Sequence[Place]) -> None:
        """Log which projects are not watched, and find what changed before these were."""
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
        for why, roots in news.items():
            log.warning("swept, not watched", why=why, projects=len(roots), first=roots[0])
        if again:
            log.info("watched again", projects=len(again), first=again[0])


# --- how folders are watched on this machine ---------------------------------------------------------
def backend_of(settings: WatchSettings) -> Backend:
    """Return the back end that `settings` name; `auto` is inotify where the kernel has one."""
    if reads_inotify(settings) and (settings.backend == "inotify" or _there()):
        return InotifyBackend()
    from handoffd.watch.watchfiles_backend import WatchfilesBackend  # noqa: PLC0415  (0.1 s, hardly needed)

    return WatchfilesBackend(settings)


def _there() -> bool:
    """Return whether the kernel has inotify, even if a limit is reached."""
    try:
        Inotify().close()
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOMEM}:
            return True
        log.warning("no inotify here, watchfiles is used instead", error=error.strerror)
        return False
    return True


# --- sweeps ------------------------------------------------------------------------------------------
SLICE = 500
"""Projects that are visited in one go: some 5 ms on a disk that is in memory."""


class Swept(Struct, frozen=True, kw_only=True):
    """The roots whose known files changed, and the roots whose `.ai` folder is not the one expected there."""

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
                # File systems use this clock, so a test cannot pass one of its own.
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
    """Return what is new about a project. `known` may change meanwhile: the caller compares again."""
    before = known.get(root)
    now = signature(root, before or NOWHERE, now_ns=now_ns)
    folder = expected.get(root, None if before is None else identity_in(before))
    moved = folder is not None and folder != identity_in(now)
    return _AS_BEFORE if now == before and not moved else _Sight(None if now == before else now, moved)
