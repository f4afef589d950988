"""Which schedule concerns which project: from what the settings say to one entry for each of both."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final

from handoffd.schedule.due import jitter
from handoffd.settings.schedule import ScheduledStart, SharedStart

GROUP: Final = "group:"
"""Stands before the name of a group of the settings, in place of projects."""

OWN: Final = ".ai/"
"""Stands before the name of a schedule that a project's own settings have."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One schedule of one project. `root` is absolute; `schedule` is what it is called there."""

    root: str
    schedule: str
    start: ScheduledStart

    @property
    def key(self) -> tuple[str, str]:
        """Which one it is."""
        return self.root, self.schedule

    @property
    def jitter(self) -> timedelta:
        """How much later it is started than it is due."""
        return jitter(f"{self.root}\0{self.schedule}", self.start.jitter_s)


def planned(
    shared: Iterable[SharedStart],
    own: Mapping[str, tuple[ScheduledStart, ...]],
    names: Mapping[str, str],
    group_of: Callable[[str], str | None] = lambda _: None,
) -> tuple[Planned, ...]:
    """Return every schedule of the projects `names` (roots to what they are called): `shared`, and `own`.

    `group_of` tells the group of the project at a root.
    """
    found = [
        Planned(root, start.name, start)
        for start in shared
        for root in _concerned(start.projects, names, group_of)
    ]
    found += [
        Planned(root, f"{OWN}{start.name}", start)
        for root, starts in own.items()
        if root in names
        for start in starts
    ]
    return tuple(found)


def _concerned(
    patterns: tuple[str, ...], names: Mapping[str, str], group_of: Callable[[str], str | None]
) -> list[str]:
    tests = [_test_of(pattern, group_of) for pattern in patterns]
    return [root for root, name in names.items() if any(test(root, name) for test in tests)]


def _test_of(pattern: str, group_of: Callable[[str], str | None]) -> Callable[[str, str], bool]:
    """Return what tells whether a pattern means a project, by its root and its name."""
    if pattern.startswith(GROUP):
        return lambda root, _: group_of(root) == pattern.removeprefix(GROUP)
    if "/" not in pattern and not pattern.startswith("~"):
        return lambda root, name: fnmatchcase(name, pattern) or fnmatchcase(PurePosixPath(root).name, pattern)
    path = _path_pattern(os.path.expanduser(pattern).rstrip("/"))
    return lambda root, _: path.fullmatch(root) is not None


_PARTS: Final = re.compile(r"\*\*/?|\*|\?|[^*?]+")


def _path_pattern(pattern: str) -> re.Pattern[str]:
    """Return a pattern in which `*` and `?` stay within a name, and `**` crosses folders."""
    words = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile(
        "".join(words.get(part, re.escape(part)) for part in _PARTS.findall(pattern)), re.DOTALL
    )
