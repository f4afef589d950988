"""Hook events as Claude Code writes them, and projects as a hook finds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DISPATCHED = "2026-01-01T10:00:00Z"
DISPATCHED_NS = 1767261600 * 10**9


def event(cwd: Path | str, name: str = "Stop", **fields: Any) -> bytes:
    """Return what Claude Code would write to a hook's standard input."""
    told: dict[str, Any] = {
        "session_id": "00893aaf-19fa-41d2-8238-13269b9b3ca0",
        "transcript_path": "/home/eve/.claude/projects/-srv-shop/00893aaf.jsonl",
        "cwd": str(cwd),
        "permission_mode": "default",
        "hook_event_name": name,
    }
    if name in {"Stop", "SubagentStop"}:
        told |= {"stop_hook_active": False, "last_assistant_message": "Done."}
    return json.dumps(told | fields).encode()


def standing(root: Path, **state: Any) -> Path:
    """Write a STATE.json of a running attempt, changed by `state`, and return the project's root."""
    whole: dict[str, Any] = {
        "project": "shop",
        "story": "US-001",
        "step": "bdd",
        "attempt": 1,
        "max_attempts": 3,
        "status": "running",
        "reason": None,
        "dispatched_at": DISPATCHED,
        "completed_at": None,
        "last_error": None,
    }
    (root / ".ai").mkdir(parents=True, exist_ok=True)
    (root / ".ai/STATE.json").write_text(json.dumps(whole | state), encoding="utf-8")
    return root
