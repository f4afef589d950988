"""Looks for projects below a folder: those of the three-file protocol, whoever supervises them.

The walk is bounded, follows no symbolic link, and goes into no project: what lies in one belongs to
it. Of projects that are known it asks the disk nothing, so that looking again at a workspace of
thousands is a listing or two.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from handoffd.inspection.wanted import Wanted
from handoffd.inspection.workspace import MARKERS

MOST_FOLDERS = 200_000
"""So many folders are listed in one walk."""
MOST_PROJECTS = 20_000
"""So many are found by one walk."""
MOST_UNREAD = 10
"""So many folders that cannot be listed are named."""
TOLD_EVERY = 500

FILES = frozenset({"STATE.json", "HANDOFF.md", "handoffd.yaml", "step-rules.yaml", "states"})
"""An `.ai` folder with one of these is the protocol's; other tools have folders of that name, too."""

_OTHER = frozenset(marker for marker in MARKERS if "/" not in marker)


@dataclass(slots=True, kw_only=True)
class Discovered:
    """What a walk has found: roots in order, known ones left out. `unread` are folders it could not list."""

    base: str
    roots: list[str] = field(default_factory=list)
    folders: int = 0
    others: int = 0
    """Folders that look like a project and have no `.ai`: `handoffd init` makes them one."""
    unread: list[str] = field(default_factory=list)
    stopped: bool = False
    """Whether there was more than one walk looks at."""


def resolved_base(wanted: Wanted) -> str | None:
    """Return where the base of an entry lies, without symbolic links; None when there is no such folder."""
    try:
        path = os.path.realpath(wanted.base)
    except ValueError:  # a character that no name can have
        return None
    return path if os.path.isdir(path) else None


def discover(
    wanted: Wanted,
    base: str,
    known: Container[str] = frozenset(),
    progress: Callable[[Discovered], None] = lambda _: None,
) -> Discovered:
    """Return the projects that `wanted` means below `base`; blocks for as long as the disk does.

    `progress` hears of what is found so far every 500 folders.
    """
    found = Discovered(base=base)
    pending: list[tuple[str, ...]] = [()]
    while pending:
        names = pending.pop()
        if found.folders >= MOST_FOLDERS or len(found.roots) >= MOST_PROJECTS:
            found.stopped = True
            break
        below = _listed(os.path.join(base, *names), found)
        if found.folders % TOLD_EVERY == 0:
            progress(found)
        if names and _is_project(base, names, below):
            if wanted.fit(names).meant:
                found.roots.append(os.path.join(base, *names))
            continue
        found.others += bool(names) and not _OTHER.isdisjoint(below)
        pending += _further(wanted, base, names, below, known)
    found.roots.sort()
    return found


def _further(
    wanted: Wanted, base: str, names: tuple[str, ...], below: dict[str, bool], known: Container[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the folders below one that are worth a look."""
    place = os.path.join(base, *names)
    for name in sorted((name for name, is_folder in below.items() if is_folder), reverse=True):
        if os.path.join(place, name) in known:
            continue
        fit = wanted.fit((*names, name))
        if fit.meant or fit.further:
            yield (*names, name)


def _listed(folder: str, found: Discovered) -> dict[str, bool]:
    """Return the names in a folder that tell something, and of each whether it is a folder and no link.

    Of files, that may be millions, only those that make a project of it.
    """
    found.folders += 1
    try:
        with os.scandir(folder) as entries:
            listed = ((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
            telling = {name: is_folder for name, is_folder in listed if is_folder or name in _OTHER}
    except OSError:
        if len(found.unread) < MOST_UNREAD:
            found.unread.append(folder)
        return {}
    return telling


def _is_project(base: str, names: tuple[str, ...], below: dict[str, bool]) -> bool:
    if not below.get(".ai"):
        return False
    try:
        return not FILES.isdisjoint(os.listdir(os.path.join(base, *names, ".ai")))
    except OSError:
        return False


_SYSTEM = ("/proc", "/sys", "/dev", "/run", "/boot")
_AS_A_WHOLE = frozenset(
    f"/{name}"
    for name in (
        *("bin", "etc", "home", "lib", "lib64", "media", "mnt", "sbin", "tmp", "var"),
        *("usr", "usr/bin", "usr/lib", "usr/sbin"),
    )
)
"""Folders of the system in which projects may well be, but which are none."""
_FOR_PEOPLE = ("/dev/shm", "/run/media")  # noqa: S108  (where people keep projects, beside what is the system's)


def unfit(root: str, state_dir: Path) -> str | None:
    """Return why the folder `root`, which is no link, can be no project; None: it can.

    An agent that works there could write over the system's files, handoffd's own, or all that a person has.
    """
    if any(_holds((root,), _without_links(home)) for home in _homes()):
        return "it is your home folder or above that"
    for_people = any(_holds((one,), root) and root != one for one in _FOR_PEOPLE)
    if root in _AS_A_WHOLE or (_holds(_SYSTEM, root) and not for_people):
        return "it belongs to the system"
    own = _without_links(str(state_dir))
    return "handoffd keeps its own state there" if _holds((own,), root) or _holds((root,), own) else None


def _homes() -> Iterator[str]:
    """Yield the home that the environment names, and the account's own, which may be another one."""
    yield os.path.expanduser("~")
    with suppress(KeyError):  # an account without an entry
        yield pwd.getpwuid(os.geteuid()).pw_dir


_without_links = lru_cache(maxsize=8)(os.path.realpath)  # asked for each of thousands of folders


def _holds(folders: Sequence[str], path: str) -> bool:
    return any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for folder in folders)
