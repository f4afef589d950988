"""Which schedule concerns which project, and what is to be done about it now: start, give up, or wait.

From what the settings say come entries for each project. What is done is a function of times alone. What
has been dealt with up to when is kept by the caller, durably, so that a restart neither repeats nor
forgets; a clock that is set back repeats nothing either.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final

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


# --- what is to be done now --------------------------------------------------------------------------
ON_TIME: Final = timedelta(seconds=90)
"""So late a start is still on time: a daemon was restarted, a loop was slow, a machine dozed."""

Latest = Callable[[datetime, datetime], datetime | None]
"""Returns the last time something was due after the first moment, up to the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How late something may be started. `jitter` was put on top of when it was due."""

    catch_up: bool
    at_most: timedelta
    jitter: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Something is to be started because it was due at `at`. `late`: it is made up for."""

    at: datetime
    late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """Something was due at `at`, and now it is too late."""

    at: datetime


def due(latest: Latest, handled: datetime, now: datetime, lateness: Lateness) -> Due | Missed | None:
    """Return what is to be done `now`; None: nothing is due.

    Everything up to `handled` has been dealt with. Of several times that were missed only the last
    counts: whoever wants a nightly review wants one, not seven.
    """
    at = latest(handled, now - lateness.jitter)
    if at is None:
        return None
    age = now - at - lateness.jitter
    if age <= ON_TIME:
        return Due(at=at, late=False)
    if lateness.catch_up and age <= lateness.at_most:
        return Due(at=at, late=True)
    return Missed(at=at)


def jitter(key: str, most_s: float) -> timedelta:
    """Return how much later than the rest `key` is started: the same always, up to `most_s` seconds."""
    digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()
    return timedelta(seconds=round(most_s * int.from_bytes(digest[:6]) / 2**48, 3))
