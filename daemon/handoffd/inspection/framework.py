"""How far a project has adopted the protocol, by which of its files are there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from handoffd.store.projection import MAIN, state_name

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
