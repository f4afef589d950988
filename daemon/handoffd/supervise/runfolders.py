"""`.ai/runs/<dispatch id>/`: the convenience copies a person reads, in the project itself.

The daemon relies on none of this; what it relies on is in its own state directory.
"""

from __future__ import annotations

from pathlib import Path

from handoffd.store.projection import read_project_file, write_project_file

RUNS = ".ai/runs"


def output_path(root: str, run_id: str) -> str:
    """Return where the bounded output of a run lies; checks have a file beside their dispatch's."""
    dispatch, _, check = run_id.partition(".")
    return str(Path(root, RUNS, dispatch, f"{check or 'output'}.log"))


def prepare(root: str, run_id: str, prompt: str) -> None:
    """Make the run's folder with its prompt, and keep all runs out of version control.

    Raises StoreError when the project cannot be written or a link stands in the way.
    """
    ignore = f"{RUNS}/.gitignore"
    if read_project_file(Path(root), ignore, 4096) is None:
        write_project_file(Path(root), ignore, "*\n", durable=False)
    write_project_file(Path(root), f"{RUNS}/{run_id}/prompt.md", prompt, durable=False)
