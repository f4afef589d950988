"""What Claude Code sends a hook on its standard input, reduced to what we use, and what the hook replies.

Every turn of every session ends with an import of this module, so the way to "nothing to do" uses only quick
modules of the standard library: no dataclasses, no pathlib, nothing compiled.
"""

from __future__ import annotations

import json
import os

MAX_BYTES = 4 * 1024 * 1024
"""No hook event is larger: its longest part is the agent's last message."""
_MAX_WORD = 200

STOP, SESSION_END = "Stop", "SessionEnd"
EVENTS = (STOP, "SubagentStop", SESSION_END, "TaskCompleted", "TeammateIdle")
"""The events a hook of ours answers; at every other one it is silent."""


class NotAnEventError(Exception):
    """Standard input is not a hook event."""


class HookEvent:
    """One event. `continued`: the agent works only because a hook sent it back."""

    def __init__(self, *, name: str, session: str, cwd: str, continued: bool) -> None:
        self.name = name
        self.session = session
        self.cwd = cwd
        self.continued = continued


def parse_event(raw: bytes) -> HookEvent | None:
    """Return the event in `raw`; None for one that is not ours. Raises NotAnEventError."""
    if len(raw) > MAX_BYTES:
        raise NotAnEventError(f"the input is longer than {MAX_BYTES} bytes")
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        raise NotAnEventError("the input is not JSON") from None
    if not isinstance(data, dict) or not isinstance(data.get("hook_event_name"), str):
        raise NotAnEventError("the input names no hook_event_name")
    if data["hook_event_name"] not in EVENTS:
        return None
    cwd, session = data.get("cwd"), data.get("session_id")
    if not isinstance(cwd, str) or not cwd.startswith("/") or "\0" in cwd:
        raise NotAnEventError("the input names no absolute cwd")
    try:
        os.fsencode(cwd)
    except UnicodeEncodeError:
        raise NotAnEventError("the cwd in the input cannot be a path: it holds half a character") from None
    return HookEvent(
        name=data["hook_event_name"],
        session=session[:_MAX_WORD] if isinstance(session, str) else "",
        cwd=cwd,
        continued=data.get("stop_hook_active", False) is not False,
    )


# --- what a hook replies -----------------------------------------------------------------------------
PASSED, TOLD, BLOCKED = 0, 1, 2
"""Exit codes: all is well; the person sees the text; the agent sees it and goes on."""

_MAX_TEXT = 8000
"""Characters; Claude Code shows an agent no more than 10,000."""


class Reply:
    """The exit code of a hook, its text on standard error, and its note for the person."""

    def __init__(self, code: int = PASSED, *, text: str = "", note: str = "") -> None:
        self.code = code
        self.text = _readable(text)
        self.note = _readable(note)


def _readable(text: str) -> str:
    """Return text from a project's tools, made fit for a terminal and an agent."""
    shown = "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)
    return shown if len(shown) <= _MAX_TEXT else f"{shown[: _MAX_TEXT - 1]}…"
