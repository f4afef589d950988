"""Watching by watchfiles, which runs on every system but can neither add nor remove a path, so:

- projects are spread over a few shards, one watchfiles watcher each; a change of a shard's
  projects builds a new watcher, live before the old one stops;
- a folder that is replaced costs a rebuild of its shard as well;
- a fault (a name that is not UTF-8 ends a whole watcher) costs the project that caused it its
  watch until the next sweep, and the others a rebuild.

A shard uses watchfiles' documented low-level class rather than `awatch`, for three reasons found by
trying (1.3.0): `awatch` registers its paths on the event loop (0.2 s for 10,000), does not say
when it is live, and with `rust_timeout=0`, the only value that loses no event, an anyio
cancellation never ends it. A `RustNotify` is live when its constructor returns.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import anyio
import anyio.from_thread
import anyio.to_thread
import structlog
from anyio.abc import TaskGroup
from msgspec import Struct, field
from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from handoffd.settings.model import WatchSettings
from handoffd.watch.backend import LIMIT_REACHED, ROOTS_PER_SHARD, Listener
from handoffd.watch.folders import AI_FOLDER, NAMES, Place, place_of

log = structlog.get_logger(__name__)


_BATCH_S = 0.02
_FIRST_BACK_OFF_S = 0.05
_LAST_BACK_OFF_S = 5.0
_CALM_S = 60.0


class _Shard(Struct, eq=False):
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
        """Stop watching `root` soon."""
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
        """Do nothing: a burst need not mean lost events, and the sweep finds a watch that went deaf."""

    def configure(self, settings: WatchSettings) -> None:
        """Use these settings from now on; a shard that is live keeps its own until it is rebuilt."""
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
        # Not abandoned when cancelled: no task would close the new watch.
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
        if fault.root is None:  # else its cause is barred, and the other projects need not wait
            shard.failures += 1
            delay_s = _FIRST_BACK_OFF_S * 2 ** min(shard.failures, 10)
            shard.not_before = now + min(delay_s, _LAST_BACK_OFF_S)


def _places(roots: list[str], barred: dict[str, str], wary: frozenset[str]) -> list[Place]:
    places = [bearable(place_of(root), wary=root in wary) for root in roots]
    return [place.refused(barred[place.root]) if place.root in barred else place for place in places]


# --- one watchfiles watcher over many folders, and the thread that waits for it ----------------------
Deliver = Callable[[frozenset[str], frozenset[str]], None]
"""Takes the roots whose files were touched, and the roots whose `.ai` folder came, went or moved."""

BURST = 1000
"""After a batch of this many changes the kernel's queue may have overflowed (16,384 events, as a rule).

The kernel reports an overflow, but watchfiles (1.3.0) does not pass it on. A burst over few names is
one change a name here, and is not noticed.
"""

_GIVEN_BACK_LOOKS, _GIVEN_BACK_LOOK_S = 200, 0.01
_LIMIT_WORDS = ("watch limit", "Too many open files", "No space left", "os error 24", "os error 28")
_NAMES = frozenset(NAMES)


class Fault(Struct, frozen=True, kw_only=True):
    """Why a watch ended by itself. `root` is the project at fault, if the message names it."""

    why: str
    root: str | None


class Watch:
    """A live watch over the folders of `places`. Constructing it blocks: do that in a thread."""

    def __init__(self, places: Iterable[Place], settings: WatchSettings) -> None:
        self._roots = {place.folder: place.root for place in places if place.folder is not None}
        self._step_ms = settings.step_ms
        self._debounce_ms = settings.debounce_ms
        self._stopped = threading.Event()
        self._notify = RustNotify(list(self._roots), False, False, 300, False, False)

    def stop(self) -> None:
        """End `run` within one step. Changes it has not delivered yet are dropped: sweep afterwards."""
        self._stopped.set()

    def close(self) -> None:
        """Give the watches back; only for a watch that was never run."""
        self._notify.close()

    async def run(
        self, deliver: Deliver, limiter: anyio.CapacityLimiter, burst: Callable[[], None] = lambda: None
    ) -> Fault | None:
        """Call `deliver` on the event loop with each batch, until `stop` (None) or a fault.

        After a batch in which changes may be missing `burst` is called, there as well.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._stop_when_cancelled)
            # Not abandoned when cancelled: `_stop_when_cancelled` makes the thread come back.
            fault = await anyio.to_thread.run_sync(self._pump, deliver, burst, limiter=limiter)
            group.cancel_scope.cancel()
        return fault

    async def _stop_when_cancelled(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self.stop()

    def _pump(self, deliver: Deliver, burst: Callable[[], None]) -> Fault | None:
        try:
            while not self._stopped.is_set():
                changes = self._notify.watch(self._debounce_ms, self._step_ms, 0, self._stopped)
                if isinstance(changes, set):
                    touched, moved = self._sort(path for _, path in changes)
                    if touched or moved:
                        anyio.from_thread.run_sync(deliver, touched, moved)
                    if len(changes) >= BURST:
                        anyio.from_thread.run_sync(burst)
        except WatchfilesRustInternalError as error:
            return Fault(why=str(error), root=_root_named_in(str(error), self._roots.items()))
        finally:
            self._notify.close()
        return None

    def _sort(self, paths: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
        """Tell files we know from the `.ai` folders themselves; never by the kind of change."""
        touched, moved = set(), set()
        for path in paths:
            folder, _, name = path.rpartition("/")
            if name in _NAMES and folder in self._roots:
                touched.add(self._roots[folder])
            elif name == AI_FOLDER:
                moved.add(folder)
            elif path in self._roots:
                moved.add(self._roots[path])
        return frozenset(touched), frozenset(moved)


def bearable(place: Place, *, wary: bool = False) -> Place:
    """Return `place`, refused if watchfiles could not bear it; `wary` also looks at the names inside.

    Blocks. Use `wary` only for a folder that did harm: it costs a listing.
    """
    if place.folder is None:
        return place
    if not _is_utf8(place.folder):
        return place.refused("its path is not UTF-8")
    try:
        names = os.listdir(place.folder) if wary else []
    except OSError as error:
        return place.refused(f"{place.folder}: {error.strerror}")
    strange = next((name for name in names if not _is_utf8(name)), None)
    if strange is None:
        return place
    return place.refused(f"{place.folder} holds a name that is not UTF-8: {os.fsencode(strange)!r}")


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def open_watch(places: Sequence[Place], settings: WatchSettings) -> tuple[Watch | None, dict[str, str]]:
    """Return a live watch over as many of `places` as possible, and why the other roots are not in it.

    One folder that cannot be watched makes watchfiles refuse them all: it is left out and the
    rest tried again. At the system's limit the first half is tried, and so on. Blocks.
    """
    before = _instances()
    left = [place for place in places if place.folder is not None]
    refused = {place.root: place.why_not or "" for place in places if place.folder is None}
    while left:
        try:
            return Watch(left, settings), refused
        except (OSError, WatchfilesRustInternalError) as error:
            out, why = _refused_by(str(error), left)
            _until_given_back(before)
        refused |= {place.root: why for place in out}
        left = [place for place in left if place.root not in refused]
    return None, refused


def _instances() -> int:
    """Return how many inotify instances this process has; 0 where that cannot be read."""
    try:
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return 0
    return sum(_link(f"/proc/self/fd/{name}") == "anon_inode:inotify" for name in descriptors)


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _until_given_back(instances: int) -> None:
    """Wait until a watcher that could not be built has let go: its thread does that after a while."""
    for _ in range(_GIVEN_BACK_LOOKS):
        if _instances() <= instances:
            return
        time.sleep(_GIVEN_BACK_LOOK_S)


def _refused_by(message: str, places: Sequence[Place]) -> tuple[Sequence[Place], str]:
    if any(words in message for words in _LIMIT_WORDS):
        return places[len(places) // 2 :], LIMIT_REACHED
    culprit = _root_named_in(message, [(place.folder or "", place.root) for place in places])
    return [place for place in places if culprit in (place.root, None)], message


def _root_named_in(message: str, folders: Iterable[tuple[str, str]]) -> str | None:
    """Return the root whose folder is quoted in an error message of watchfiles."""
    for folder, root in folders:
        if f'"{folder}"' in message or f'"{folder}/' in message:
            return root
    return None
