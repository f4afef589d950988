"""Under the real daemon, what an executor says costs neither memory nor the disk.

This is a slice; `python -m tests.benchmarks.flood` does the same with 1 GiB.
"""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.flood import faults, measure


def test_a_flood_of_output_is_bounded_everywhere(tmp_path: Path) -> None:
    """Shim and daemon stay as large as after 10 MiB; the beginning and the end are kept."""
    assert [] == faults(measure(tmp_path, 64))
