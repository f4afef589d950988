"""What came of work by hand (level 1), and of tests that were tried, as plain JSON values."""

from __future__ import annotations

import json
from typing import Final

from handoffd.control.history import Json
from handoffd.engine.commands import addressed
from handoffd.engine.measurements import PostCheck
from handoffd.engine.views import Applied, Tried
from handoffd.protocol.document import render_state

APPLY_S: Final = 40.0
"""How long a daemon lets a caller wait for checks; who wants to know how they end asks again."""

_THEN: Final = {
    "applied": "the attempt is judged",
    "taken": "a hand-off counts once, so nothing changed now",
    "stale": "nothing changed; do not hand the same file in again",
    "pending": "the step is not done yet: wait for .ai/HANDOFF.md",
    "missing": "nothing changed; dispatch the step, then have its hand-off written",
    "error": "nothing changed; mend .ai/HANDOFF.md first",
}


def applied_json(applied: Applied, root: str) -> Json:
    """Return what became of a hand-off: its type, the STATE as it is now, and what to do next."""
    state = json.loads(render_state(applied.state))
    then = "its claims are being checked; ask again how that ends" if applied.checking else None
    following = addressed(applied.next_command, root) if applied.next_command else None
    answer: Json = {
        "type": applied.type,
        "message": applied.message,
        "state": state,
        "checking": applied.checking,
        "caller_instruction": f"{applied.message}; {then or _THEN[applied.type]}; next: {following}",
    }
    if applied.type == "error":
        answer |= {"code": applied.code, "recoverable": True}
    return {**answer, "project": root, "next_command": following}


def checked_json(command: str | None, ended: PostCheck | None, root: str) -> Json:
    """Return how a post_check ended; `passed` is null where the step has none."""
    passed = ended.passed if ended is not None else None
    if ended is None:
        told = "the step has no post_check"
    elif ended.fault is not None:
        told = f"post_check could not be run: {ended.fault}"
    else:
        told = f"post_check {'passed' if passed else 'did not end in time' if ended.timed_out else 'failed'}"
    return {
        "type": "checked",
        "project": root,
        "passed": passed,
        "command": command,
        "tail": ended.tail if ended is not None else "",
        "message": told,
        "caller_instruction": f"{told}; nothing else follows from it",
    }


def tried_json(tried: Tried, root: str) -> Json:
    """Return how a project's tests went; `passed` is null where they were not run to their end."""
    answer: Json = {"type": "tried", "project": root, "command": None, "path": tried.path}
    evidence = tried.evidence
    if tried.command is None or evidence is None:
        nothing = {"passed": None, "verified": False, "timed_out": False, "fault": None}
        return {**answer, **nothing, "tests": None, "failing": [], "line": None, "tail": "", "seconds": 0.0}
    ended = evidence.fault is None and not evidence.timed_out
    counts = evidence.counts
    told = {"pass": counts.passed, "fail": counts.failed, "skip": counts.skipped}
    return {
        **answer,
        "command": list(tried.command),
        "passed": not evidence.failing if ended else None,
        "verified": evidence.verified,
        "timed_out": evidence.timed_out,
        "fault": evidence.fault,
        "tests": told if ended and evidence.verified else None,
        "failing": list(evidence.failing),
        "line": evidence.line,
        "tail": evidence.tail,
        "seconds": round(evidence.seconds, 1),
    }
