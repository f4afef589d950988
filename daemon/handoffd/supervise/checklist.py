"""`.ai/CHECKLIST.md`: a story's steps as boxes, created once and ticked by its executors.

A step that is a person's has a line without a box: no executor passes there who could tick it.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from handoffd.store.projection import append_project_file, read_project_file, write_project_file

CHECKLIST = ".ai/CHECKLIST.md"
HISTORY = ".ai/history.md"
MAX_BYTES = 4 * 1024 * 1024


def checklist(story: str, steps: tuple[str, ...], people: Container[str] = ()) -> str:
    """Return the checklist of a story: one box a step, and none for the steps of `people`."""
    lines = [f"- {step}: a person decides" if step in people else f"- [ ] {step}" for step in steps]
    return "\n".join([f"# {story}", "", *lines, ""])


def write_checklist(root: str, story: str, steps: tuple[str, ...], people: Container[str] = ()) -> None:
    """Create the story's checklist, unless it is there: an executor may have ticked it already."""
    seen = read_project_file(Path(root), CHECKLIST, MAX_BYTES)
    if seen is not None and seen.content.startswith(f"# {story}\n".encode()):
        return
    write_project_file(Path(root), CHECKLIST, checklist(story, steps, people), durable=False)


def append_history(root: str, text: str) -> None:
    """Append an entry to the history, unless it is the last one: an order may be given twice."""
    seen = read_project_file(Path(root), HISTORY, MAX_BYTES)
    if seen is not None and seen.content.endswith(text.encode()):
        return
    append_project_file(Path(root), HISTORY, text)
