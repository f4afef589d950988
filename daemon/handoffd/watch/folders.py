"""Where to watch a project, and a signature of its `.ai` folder as it is now.

Everything here is a few system calls, made in a worker thread. Symbolic links are not followed: a
project whose `.ai` is a link elsewhere is not watched there. Signatures and identities are bytes
because there is one of each project for as long as the daemon lives: a tenth of what tuples of numbers
take, and the garbage collector need not visit them.
"""

from __future__ import annotations

import math
import os
import stat
import threading
from collections.abc import Callable, Sequence
from struct import Struct as Layout
from typing import Generic, TypeVar

import anyio
import anyio.to_thread
import structlog
from msgspec import Struct, field

AI_FOLDER = ".ai"

NAMES = ("HANDOFF.md", "executor-result", "STATE.json", "step-rules.yaml", "handoffd.yaml")
"""The files whose change is news; everything else in `.ai` is the agents' own business."""

Identity = bytes
"""Device and inode of a folder; empty where there is none."""

Signature = bytes
"""A project's `.ai` folder and known files; empty where there is none. `differ` compares them."""

NOWHERE: Identity = b""

_FOLDER = Layout("=QQQ")
"""Device and inode, and the folder's ctime (ns) if that can be relied upon, else 0."""
_FILE = Layout("=BQQQQ")
"""Which of the names, inode, mtime (ns), size, ctime (ns): ctime because an agent may set the others back."""
_IDENTITY_BYTES = 16
_64_BITS = (1 << 64) - 1
"""A file system may report negative numbers, or times beyond a signed number of nanoseconds."""
_RACY_NS = 2_000_000_000
"""A folder changed more recently may change again without a new ctime: clocks have steps."""


class Place(Struct, frozen=True, kw_only=True):
    """Where one project is watched. No `folder`: it cannot be, for the reason `why_not`."""

    root: str
    folder: str | None
    ai: Identity
    why_not: str | None = None

    def refused(self, why: str) -> Place:
        """Return the same project as one that cannot be watched."""
        return Place(root=self.root, folder=None, ai=self.ai, why_not=why)


def signature(root: str, before: Signature = NOWHERE, *, now_ns: int = 0) -> Signature:
    """Return how the known files of the project at `root` look now; never raises for a missing one.

    With the signature of `before`, names that were missing are looked for only if the folder has changed
    since, which halves the cost at rest. `now_ns` is the time since the epoch; without it no later look will
    rely on this one. Compare signatures by `differ`.
    """
    path = f"{root}/{AI_FOLDER}"
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return NOWHERE
    if not stat.S_ISDIR(found.st_mode):
        return NOWHERE
    ctime = found.st_ctime_ns & _64_BITS
    folder = _FOLDER.pack(found.st_dev & _64_BITS, found.st_ino & _64_BITS, ctime)
    names = _names_in(before) if before.startswith(folder) else range(len(NAMES))
    if ctime > now_ns - _RACY_NS:
        folder = folder[:_IDENTITY_BYTES] + bytes(_FOLDER.size - _IDENTITY_BYTES)
    return folder + b"".join(_file(path, number) for number in names)


def _names_in(known: Signature) -> list[int]:
    return [known[offset] for offset in range(_FOLDER.size, len(known), _FILE.size)]


def _file(path: str, number: int) -> bytes:
    try:
        found = os.lstat(f"{path}/{NAMES[number]}")
    except OSError:
        return b""
    facts = found.st_ino, found.st_mtime_ns, found.st_size, found.st_ctime_ns
    return _FILE.pack(number, *[fact & _64_BITS for fact in facts])


def differ(one: Signature, other: Signature) -> bool:
    """Return whether the known files, or the folder they are in, are others."""
    if one == other:
        return False
    ends = slice(None, _IDENTITY_BYTES), slice(_FOLDER.size, None)
    return any(one[end] != other[end] for end in ends)


def identity_in(known: Signature) -> Identity:
    """Return the `.ai` folder that a signature is of."""
    return known[:_IDENTITY_BYTES]


def folder_identity(path: str) -> Identity:
    """Return device and inode of the folder at `path`; empty if there is none (a link is none)."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return NOWHERE
    if not stat.S_ISDIR(found.st_mode):
        return NOWHERE
    return _FOLDER.pack(found.st_dev & _64_BITS, found.st_ino & _64_BITS, 0)[:_IDENTITY_BYTES]


def place_of(root: str) -> Place:
    """Return where to watch the project at `root`.

    Without an `.ai` folder it is the root itself, not its sub-folders: one watch, and a folder
    that is created late, or comes back after `git stash -u`, is seen at once instead of at the
    next sweep.
    """
    folder = os.path.join(root, AI_FOLDER)
    identity = folder_identity(folder)
    if not identity:
        if os.path.lexists(folder):
            return Place(root=root, folder=None, ai=NOWHERE, why_not=".ai is not a folder")
        if not folder_identity(root):
            return Place(root=root, folder=None, ai=NOWHERE, why_not="the project's folder is missing")
        folder = root
    place = Place(root=root, folder=folder, ai=identity)
    return place if os.access(folder, os.R_OK) else place.refused(f"{folder} is not readable")


# --- visits that a hanging disk does not hold up ------------------------------------------------------
# A call to a dead network mount does not come back, and no limit gives its thread back. So a visit that takes
# too long is left behind with the project it hangs in; the others go on with another thread, and that
# project is passed over until its call returns.
log = structlog.get_logger(__name__)

Found = TypeVar("Found")

LIMIT_S = 5.0
"""How long a visit to some hundred projects may take, which is milliseconds as a rule."""
SILENT = "its folder does not answer"


class _Round(Struct, Generic[Found]):
    found: dict[str, Found] = field(default_factory=dict)
    at: str | None = None
    left_behind: bool = False


class Visits:
    """Calls a function for each of many projects in a thread, and knows which of them hang."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._silent: set[str] = set()
        self._lock = threading.Lock()
        # A limiter of its own: threads that hang must not take the slots of others.
        self._threads = anyio.CapacityLimiter(math.inf)

    @property
    def silent(self) -> frozenset[str]:
        """The projects that were visited and have not answered yet."""
        return frozenset(self._silent)

    async def pay(self, roots: Sequence[str], look: Callable[[str], Found]) -> dict[str, Found]:
        """Return what `look` found by root; a root that does not answer is missing. `look` must not raise."""
        found: dict[str, Found] = {}
        while left := [root for root in roots if root not in found and root not in self._silent]:
            one = _Round[Found]()
            try:
                with anyio.move_on_after(self._limit_s) as limit:
                    await anyio.to_thread.run_sync(
                        self._visit, one, left, look, abandon_on_cancel=True, limiter=self._threads
                    )
            finally:
                self._leave(one)
            found |= one.found
            if limit.cancelled_caught:
                log.warning("a project's folder does not answer", project=one.at, after_s=self._limit_s)
        return found

    def _leave(self, one: _Round[Found]) -> None:
        """Give up on a visit; it hangs in the project where it is now."""
        with self._lock:
            one.left_behind = True
            if one.at is not None:
                self._silent.add(one.at)

    def _visit(self, one: _Round[Found], roots: Sequence[str], look: Callable[[str], Found]) -> None:
        for root in roots:
            if not self._comes_to(one, root):
                return
            seen = look(root)
            with self._lock:
                one.at = None
                if one.left_behind:
                    self._silent.discard(root)
                    return
                one.found[root] = seen

    def _comes_to(self, one: _Round[Found], root: str) -> bool:
        with self._lock:
            if not one.left_behind:
                one.at = root
            return not one.left_behind
