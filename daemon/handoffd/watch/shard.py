"""One watchfiles watcher over many folders, and the thread that waits for it.

This uses watchfiles' documented low-level class rather than `awatch`, for three reasons found by
trying (1.3.0): `awatch` registers its paths on the event loop (0.2 s for 10,000), does not say
when it is live, and with `rust_timeout=0`, the only value that loses no event, an anyio
cancellation never ends it. A `RustNotify` is live when its constructor returns.

The watcher has to be rebuilt to add or remove a folder, and dies whole of one fault; both are the
business of `watchfiles_backend`. Here a fault is a value that names the project at fault, where it is known.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import anyio
import anyio.from_thread
import anyio.to_thread
from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from handoffd.settings.model import WatchSettings
from handoffd.watch.demand import LIMIT_REACHED
from handoffd.watch.folders import AI_FOLDER, NAMES, Place

Deliver = Callable[[frozenset[str], frozenset[str]], None]
"""Takes the roots whose files were touched and those whose `.ai` folder came, went or moved."""

BURST = 1000
"""So many changes in one batch, and the kernel's queue may have overflowed (16,384 events, as a rule).

The kernel says so when it does, watchfiles (1.3.0) keeps that to itself. A burst over few names is
one change a name here, and is not noticed.
"""

_GIVEN_BACK_LOOKS, _GIVEN_BACK_LOOK_S = 200, 0.01
_LIMIT_WORDS = ("watch limit", "Too many open files", "No space left", "os error 24", "os error 28")
_NAMES = frozenset(NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a watch ended by itself. `root` is the project at fault, if the message tells."""

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

    Blocks. Only what once did harm is looked at so closely: it costs a listing.
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
    """Return how many inotify instances this process has; 0 where that cannot be found out."""
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
    """Wait until a watcher that could not be built has let go: a thread of its own does that, by and by."""
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
