"""How much memory and load the machine has left, by what the kernel says of it.

In a container the machine's memory is not ours: every control group that we are in is asked for its
limit, too. But not that of our own service: executors run in the launcher's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from handoffd.supervise.admission import Facts

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
