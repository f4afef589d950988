"""What a hook says: its exit code, and texts that cannot harm a terminal."""

from __future__ import annotations

PASSED, TOLD, BLOCKED = 0, 1, 2
"""Exit codes: all is well; shown to the person, nothing is stopped; the agent goes on, and hears why."""

_MAX_TEXT = 8000
"""Characters; Claude Code shows an agent no more than 10,000."""


class Reply:
    """The exit code of a hook, what it says on standard error, and what it shows to the person."""

    __slots__ = ("code", "note", "text")

    def __init__(self, code: int = PASSED, *, text: str = "", note: str = "") -> None:
        self.code = code
        self.text = _readable(text)
        self.note = _readable(note)


def _readable(text: str) -> str:
    """Return text that came out of a project's tools fit for a terminal and an agent."""
    shown = "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)
    return shown if len(shown) <= _MAX_TEXT else f"{shown[: _MAX_TEXT - 1]}…"
