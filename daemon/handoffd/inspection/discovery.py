"""Looks for projects: in one folder, or in the places that the settings name, supervised or not.

The walk is bounded, follows no symbolic link, and goes into no project: what is in one belongs to it. Of
projects that are known it asks the disk nothing, so that looking again at a workspace of thousands is a
listing or two.

Names alone decide which folders the settings mean by a path, a pattern or a workspace, without a look at the
disk: a project whose disk is unmounted is still meant, and stays supervised.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from shlex import join
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct, field

from handoffd.errors import HandoffdError, NotFound
from handoffd.files.errors import storage_error
from handoffd.inspection.project_status import (
    INVALID_STATE,
    NO_STEP,
    NOT_INITIALIZED,
    parsed_state,
    project_name,
)
from handoffd.settings.model import Settings, WorkspaceSettings

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


# --- the projects in a folder -------------------------------------------------------------------------
MARKERS = (
    ".ai/STATE.json", "package.json", "go.mod", "Cargo.toml", "pyproject.toml", "setup.py", ".git",
)  # fmt: skip
"""A folder that has one of these is a project."""

MOST_LISTED = 10_000


class ListedProject(Struct, frozen=True, kw_only=True):
    """One project of a folder: `dir` is its name there. `status` as in `ProjectStatus`."""

    name: str
    dir: str
    step: str = NO_STEP
    status: str = NOT_INITIALIZED
    story: str | None = None
    has_framework: bool = False


def list_projects(folder: str) -> tuple[ListedProject, ...]:
    """Return the projects in `folder`, by name; hidden and unreadable ones are left out.

    Reads at most 10,000 entries. Raises NotFound when it is not a folder, StoreError when it cannot be
    listed.
    """
    try:
        names = sorted(os.listdir(folder), key=os.fsencode)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"{folder} is not a folder", hint="handoffd projects") from error
    except OSError as error:
        raise storage_error("list", Path(folder), error) from error
    shown = [name for name in names if not name.startswith(".")][:MOST_LISTED]
    found = (_project(Path(folder, name)) for name in shown)
    return tuple(project for project in found if project is not None)


def listed(root: Path) -> ListedProject:
    """Return what a project's own files say of it."""
    shown = os.fsencode(root.name).decode("utf-8", errors="replace")
    has_state = (root / MARKERS[0]).exists()
    try:
        parsed = parsed_state(str(root)) if has_state else None
    except HandoffdError:
        return ListedProject(name=_name(root), dir=shown, status=INVALID_STATE, has_framework=True)
    if parsed is None:
        return ListedProject(name=_name(root), dir=shown)
    state = parsed.state
    return ListedProject(
        name=state.project,
        dir=shown,
        step=state.step,
        status=state.status.value,
        story=state.story,
        has_framework=True,
    )


def _project(root: Path) -> ListedProject | None:
    try:
        if not root.is_dir() or not any((root / marker).exists() for marker in MARKERS):
            return None
        return listed(root)
    except (OSError, HandoffdError):
        return None  # not ours to look into, or taken away this moment


def _name(root: Path) -> str:
    return os.fsencode(project_name(str(root))).decode("utf-8", errors="replace")


def folders_called(words: Iterable[str], bases: Iterable[str], sure: str | None = None) -> dict[str, str]:
    """Return which of some words are names of project folders in `bases`, with their places.

    The first base that has one counts. `sure` is the name of a project in any case: it needs no marker.
    """
    found: dict[str, str] = {}
    for base in bases:
        for word in words:
            if word in found or not _is_name(word):
                continue
            place = os.path.join(base, word)
            if os.path.isdir(place) and (word == sure or looks_like_project(place)):
                found[word] = place
    return found


def _is_name(word: str) -> bool:
    return bool(word) and "/" not in word and "\0" not in word and not word.startswith(".")


def looks_like_project(folder: str) -> bool:
    """Return whether a folder has what makes a project of it; it is not looked into any further."""
    try:
        return any(os.path.lexists(os.path.join(folder, marker)) for marker in MARKERS)
    except ValueError:  # a character that no name can have
        return False


def others_in(bases: Iterable[str], known: Container[str]) -> tuple[str, ...]:
    """Return the names of project folders in `bases` that are not `known` by their places.

    Hidden and unreadable folders are left out; at most 10,000 entries of each base are read.
    """
    found: set[str] = set()
    for base in bases:
        try:
            names = sorted(os.listdir(base))[:MOST_LISTED]
        except OSError:
            continue  # not ours to look into
        places = ((name, os.path.join(base, name)) for name in names if not name.startswith("."))
        found |= {name for name, place in places if place not in known and looks_like_project(place)}
    return tuple(os.fsencode(name).decode("utf-8", errors="replace") for name in sorted(found))


# --- which folders the settings mean ------------------------------------------------------------------
MOST_LEVELS = 8
"""A pattern matches folders at most this deep below its base, also with `**`."""

NEVER = frozenset({"__pycache__", "bower_components", "lost+found", "node_modules", "site-packages", "venv"})
"""Folders of other people's code; a pattern matches them only if it names them."""

_MAGIC = frozenset("*?[")
_ANY_DEPTH = "**"
_USUAL_DEPTH = WorkspaceSettings.model_fields["depth"].default
_TWICE = (_ANY_DEPTH, _ANY_DEPTH)


class Fit(NamedTuple):
    """Whether a folder is meant, and whether one below it may be."""

    meant: bool
    further: bool


_NOT = Fit(meant=False, further=False)


class Wanted(Struct, frozen=True, kw_only=True):
    """One entry of `projects` or `workspaces`. `text` is the path or pattern as a person wrote it, whole.

    `base` is the folder below which it means others; of a root that is written out, the root.
    """

    kind: Literal["path", "pattern", "workspace"]
    text: str
    base: str
    parts: tuple[str, ...] = ()
    depth: int = 0
    exclude: tuple[str, ...] = ()
    ask: bool = False

    @property
    def section(self) -> str:
        """The key of the settings that has it."""
        return "workspaces" if self.kind == "workspace" else "projects"

    def scan(self, *more: str) -> str:
        """Return the command that looks through a workspace with the same eyes; `more` are its last words."""
        depth = ("--depth", str(self.depth)) if self.depth != _USUAL_DEPTH else ()
        left_out = (word for pattern in self.exclude for word in ("--exclude", pattern))
        return join(("handoffd", "scan", self.base, *depth, *left_out, *more))

    def fit(self, names: tuple[str, ...]) -> Fit:
        """Return whether a folder below the base matches, by the names on the way to it."""
        if self.kind == "path":
            return Fit(meant=not names, further=False)
        if self.kind == "pattern":
            fit = _fit(self.parts, names)
            return Fit(fit.meant and 0 < len(names) <= MOST_LEVELS, fit.further and len(names) < MOST_LEVELS)
        if any(_is_passed_over(name) for name in names) or self._is_excluded(names):
            return _NOT
        return Fit(meant=0 < len(names) <= self.depth, further=len(names) < self.depth)

    def covers(self, root: str, bases: Iterable[str]) -> bool:
        """Return whether `root` matches below any of the base's paths."""
        return any(
            names is not None and self.fit(names).meant for names in (_below(base, root) for base in bases)
        )

    def _is_excluded(self, names: tuple[str, ...]) -> bool:
        if not self.exclude:
            return False
        spec = _spec(self.exclude)
        return any(spec.match_file("/".join(names[:count]) + "/") for count in range(1, len(names) + 1))


def wanted_of(settings: Settings) -> tuple[Wanted, ...]:
    """Return what the settings mean, roots that are written out first; each entry once."""
    named = dict.fromkeys(_of_path(str(path)) for path in settings.projects)
    spaces = dict.fromkeys(of_workspace(space) for space in settings.workspaces)
    return tuple(sorted((*named, *spaces), key=lambda one: one.kind != "path"))


def of_workspace(space: WorkspaceSettings) -> Wanted:
    """Return what a workspace means."""
    path = str(space.path)
    return Wanted(
        kind="workspace", text=path, base=path,
        depth=space.depth, exclude=space.exclude, ask=space.add == "ask",
    )  # fmt: skip


def _of_path(text: str) -> Wanted:
    parts = PurePosixPath(text).parts
    plain = next((count for count, part in enumerate(parts) if _MAGIC.intersection(part)), len(parts))
    if plain == len(parts):
        return Wanted(kind="path", text=text, base=text)
    base = str(PurePosixPath(*parts[:plain]))
    # `**/**` means what `**` does, and each one more doubles the ways to fit.
    wild = tuple(part for part, before in zip(parts, ("", *parts), strict=False) if (part, before) != _TWICE)
    return Wanted(kind="pattern", text=text, base=base, parts=wild[plain:])


def _below(base: str, root: str) -> tuple[str, ...] | None:
    """Return the names on the way from one whole path to another below it; None when it is not below."""
    if root == base:
        return ()
    stem = base.rstrip("/") + "/"
    return tuple(root[len(stem) :].split("/")) if root.startswith(stem) else None


def _fit(parts: tuple[str, ...], names: tuple[str, ...]) -> Fit:
    if not names:
        return Fit(meant=all(part == _ANY_DEPTH for part in parts), further=bool(parts))
    if not parts:
        return _NOT
    head, name = parts[0], names[0]
    if head == _ANY_DEPTH:
        here = _fit(parts[1:], names)
        below = _NOT if _is_passed_over(name) else _fit(parts, names[1:])
        return Fit(here.meant or below.meant, here.further or below.further)
    if name != head and (_is_passed_over(name, head) or not fnmatchcase(name, head)):
        return _NOT
    return _fit(parts[1:], names[1:])


def _is_passed_over(name: str, pattern: str = "") -> bool:
    """Return whether a folder is only meant by who writes it out, or, hidden, by a pattern with its dot."""
    return name in NEVER or (name.startswith(".") and not pattern.startswith("."))


@lru_cache(maxsize=64)
def _spec(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  (only a scan needs it)

    return GitIgnoreSpec.from_lines(patterns)


# --- the walk -----------------------------------------------------------------------------------------
MOST_FOLDERS = 200_000
"""At most this many folders are listed in one walk."""

MOST_PROJECTS = 20_000
"""At most this many projects are found by one walk."""

MOST_UNREAD = 10
"""At most this many unreadable folders are named."""

TOLD_EVERY = 500
FILES = frozenset({"STATE.json", "HANDOFF.md", "handoffd.yaml", "step-rules.yaml", "states"})
"""An `.ai` folder with one of these is the protocol's; other tools have folders of that name, too."""

_OTHER = frozenset(marker for marker in MARKERS if "/" not in marker)


class Discovered(Struct, kw_only=True):
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
    """Return the path of an entry's base, without symbolic links; None when there is no such folder."""
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

    `progress` gets the results so far every 500 folders.
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

    Of files, that may be millions, only the ones that make a project of it.
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


# --- where no project can be --------------------------------------------------------------------------
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
    """Return why the folder `root` (not a link) cannot be a project; None: it can.

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
