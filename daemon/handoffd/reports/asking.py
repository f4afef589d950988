"""What a person types next in a chat, from the command that they would type in a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from handoffd.reports.wording import Wording

_SAID: Final[Mapping[str, str]] = {
    "approve": "gate",
    "reject": "gate",
    "retry": "retry",
    "resume": "continue",
    "continue": "continue",
    "dispatch": "continue",
    "start": "start",
    "custom": "start",
    "init": "start",
    "note": "note",
    "reopen": "reopen",
    "status": "wait",
}
"""Commands that can be said; every other one is shown as it is typed in a terminal."""


_SAME_WITHOUT: Final = frozenset({"status", "approve"})
"""Commands whose options need not be said: a chat has the story before its eyes."""


def to_type(wording: Wording, command: str | None) -> str | None:
    """Return the line that says what to type; None where it is nobody's turn."""
    if not command:
        return None
    verb = _verb(command)
    said = _SAID.get(verb or "")
    return wording.say("type.shell", command=command) if said is None else wording.say(f"type.{said}")


def _verb(command: str) -> str | None:
    """Return the verb of a command line of ours; None of anything else, or of several at once."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return None
    ours = len(words) > 1 and words[0] == "handoffd" and not {"&&", ";", "||"} & set(words)
    with_options = any(word.startswith("--") for word in words[2:]) and not _SAME_WITHOUT & {*words[1:2]}
    return words[1] if ours and not with_options else None
