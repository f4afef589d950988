"""What can be watched of one project, and what its `.ai` folder looks like just now.

Everything here is a few system calls, made in a worker thread. Symbolic links are not followed: a
project whose `.ai` is a link elsewhere is not watched there. Signatures and identities are bytes
because there is one of each project for as long as the daemon lives: a tenth of what tuples of numbers
take, and nothing that the garbage collector has to look at.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from struct import Struct

AI_FOLDER = ".ai"

NAMES = ("HANDOFF.md", "executor-result", "STATE.json", "step-rules.yaml", "handoffd.yaml")
"""The files whose change is news; everything else in `.ai` is the agents' own business."""

Identity = bytes
"""Device and inode of a folder; empty where there is none."""

Signature = bytes
"""A project's known files as one comparable value; empty where there is no `.ai` folder."""

NOWHERE: Identity = b""

_IDENTITY = Struct("=QQ")
_FILE = Struct("=BQQQQ")
"""Which of the names, inode, mtime (ns), size, ctime (ns): ctime because an agent may set the others back."""
_64_BITS = (1 << 64) - 1
"""What a file system claims may be negative, or later than a signed number of nanoseconds can tell."""
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one project is watched. No `folder`: it cannot be, for the reason `why_not`."""

    root: str
    folder: str | None
    ai: Identity
    why_not: str | None = None

    def refused(self, why: str) -> Place:
        """Return the same project as one that cannot be watched."""
        return Place(root=self.root, folder=None, ai=self.ai, why_not=why)


def signature(root: str) -> Signature:
    """Return how the known files of the project at `root` look now; never raises for a missing one."""
    path = f"{root}/{AI_FOLDER}"
    try:
        folder = os.open(path, _FOLDER)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            return NOWHERE
        identity = folder_identity(path)  # slower, and it takes no descriptor
        return identity and identity + _files(f"{path}/", None)
    except ValueError:
        return NOWHERE
    try:
        return _identity(os.fstat(folder)) + _files("", folder)
    finally:
        os.close(folder)


def _files(prefix: str, folder: int | None) -> bytes:
    parts = []
    for number, name in enumerate(NAMES):
        try:
            found = os.lstat(f"{prefix}{name}", dir_fd=folder)
        except OSError:
            continue
        facts = found.st_ino, found.st_mtime_ns, found.st_size, found.st_ctime_ns
        parts.append(_FILE.pack(number, *(fact & _64_BITS for fact in facts)))
    return b"".join(parts)


def identity_in(known: Signature) -> Identity:
    """Return the `.ai` folder that a signature is of."""
    return known[: _IDENTITY.size]


def folder_identity(path: str) -> Identity:
    """Return device and inode of the folder at `path`; empty if there is none (a link is none)."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return NOWHERE
    return _identity(found) if stat.S_ISDIR(found.st_mode) else NOWHERE


def _identity(found: os.stat_result) -> Identity:
    return _IDENTITY.pack(found.st_dev & _64_BITS, found.st_ino & _64_BITS)


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
