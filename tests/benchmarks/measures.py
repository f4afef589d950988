"""Percentiles, and the machine they were measured on: a number without it means nothing."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A distribution in milliseconds."""

    n: int
    p50: float
    p90: float
    p99: float
    max: float


def summary(seconds: Sequence[float]) -> Summary:
    """Return the distribution of at least one duration."""
    ordered = sorted(duration * 1000 for duration in seconds)
    return Summary(
        n=len(ordered),
        p50=_percentile(ordered, 50),
        p90=_percentile(ordered, 90),
        p99=_percentile(ordered, 99),
        max=round(ordered[-1], 3),
    )


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the nearest-rank percentile: a value that was measured, never one in between."""
    return round(ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1], 3)


def machine(folder: Path) -> dict[str, object]:
    """Return what the numbers depend on; `folder` is where the benchmark writes."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": _file_system(folder),
        "load": round(os.getloadavg()[0], 2),
    }


def _file_system(folder: Path) -> str:
    places = [part for part in psutil.disk_partitions(all=True) if folder.is_relative_to(part.mountpoint)]
    return max(places, key=lambda part: len(part.mountpoint)).fstype if places else "unknown"


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU time a process has used, of all its threads."""
    times = process.cpu_times()
    return float(times.user + times.system)
