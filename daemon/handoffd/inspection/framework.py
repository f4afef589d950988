"""How far a project has adopted the protocol, by which files are there, and what PROJECT_MEMORY.md says.

Executors write the memory, people are told of it, nothing is decided by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from handoffd.files.projection import MAIN, state_name
from handoffd.files.rooted import read_project_file

MEMORY = "PROJECT_MEMORY.md"
Level = Literal[0, 1, 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """Which of the protocol's files a project has; `level` is 0 for none of the first five, 2 for all."""

    has_state: bool
    has_memory: bool
    has_context: bool
    has_constitution: bool
    has_sdd: bool
    has_handoff: bool
    has_history: bool
    level: Level


def detect_framework(root: str) -> Framework:
    """Return which of the protocol's files the project at `root` has. A missing folder has none.

    They are looked for and not read. Of STATE.json it is enough that something lies in its place:
    whoever reads it will say what is wrong with that.
    """
    project = Path(root)
    state = _exists(project / state_name(MAIN))
    memory, context = _is_file(project / MEMORY), _is_file(project / "PROJECT_CONTEXT.md")
    constitution, sdd = _is_file(project / "docs/constitution.md"), _is_file(project / "docs/sdd.md")
    found = (state, memory, context, constitution, sdd)
    return Framework(
        has_state=state,
        has_memory=memory,
        has_context=context,
        has_constitution=constitution,
        has_sdd=sdd,
        has_handoff=_is_file(project / ".ai/HANDOFF.md"),
        has_history=_is_file(project / ".ai/history.md"),
        level=2 if all(found) else 1 if any(found) else 0,
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # a folder on the way that is not ours to look into


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


# --- PROJECT_MEMORY.md -------------------------------------------------------------------------------
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
