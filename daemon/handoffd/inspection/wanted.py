"""Which folders the settings mean by a path, a pattern or a workspace: by their names, no disk is asked.

What is meant can be told of a folder that is not there at the moment, too: a project whose disk is
unmounted is still meant, and is not let go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePosixPath
from shlex import join
from typing import Literal, NamedTuple

from pathspec import GitIgnoreSpec

from handoffd.settings.model import Settings, WorkspaceSettings

MOST_LEVELS = 8
"""So far below its base a pattern reaches, whatever `**` stands for."""

NEVER = frozenset({"__pycache__", "bower_components", "lost+found", "node_modules", "site-packages", "venv"})
"""Folders of other people's code, which nobody means unless they are written out."""

_MAGIC = frozenset("*?[")
_ANY_DEPTH = "**"
_USUAL_DEPTH = WorkspaceSettings.model_fields["depth"].default
_TWICE = (_ANY_DEPTH, _ANY_DEPTH)


class Fit(NamedTuple):
    """Whether a folder is meant, and whether one below it may be."""

    meant: bool
    further: bool


_NOT = Fit(meant=False, further=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
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
        """The key of the settings that it stands under."""
        return "workspaces" if self.kind == "workspace" else "projects"

    def scan(self, *more: str) -> str:
        """Return the command that looks through a workspace with the same eyes; `more` are its last words."""
        depth = ("--depth", str(self.depth)) if self.depth != _USUAL_DEPTH else ()
        left_out = (word for pattern in self.exclude for word in ("--exclude", pattern))
        return join(("handoffd", "scan", self.base, *depth, *left_out, *more))

    def fit(self, names: tuple[str, ...]) -> Fit:
        """Return how the folder fits that lies below the base, by the names on the way to it."""
        if self.kind == "path":
            return Fit(meant=not names, further=False)
        if self.kind == "pattern":
            fit = _fit(self.parts, names)
            return Fit(fit.meant and 0 < len(names) <= MOST_LEVELS, fit.further and len(names) < MOST_LEVELS)
        if any(_is_passed_over(name) for name in names) or self._is_excluded(names):
            return _NOT
        return Fit(meant=0 < len(names) <= self.depth, further=len(names) < self.depth)

    def covers(self, root: str, bases: Iterable[str]) -> bool:
        """Return whether `root` is meant, for any of the places at which the base lies."""
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
    return GitIgnoreSpec.from_lines(patterns)
