"""The words after `orchestrator`, taken as the reference takes them: by position.

What is copied from a chat or a document carries characters that nobody sees; they are removed, as in
the reference. It removes everything beyond ASCII with them, and so a Chinese message: that we keep.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

FORCE = "--force"
AGENT_TEAMS = "--agent-teams"

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_KEPT = frozenset("\n\t")


class UsageError(Exception):
    """The words cannot be understood; `lines` tell why, for stderr."""

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines


@dataclass(frozen=True, slots=True)
class Words:
    """What was said after the verb; a missing word is an empty one."""

    given: tuple[str, ...]

    @classmethod
    def of(cls, raw: Sequence[str]) -> Words:
        """Return the words without what cannot be seen."""
        return cls(tuple(map(seen, raw)))

    def root(self) -> str:
        """Return the project's folder, absolute. Raises UsageError when it is missing."""
        return os.path.abspath(self.needed(0, "project-root"))

    def needed(self, index: int, name: str, *more: str) -> str:
        """Return a word. Raises UsageError when it is missing; `more` lines tell how it would look."""
        word = self.at(index)
        if not word:
            raise UsageError(f"Error: <{name}> is required", *more)
        return word

    def at(self, index: int) -> str:
        """Return a word, or the empty one."""
        return self.given[index] if index < len(self.given) else ""

    def rest(self, index: int) -> str:
        """Return all words from there on, as one text."""
        return " ".join(self.given[index:])

    def has(self, flag: str) -> bool:
        """Return whether a flag stands anywhere."""
        return flag in self.given


def seen(word: str) -> str:
    """Return a word without invisible characters, and without space around it."""
    kept = (char for char in word if char in _KEPT or unicodedata.category(char) not in _INVISIBLE)
    return "".join(kept).strip()
