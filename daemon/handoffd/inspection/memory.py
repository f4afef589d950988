"""What PROJECT_MEMORY.md says: executors write it, people are told of it, nothing is decided by it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from handoffd.inspection.framework import MEMORY
from handoffd.store.rooted import read_project_file

MAX_BYTES = 1024 * 1024
SUMMARY_CHARACTERS = 500
MOST_ISSUES = 500

_HEADING = re.compile(r"(#{1,6})\s+(.*)")
_LABEL = re.compile(r"ISSUES\s*[:：]", re.IGNORECASE)
_ITEM = re.compile(r"\s{0,3}[-*+]\s*\[\s*\](.*)")
_BELOW_ALL_HEADINGS = 7


def read_memory(root: str) -> str | None:
    """Return the text of the project's memory, None when there is none.

    Raises StoreError (UNSAFE_FILE) for a link, a folder, or more than 1 MiB.
    """
    seen = read_project_file(Path(root), MEMORY, MAX_BYTES)
    return None if seen is None else seen.content.decode("utf-8", errors="replace")


def memory_summary(memory: str) -> str | None:
    """Return the NEXT section with its heading, at most 500 characters; None without one."""
    lines = list(section_of(memory, "NEXT"))
    return "\n".join(lines).strip()[:SUMMARY_CHARACTERS] or None


def open_issues(memory: str) -> tuple[str, ...]:
    """Return the unticked items of the ISSUES section, one line each, at most 500 of them."""
    found: list[str] = []
    for line in section_of(memory, "ISSUES"):
        item = _ITEM.match(line)
        if item and item[1].strip() and len(found) < MOST_ISSUES:
            found.append(item[1].strip())
    return tuple(found)


def section_of(text: str, name: str) -> Iterator[str]:
    """Yield the lines of every section of that name, with its heading and what is below it."""
    depth, fenced = 0, False
    for line in text.splitlines():
        fenced = fenced != line.lstrip().startswith("```")
        level, title = (0, "") if fenced else _title(line)
        if level and _names(title, name):
            depth = depth or level
        elif 0 < level <= depth:
            depth = 0
        if depth:
            yield line


def _title(line: str) -> tuple[int, str]:
    """Return the depth of a heading and what it says; depth 0 for a line that is none.

    A bare `ISSUES:` heads a section, too; whatever heading comes next ends that.
    """
    heading = _HEADING.fullmatch(line)
    if heading:
        return len(heading[1]), heading[2].strip()
    return (_BELOW_ALL_HEADINGS, line) if _LABEL.match(line) else (0, "")


def _names(title: str, name: str) -> bool:
    return title.upper().startswith(name) and not title[len(name) : len(name) + 1].isalnum()
