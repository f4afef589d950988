"""`.ai/runs/<dispatch id>/`: the convenience copies a person reads, in the project itself.

The daemon relies on none of this; what it relies on is in its own state directory.
"""

from __future__ import annotations

from pathlib import Path

from handoffd.execute.base import EXIT, START, ExitRecord
from handoffd.execute.process import adopt
from handoffd.files.rooted import read_project_file, write_project_file

RUNS = ".ai/runs"

_SLACK_NS = 2_000_000_000
"""Clocks that are steered drift by so much without having been set."""


def output_path(root: str, run_id: str) -> str:
    """Return where the bounded output of an executor lies; that of checks stays with their records."""
    return str(Path(root, RUNS, run_id, "output.log"))


def prepare(root: str, run_id: str, prompt: str) -> None:
    """Make the run's folder with its prompt, and keep all runs out of version control.

    Raises StoreError when the project cannot be written or a link stands in the way.
    """
    ignore = f"{RUNS}/.gitignore"
    if read_project_file(Path(root), ignore, 4096) is None:
        write_project_file(Path(root), ignore, "*\n", durable=False)
    write_project_file(Path(root), f"{RUNS}/{run_id}/prompt.md", prompt, durable=False)


def started_ns(run_dir: Path) -> int:
    """Return when an executor began, by the clock that also stamps files; 0 if it was not ours.

    If that clock was set back while it ran, by as much earlier: what it wrote afterwards is younger
    all the same. How long a run took was measured by the other clock, so that this can be seen.
    """
    try:
        began = Path(run_dir, START).stat().st_mtime_ns
        ended = Path(run_dir, EXIT).stat().st_mtime_ns
    except OSError:
        return _mtime_ns(Path(run_dir, START))
    record = adopt(run_dir)
    if not isinstance(record, ExitRecord):
        return began
    set_back_ns = int(record.seconds * 1_000_000_000) - (ended - began)
    return began - set_back_ns if set_back_ns > _SLACK_NS else began


def _mtime_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
