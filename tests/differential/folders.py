"""Project folders as data, and the same folders on a disk.

Moments are kept as minutes before now: a hand-off is fresh, and an attempt is out of time, whenever a
case is run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

Json = dict[str, Any]

STATE = ".ai/STATE.json"
HANDOFF = ".ai/HANDOFF.md"

MAX_ATTEMPTS: Mapping[str, int] = {
    "bootstrap": 1, "bdd": 3, "sdd-delta": 3, "contract": 2, "review": 1, "scaffold": 2, "impl": 5,
    "verify": 2, "commit": 2, "update-memory": 2, "custom": 3, "done": 1,
}  # fmt: skip
TIMEOUT_MIN: Mapping[str, int] = {
    "bootstrap": 10, "bdd": 5, "sdd-delta": 5, "contract": 5, "review": 0, "scaffold": 5, "impl": 10,
    "verify": 5, "commit": 3, "update-memory": 3, "custom": 15, "done": 3,
}  # fmt: skip
STEPS = tuple(MAX_ATTEMPTS)
STATUSES = ("pending", "running", "pass", "failing", "needs_human", "timeout")


@dataclass(frozen=True, slots=True)
class Ago:
    """A moment, as minutes before now."""

    minutes: float


@dataclass(frozen=True, slots=True)
class File:
    """A file: its text, and when it was written last."""

    text: str
    age_min: float = 60


@dataclass(frozen=True, slots=True)
class Folder:
    """A project's files by path, and its STATE.json: values, any other text, or None for no such file."""

    files: Mapping[str, File] = field(default_factory=dict)
    state: Json | str | None = None

    def having(self, **changes: Any) -> Folder:
        """Return the folder with other values in its STATE.json."""
        assert isinstance(self.state, dict)
        return replace(self, state={**self.state, **changes})

    def lacking(self, *keys: str) -> Folder:
        """Return the folder without some keys of its STATE.json."""
        assert isinstance(self.state, dict)
        return replace(self, state={key: value for key, value in self.state.items() if key not in keys})

    def holding(self, path: str, text: str, age_min: float = 0) -> Folder:
        """Return the folder with one more file."""
        return replace(self, files={**self.files, path: File(text, age_min)})


def made(folder: Folder, root: Path, now: datetime) -> None:
    """Put a folder on the disk, with moments counted from `now`."""
    root.mkdir(parents=True)
    for name, file in folder.files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
        written = (now - timedelta(minutes=file.age_min)).timestamp()
        os.utime(path, (written, written))
    if folder.state is not None:
        path = root / STATE
        path.parent.mkdir(exist_ok=True)
        path.write_text(_state_text(folder.state, now), encoding="utf-8")


def _state_text(state: Json | str, now: datetime) -> str:
    if isinstance(state, str):
        return state
    timed = {key: _at(value, now) if isinstance(value, Ago) else value for key, value in state.items()}
    return json.dumps(timed, indent=2, ensure_ascii=False) + "\n"


def _at(ago: Ago, now: datetime) -> str:
    moment = now - timedelta(minutes=ago.minutes)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


MEMORY = """# Memory

## NOW
- US-001 is worked on

## NEXT
- US-002: returns

## ISSUES
- [ ] totals are rounded twice
- [x] a typo
- [ ] 價格為負時沒有錯誤訊息
"""

DOCUMENTS: Mapping[str, File] = {
    name: File(text)
    for name, text in {
        "package.json": '{"name": "shop", "private": true}\n',
        "PROJECT_CONTEXT.md": "# Shop\n",
        "PROJECT_MEMORY.md": MEMORY,
        "docs/constitution.md": "# Constitution\n",
        "docs/sdd.md": "# Design\n",
        "docs/nfr.md": "# NFR\n",
        "docs/api/openapi.yaml": "openapi: 3.1.0\n",
        "docs/bdd/US-001.md": "# US-001\n",
        "docs/deltas/US-001.md": "# US-001\n",
        ".ai/HANDOFF.md": "---\nstory: US-001\nstep: nothing\n---\nof before\n",
    }.items()
}
"""A project that has everything."""


def at(step: str, status: str, /, **changes: Any) -> Folder:
    """Return a project that has everything, standing somewhere."""
    sent = status != "pending" and step not in {"review", "done"}
    over = sent and status != "running"
    values: Json = {
        "project": "shop",
        "story": None if step == "bootstrap" else "US-001",
        "step": step,
        "attempt": 1,
        "max_attempts": MAX_ATTEMPTS[step],
        "status": status,
        "reason": None,
        "dispatched_at": Ago(2) if sent else None,
        "completed_at": Ago(1) if over else None,
        "timeout_min": TIMEOUT_MIN[step],
        "tests": None,
        "failing_tests": [],
        "lint_pass": None,
        "files_changed": [],
        "blocked_by": [],
        "human_note": None,
        "last_error": None,
        "task_type": "custom" if step == "custom" else "story",
        "agent_teams": False,
        "reopened_from": None,
    }
    return Folder(DOCUMENTS, {**values, **changes})


def handoff(
    step: str, *lines: str, story: str = "US-001", status: str | None = "pass", body: str = "x"
) -> str:
    """Return a hand-off with front matter."""
    said = [] if status is None else [f"status: {status}"]
    return "\n".join(["---", f"story: {story}", f"step: {step}", *said, *lines, "---", body, ""])
