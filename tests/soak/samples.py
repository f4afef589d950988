"""What a daemon costs, sampled as it lives; and what such samples say of growth."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

_MIB = 2**20
_TICKS_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look. `at_s` is seconds since the soak began, `life` counts the daemons from 1."""

    at_s: float
    life: int
    age_s: float
    rss_mb: float
    descriptors: int
    threads: int
    cpu_s: float
    running: int
    stories: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the kernel says of a process."""

    rss_mb: float
    descriptors: int
    """Including the journal's, which opens up to four readers when needed, and keeps them."""
    lasting: int
    """Descriptors without the journal's."""
    threads: int
    cpu_s: float


def cost(pid: int) -> Cost | None:
    """Return what a process costs now; None when it is gone."""
    with suppress(OSError, IndexError):
        held = _held(pid)
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return Cost(
            rss_mb=round(int(fields[21]) * _PAGE / _MIB, 2),
            descriptors=len(held),
            lasting=sum(not Path(name).name.startswith("journal.db") for name in held),
            threads=int(fields[17]),
            cpu_s=round((int(fields[11]) + int(fields[12])) * _TICKS_S, 2),
        )
    return None


def _held(pid: int) -> list[str]:
    """Return what the descriptors of a process lead to; of one that is closed at this moment, nothing."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found


def slope_per_hour(points: Sequence[tuple[float, float]], most: int = 300) -> float | None:
    """Return the slope of (seconds, value) an hour: the median of all pairs' slopes; None for fewer than two.

    One sample taken during a burst does not bend it, as it would bend a line of least squares. At most
    `most` points, evenly taken, are paired.
    """
    taken = points[:: max(1, len(points) // most)]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(taken, 2) if b[0] > a[0]]
    return round(median(slopes) * 3600, 3) if slopes else None


def steady(samples: Sequence[Sample], life: int, warm_up_s: float) -> list[tuple[float, float]]:
    """Return (seconds, MiB) of one life from its age of `warm_up_s` on."""
    return [(one.at_s, one.rss_mb) for one in samples if one.life == life and one.age_s >= warm_up_s]


def last_of_each(samples: Sequence[Sample]) -> list[Sample]:
    """Return the last sample of each life, in order."""
    return list({one.life: one for one in samples}.values())
