"""What orders are answered with, as types: those that are no results of the engine. See `shapes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from handoffd.engine.views import (
    ProjectView,
)
from handoffd.store.gc import Doomed, Size


@dataclass(frozen=True, kw_only=True)
class Lifted:
    """What became of a limit that was lifted."""

    type: Literal["lifted"]
    account: str
    projects: list[str]
    problems: list[str]


@dataclass(frozen=True, kw_only=True)
class FileProblem:
    """One thing wrong with a file: where, what, and what would have been accepted."""

    file: str
    line: int | None
    key: str | None
    message: str
    allowed: list[str]


@dataclass(frozen=True, kw_only=True)
class SettingsRead:
    """The daemon's settings: which keys were put in force, which wait for a restart, what is wrong."""

    file: str | None
    taken: bool
    changed: list[str]
    restart: list[str]
    problems: list[FileProblem]


@dataclass(frozen=True, kw_only=True)
class Reloaded:
    """What came of reading settings, folders of projects and projects' files again."""

    type: Literal["reloaded"]
    settings: SettingsRead
    brought: int
    let_go: int
    problems: list[str]
    warnings: list[str]


@dataclass(frozen=True, kw_only=True)
class NotAdded:
    """A project that is not supervised, and why."""

    project: str
    code: str
    message: str
    hint: str | None


@dataclass(frozen=True, kw_only=True)
class AddedMany:
    """The roots that are supervised now."""

    type: Literal["added_many"]
    added: list[str]
    refused: list[NotAdded]


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """The daemon is about to end."""

    type: Literal["stopping"]
    executors: bool


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """What was removed, or in a dry run would be; what there was before; how many runs stay, by reason."""

    type: Literal["cleaned"]
    dry_run: bool
    freed_bytes: int
    doomed: list[Doomed]
    sizes: list[Size]
    kept: dict[str, int]
    problems: list[str]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """How a project's tests went when they were run once; `fault` says why they could not be."""

    type: Literal["tried"]
    project: str
    command: list[str] | None
    path: str
    passed: bool | None
    verified: bool
    timed_out: bool
    fault: str | None
    tests: dict[str, int] | None
    failing: list[str]
    line: str | None
    tail: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class OtherTests:
    """Tests that were found and that nothing runs: what a person types in which folder of the project."""

    folder: str
    command: list[str]


@dataclass(frozen=True, kw_only=True)
class Initialised:
    """A project was prepared."""

    type: Literal["initialised"]
    project: str
    name: str
    called: str | None
    level: int
    created: list[str]
    missing: list[str]
    test_command: list[str] | None
    other_tests: list[OtherTests]
    warnings: list[str]


@dataclass(frozen=True, kw_only=True)
class Added(ProjectView):
    """A project is supervised."""

    type: Literal["added"]


@dataclass(frozen=True, kw_only=True)
class Removed:
    """A project is supervised no longer."""

    type: Literal["removed"]
    project: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Trusted:
    """What was put into force."""

    type: Literal["trusted"]
    project: str
    trusted: list[str]
