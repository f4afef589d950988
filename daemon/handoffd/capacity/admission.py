"""Whether the machine takes one more executor just now: by its memory, by its load, by the last start.

An agent takes 0.3 to 1 GB, but not at once: a recent start counts with the memory that it has yet to take.
All executors count the same, so the next track waits, and no other track passes it.

The rules read no clock and no file: callers pass `now` in seconds, and the memory and load that the kernel
reports. A container may not use all memory of the machine: the limits of all control groups of this process
count, too, except that of the daemon's own service, because executors run in the launcher's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple

from handoffd.engine.track import TrackKey
from handoffd.settings.model import SchedulingSettings

GROWS_S: Final = 20.0
"""An executor counts as fully grown after this time; until then its memory grows evenly."""

LOOK_S: Final = 1.0
"""Interval for measuring the machine while a track waits for it."""


class Facts(NamedTuple):
    """Measurements of the machine: MiB available, load per core; None if unknown."""

    free_mb: int | None = None
    load_per_core: float | None = None


class Closed(NamedTuple):
    """Why no track is admitted, in words, and after how many seconds to measure again."""

    kind: Literal["memory", "load", "stagger"]
    why: str
    again_s: float


class Admission:
    """The latest starts, and the rules for one more."""

    def __init__(self, scheduling: SchedulingSettings) -> None:
        self.scheduling = scheduling
        self._starts: dict[TrackKey, float] = {}
        """The start of each executor that may still grow, the oldest first."""
        self._last: float | None = None

    @property
    def looks(self) -> bool:
        """Whether the settings require measuring the machine before a track is admitted."""
        return self.scheduling.min_free_memory_mb > 0 or self.scheduling.max_load_per_core is not None

    def started(self, key: TrackKey, now: float) -> None:
        """Count an executor that is being started now."""
        self._starts.pop(key, None)
        self._starts[key] = self._last = now

    def ended(self, key: TrackKey) -> None:
        """Remove an executor from the reserved memory: it has ended."""
        self._starts.pop(key, None)

    def growing_mb(self, now: float) -> int:
        """Return how much more memory the executors that were just started will take."""
        for key, start in tuple(self._starts.items()):
            if now - start < GROWS_S:
                break  # the following ones were started later
            del self._starts[key]
        share = sum(1 - (now - start) / GROWS_S for start in self._starts.values())
        return round(share * self.scheduling.memory_per_agent_mb)

    def closed(self, facts: Facts, now: float) -> Closed | None:
        """Return why one more start must wait; None if it need not."""
        return self._short_of_memory(facts, now) or self._overloaded(facts) or self._too_soon(now)

    def _short_of_memory(self, facts: Facts, now: float) -> Closed | None:
        wanted, free, growing = self.scheduling.min_free_memory_mb, facts.free_mb, self.growing_mb(now)
        if not wanted or free is None or free - growing >= wanted:
            return None
        reserved = f", {growing:,} of them for what was just started" if growing else ""
        return Closed("memory", f"memory: {free:,} MiB free{reserved}, {wanted:,} wanted", LOOK_S)

    def _overloaded(self, facts: Facts) -> Closed | None:
        most, load = self.scheduling.max_load_per_core, facts.load_per_core
        if most is None or load is None or load <= most:
            return None
        return Closed("load", f"load: {load:.1f} per core, at most {most:g} wanted", LOOK_S)

    def _too_soon(self, now: float) -> Closed | None:
        if self._last is None:
            return None
        left_s = self._last + self.scheduling.stagger_s - now
        return (
            Closed("stagger", f"next start in {max(1, round(left_s))} s (stagger)", left_s)
            if left_s > 0
            else None
        )


# --- what the kernel says ----------------------------------------------------------------------------
_MIB = 1024 * 1024

_UNLIMITED = 1 << 60
"""Version 1 of control groups says a number about as large as this for no limit."""


class _Names(NamedTuple):
    """What a control group's files are called."""

    limit: str
    used: str
    reclaimable: str


_V2 = _Names("memory.max", "memory.current", "inactive_file")
_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def facts(root: Path = Path("/")) -> Facts:
    """Return what is left now. `root`: where `proc` and `sys` are."""
    return Facts(free_mb=free_mb(root), load_per_core=load_per_core(root))


def free_mb(root: Path) -> int | None:
    """Return how many MiB may be taken before the kernel runs out of them; None where it does not tell."""
    found = [*_of_machine(root / "proc/meminfo"), *_of_groups(root)]
    return max(min(found), 0) // _MIB if found else None


def load_per_core(root: Path) -> float | None:
    """Return the load of the last minute by core; None where the kernel does not tell."""
    try:
        load = float((root / "proc/loadavg").read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return load / len(os.sched_getaffinity(0))


def _of_machine(meminfo: Path) -> Iterator[int]:
    with suppress(OSError, ValueError, IndexError):
        for line in meminfo.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024


def _of_groups(root: Path) -> Iterator[int]:
    """Yield how many bytes each limited control group has left that we are in."""
    mounted = root / "sys/fs/cgroup"
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _upwards(mounted, path, _V2)
            elif "memory" in controllers.split(","):
                yield from _upwards(mounted / "memory", path, _V1)


def _upwards(mounted: Path, path: str, names: _Names) -> Iterator[int]:
    parts = [part for part in path.split("/") if part not in {"", ".."}]
    if parts and parts[-1].endswith(".service"):
        parts.pop()
    for depth in range(len(parts), -1, -1):
        left = _left(mounted.joinpath(*parts[:depth]), names)
        if left is not None:
            yield left


def _left(group: Path, names: _Names) -> int | None:
    """Return how many bytes a group has left; None if it has no limit, or is not to be seen from here."""
    try:
        limit = (group / names.limit).read_text("ascii").strip()
        if limit == "max" or int(limit) >= _UNLIMITED:
            return None
        used = int((group / names.used).read_text("ascii"))
        stat = (group / "memory.stat").read_text("ascii").splitlines()
    except (OSError, ValueError):
        return None
    cached = sum(int(line.split()[1]) for line in stat if line.split()[:1] == [names.reclaimable])
    return int(limit) - used + cached
