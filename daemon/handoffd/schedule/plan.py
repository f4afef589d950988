"""Which schedule concerns which project, and whether to start it now, give it up, or wait.

The settings give entries for each project. The decision is a function of times alone. The caller keeps,
durably, up to when it has handled a schedule, so that a restart neither repeats nor forgets a start; a clock
that is set back repeats nothing either.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct

from handoffd.settings.schedule import ScheduledStart, SharedStart

GROUP: Final = "group:"
"""Prefix of the name of a group of projects."""

OWN: Final = ".ai/"
"""Prefix of the name of a schedule in a project's own settings."""


class Planned(Struct, frozen=True):
    """One schedule of one project. `root` is absolute; `schedule` is its name there."""

    root: str
    schedule: str
    start: ScheduledStart

    @property
    def key(self) -> tuple[str, str]:
        """Return what identifies it."""
        return self.root, self.schedule

    @property
    def jitter(self) -> timedelta:
        """Return how much later it is started than it is due."""
        return jitter(f"{self.root}\0{self.schedule}", self.start.jitter_s)


def planned(
    shared: Iterable[SharedStart],
    own: Mapping[str, tuple[ScheduledStart, ...]],
    names: Mapping[str, str],
    group_of: Callable[[str], str | None] = lambda _: None,
) -> tuple[Planned, ...]:
    """Return every schedule of the projects `names` (name by root): `shared`, and `own`.

    `group_of` returns the group of the project at a root.
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
    """Return a function of root and name that tells whether a pattern means the project."""
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


# --- whether to start now ----------------------------------------------------------------------------
ON_TIME: Final = timedelta(seconds=90)
"""A start that is less late counts as on time: the daemon was restarted, the machine dozed."""

Latest = Callable[[datetime, datetime], datetime | None]
"""Returns the last time a schedule was due after the first moment, up to the second."""


class Lateness(Struct, frozen=True, kw_only=True):
    """How late a schedule may be started. `jitter` was added to the time it was due."""

    catch_up: bool
    at_most: timedelta
    jitter: timedelta = timedelta(0)


class Due(Struct, frozen=True, kw_only=True):
    """Start: it was due at `at`. `late`: a missed start is made up for."""

    at: datetime
    late: bool


class Missed(Struct, frozen=True, kw_only=True):
    """Do not start: it was due at `at`, and now it is too late."""

    at: datetime


def due(latest: Latest, handled: datetime, now: datetime, lateness: Lateness) -> Due | Missed | None:
    """Return what to do `now`; None: nothing is due.

    Everything up to `handled` has been dealt with. Of several missed times only the last counts: after a week
    away, a person wants one nightly review, not seven.
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
