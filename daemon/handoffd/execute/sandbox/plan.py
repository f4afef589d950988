"""What one run may see and write, as a value in its specification.

The daemon computes it (`planning`), and the shim carries it out (`entry`) without a decision of its own. If
any part of it cannot be made, the run is not started. Like the other records it needs the standard library
alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

Level = Literal["auto", "strict", "namespaces", "landlock", "off"]
"""What holds a run, as the settings say it.

- `strict`: namespaces, and Landlock with its scopes
- `auto`: namespaces, and as much of Landlock as the kernel has
- `namespaces`: a view of its own of files and processes
- `landlock`: rules on the machine's own files; other processes stay visible
- `off`: nothing; such a run has no plan
"""

Network = Literal["on", "loopback", "none"]

STRICT, NAMESPACES, LANDLOCK, OFF = "strict", "namespaces", "landlock", "off"

SCOPES_SINCE = 6
"""The version of Landlock that closes abstract sockets and signals."""


def strength(level: str, version: int) -> str:
    """Return the level that holds a run, on a kernel with this version of Landlock."""
    if level in (LANDLOCK, OFF):
        return level
    return STRICT if level != NAMESPACES and version >= SCOPES_SINCE else NAMESPACES


FIXED = (".ai", ".git")
"""Folders of a workspace that can be written and not be moved or replaced."""
GUARDED = ("hooks", "config")
"""What of a git folder cannot be changed: git would run what it names, outside the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One sandbox. Paths are absolute; a deeper path wins over the one that it is in.

    Missing paths are skipped, but missing `writable` folders are made.
    """

    level: Level
    network: Network
    workspace: str
    """Writable, but for what `FIXED` and `GUARDED` say."""
    shown: str | None = None
    """A folder that is shown at the workspace's place, instead of it; None: the workspace itself."""
    repository: str | None = None
    """The git folder of a workspace that is a linked worktree: writable, but for what is `GUARDED`."""
    hidden: tuple[str, ...] = ()
    """Shown empty."""
    private: tuple[str, ...] = ()
    """Empty folders in memory, writable, gone with the run."""
    readable: tuple[str, ...] = ()
    """Shown though something above is hidden."""
    writable: tuple[str, ...] = ()
    """Folders and files that can be written, besides the workspace."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Folders that are shown, writable, at the place of others: by that place. Missing ones are made."""
    read_only: tuple[str, ...] = ()
    """What cannot be changed in an `own` or a writable folder; one that ends with a slash is a folder.

    In an `own` folder it is what is at its place outside. What is missing in a writable one is made, so that
    it cannot be made inside.
    """
    copied: tuple[str, ...] = ()
    """Files that a private folder begins with: changes are lost. With a `*` at the end, all that begin so."""

    def __post_init__(self) -> None:
        if self.level not in get_args(Level) or self.level == OFF:
            raise ValueError(
                f"a plan's level is one of auto, strict, namespaces, landlock, not {self.level!r}"
            )
        if self.network not in get_args(Network):
            raise ValueError(f"network must be on, loopback or none, not {self.network!r}")
        if self.shown is not None and self.level == LANDLOCK:
            raise ValueError("landlock cannot show another folder in the workspace's place")
        for path in self.paths:
            if not path.startswith("/") or "\0" in path:
                raise ValueError(f"not an absolute path: {path!r}")

    @property
    def paths(self) -> tuple[str, ...]:
        """All that it names."""
        repository = () if self.repository is None else (self.repository,)
        shown = (*self.readable, *self.writable, *self.copied, *([self.shown] if self.shown else []))
        own = (*self.own, *self.own.values(), *self.read_only)
        return (self.workspace, *repository, *self.hidden, *self.private, *own, *shown)

    @classmethod
    def from_raw(cls, raw: Mapping[str, Any]) -> Self:
        """Return the plan in a JSON object; raises ValueError or TypeError for any other."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()
        }
        return cls(**values)
