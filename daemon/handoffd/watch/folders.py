"""What can be watched of one project, and what its `.ai` folder looks like just now.

Everything here is a few `lstat` calls, made in a worker thread. Symbolic links are not followed:
a project whose `.ai` is a link elsewhere is not watched there.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import NamedTuple

AI_FOLDER = ".ai"

NAMES = ("HANDOFF.md", "executor-result", "STATE.json", "step-rules.yaml", "handoffd.yaml")
"""The files whose change is news; everything else in `.ai` is the agents' own business."""

Identity = tuple[int, int]
"""Device and inode of a folder."""

FileSignature = tuple[int, int, int, int]
"""Inode, mtime (ns), size, ctime (ns): ctime because an agent may set the others back."""


class Signature(NamedTuple):
    """A project's known files as one comparable value. `ai` is None where there is no `.ai` folder."""

    ai: Identity | None
    files: tuple[FileSignature | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one project is watched. No `folder`: it cannot be, for the reason `why_not`."""

    root: str
    folder: str | None
    ai: Identity | None
    why_not: str | None = None


def signature(root: str) -> Signature:
    """Return how the known files of the project at `root` look now; never raises for a missing one."""
    folder = os.path.join(root, AI_FOLDER)
    identity = folder_identity(folder)
    if identity is None:
        return Signature(None, ())
    return Signature(identity, tuple(_file_signature(os.path.join(folder, name)) for name in NAMES))


def folder_identity(path: str) -> Identity | None:
    """Return device and inode of the folder at `path`; None if there is none (a link is none)."""
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def place_of(root: str, *, wary: bool = False) -> Place:
    """Return where to watch the project at `root`.

    Without an `.ai` folder it is the root itself, not its sub-folders: one watch, and a folder
    that is created late, or comes back after `git stash -u`, is seen at once instead of at the
    next sweep. `wary` also looks for names that the watcher cannot bear.
    """
    folder = os.path.join(root, AI_FOLDER)
    identity = folder_identity(folder)
    if identity is None:
        if os.path.lexists(folder):
            return Place(root=root, folder=None, ai=None, why_not=".ai is not a folder")
        if folder_identity(root) is None:
            return Place(root=root, folder=None, ai=None, why_not="the project's folder is missing")
        folder = root
    why_not = _obstacle(folder, wary=wary)
    return Place(root=root, folder=None if why_not else folder, ai=identity, why_not=why_not)


def _obstacle(folder: str, *, wary: bool) -> str | None:
    if not _is_utf8(folder):
        return "its path is not UTF-8"
    if not os.access(folder, os.R_OK):
        return f"{folder} is not readable"
    try:
        names = os.listdir(folder) if wary else []
    except OSError as error:
        return f"{folder}: {error.strerror}"
    strange = next((name for name in names if not _is_utf8(name)), None)
    return None if strange is None else f"{folder} holds a name that is not UTF-8: {os.fsencode(strange)!r}"


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _file_signature(path: str) -> FileSignature | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size, found.st_ctime_ns)
