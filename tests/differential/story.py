"""The course of a sequence beside its verbs: the moves of agents and people, and earlier facts.

It gives each verb a name with the state of the project, in the words of `cases.py`: rules match verbs of
sequences by this name, as they match cases by theirs.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.differential.folders import HANDOFF, STATE, Folder
from tests.differential.outcomes import state_of
from tests.differential.sequences import FORMS, HISTORY, SETTINGS, Added, Edited, Left, Move, Played, Said

from handoffd.clock import SystemClock

Json = dict[str, Any]

RESULT = ".ai/executor-result"
_LONG_AGO_S = 600
_TOLD = {
    "human_note": "with a note", "tests": "with tests", "files_changed": "with files",
    "last_error": "with an error",
}  # fmt: skip
"""How a name says that a value of STATE.json is there."""
_ATTEMPTS = "max_attempts_exceeded"


class Story:
    """What has happened in one sequence so far."""

    def __init__(self, sequence: Played) -> None:
        self._folder: Folder = sequence.folder
        self._left = "stale" if HANDOFF in sequence.folder.files else "none"
        self._done = set(sequence.done)
        self._had = bool(self._done) or HISTORY in sequence.folder.files

    def does(self, move: Move, root: Path) -> None:
        """Carry out a move that is not a verb. Without a STATE.json an agent has nothing to do."""
        state = _state(root)
        if state is None:
            return
        match move:
            case Left(form=form):
                text = FORMS[form]
                for name in ("story", "step", "attempt"):
                    text = text.replace(f"{{{name}}}", str(state.get(name)))
                _write(root / HANDOFF, text)
                self._left = form
            case Added(path=path, text=text):
                before = (root / path).read_text(encoding="utf-8") if (root / path).exists() else ""
                _write(root / path, before + text.replace("{story}", str(state.get("story"))))
            case Edited(values=values) if state.get("status") != "running":
                told = json.dumps({**state, **dict(values)}, indent=2, ensure_ascii=False)
                _write(root / STATE, told + "\n")
            case _:
                pass

    def sees(self, move: Said, root: Path) -> Json | None:
        """Return STATE.json before a verb, after some time has passed: what was left is older then.

        But for a hand-off that is waited for, or that the verb itself is about.
        """
        state = _state(root)
        if (state is None or state.get("status") != "running") and move.verb != "apply-handoff":
            for name in (HANDOFF, RESULT):
                _age(root / name)
            self._left = "none" if self._left == "none" else "stale"
        if state is not None and state.get("story") is not None:
            self._had |= state.get("task_type") == "story" and state.get("step") != "bootstrap"
            if state.get("step") == "done":
                self._done.add(str(state["story"]))
        return state_of(root) if state is not None else None

    def place(self, move: Said, state: Json | None) -> str:
        """Return the name of a verb: its words, and the state of the project."""
        left = ""
        if move.verb == "apply-handoff":
            left = f", {self._left}"
            self._left = self._left if self._left.endswith("again") else f"{self._left} again"
        beside = self._beside(move, state)
        told = f" ({', '.join(beside)})" if beside else ""
        return f"{' '.join((move.verb, *move.words[2:]))} @ {self._stands(state)}{left}{told}"

    def _stands(self, state: Json | None) -> str:
        if state is None:
            return (
                "documents, no STATE.json"
                if "PROJECT_CONTEXT.md" in self._folder.files
                else "an empty folder"
            )
        at = f"{state['step']} {state['status']}"
        if state.get("reason"):
            at += f" {state['reason']}"
        if state["status"] == "failing" and state["attempt"] >= state["max_attempts"]:
            at += " at max"
        if state.get("blocked_by"):
            at += " blocked by attempts" if _ATTEMPTS in state["blocked_by"] else " blocked by a story"
        return at

    def _beside(self, move: Said, state: Json | None) -> list[str]:
        """Return what else makes a difference."""
        found = [told for key, told in _TOLD.items() if state is not None and state.get(key)]
        if state is not None and state.get("reopened_from"):
            found.append(f"reopened from {state['reopened_from']}")
        named = {word for word in " ".join(move.words).split() if word.startswith("US-")}
        story = state.get("story") if state is not None else None
        if move.verb in {"start-story", "start-custom", "auto"}:
            if named & self._done - {story}:
                found.append("of before")
            if state is not None and story is not None and state["step"] != "done":
                found.append("itself in flight" if story in named else "another in flight")
            if "PROJECT_CONTEXT.md" not in self._folder.files:
                found.append("no documents")
            if self._had:
                found.append("after others")
        settings = self._folder.files.get(SETTINGS)
        if settings is not None:
            found.append(settings.text.split()[-1])
        return found


def _state(root: Path) -> Json | None:
    try:
        found = json.loads((root / STATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    assert isinstance(found, dict)
    return found


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _age(path: Path) -> None:
    past = SystemClock().now().timestamp() - _LONG_AGO_S
    if path.exists() and path.stat().st_mtime > past:
        os.utime(path, (past, past))
