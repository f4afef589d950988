"""`.ai/history.md`: executors append what they did, and the daemon one entry for each story it reopens."""

from __future__ import annotations

import re
from pathlib import Path

from handoffd.errors import StoreError
from handoffd.files.rooted import append_project_file, read_project_file

HISTORY = ".ai/history.md"
MAX_BYTES = 4 * 1024 * 1024

_REOPENED = re.compile(rb"^### Reopen\b", re.MULTILINE)


def append_history(root: str, text: str) -> None:
    """Append an entry to the history, unless it is the last one: an order may be given twice."""
    seen = read_project_file(Path(root), HISTORY, MAX_BYTES)
    if seen is not None and seen.content.endswith(text.encode()):
        return
    unended = seen is not None and seen.content and not seen.content.endswith(b"\n")
    append_project_file(Path(root), HISTORY, f"\n{text}" if unended else text)


def reopenings(root: str) -> int:
    """Return how many reopenings the history tells of, by whatever tool; 0 for one that cannot be read."""
    try:
        seen = read_project_file(Path(root), HISTORY, MAX_BYTES)
    except StoreError:
        return 0
    return 0 if seen is None else len(_REOPENED.findall(seen.content))
