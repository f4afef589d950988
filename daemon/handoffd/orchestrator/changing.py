"""The verbs by which people move a story: start, approve, reject, go back, reopen."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from handoffd.orchestrator.arguments import AGENT_TEAMS, FORCE, Words
from handoffd.orchestrator.door import Door, Json, without_state
from handoffd.orchestrator.said import FAILED, Said, refused
from handoffd.orchestrator.statefile import BadState, NoState, read_state

POINTER = "CLAUDE.md"
REASONS = "constitution_violation, needs_clarification, nfr_missing, scope_warning, test_timeout"


def init(words: Words, environ: Mapping[str, str]) -> Said:
    """Give the project its first STATE.json, and a pointer for agents."""
    root, name = words.root(), words.needed(1, "project-name")
    before, pointed = _state(root), os.path.lexists(os.path.join(root, POINTER))
    answer = Door(root, environ).give("init", name=name)
    if answer["type"] == "error":
        return refused("init", answer)
    if before is None:
        lines = [f'Initialized .ai/STATE.json for "{name}"']
    else:
        lines = [f"STATE.json already exists (step: {before.get('step')}, status: {before.get('status')})"]
    if POINTER in answer["created"] and not pointed:
        lines.append("Created CLAUDE.md (CC will auto-detect ACF on session start)")
    return Said(tuple(lines), tuple(answer["warnings"]))


def start_story(words: Words, environ: Mapping[str, str]) -> Said:
    """Start a story at its first step."""
    root, story = words.root(), words.needed(1, "story-id")
    answer = Door(root, environ).give("start", story=story, force=words.has(FORCE), manual=True)
    if answer["type"] == "error":
        return refused("start-story", answer, FAILED)
    return Said((f"Started story {story} (step: {answer['step']}, attempt: {_attempt(root)})",))


def start_custom(words: Words, environ: Mapping[str, str]) -> Said:
    """Start a task of a person's own words; the label is what it is called."""
    root = words.root()
    example = 'Example: orchestrator start-custom ./project "Tidy up the price tables"'
    instruction = words.needed(1, "instruction", example)
    label = next((word for word in words.given[2:3] if word not in {AGENT_TEAMS, FORCE}), "")
    named = {"label": label} if label else {}
    teams = AGENT_TEAMS in words.given[2:]
    answer = Door(root, environ).give("custom", text=instruction, agent_teams=teams, manual=True, **named)
    if answer["type"] == "error":
        return refused("start-custom", answer)
    state = _state(root) or {}
    told = f"  label: {state.get('story')}, step: {answer['step']}, task_type: {state.get('task_type')}"
    return Said((f'Started custom task: "{instruction}"', told))


def approve(words: Words, environ: Mapping[str, str]) -> Said:
    """Pass the human step the story waits at."""
    root, note = words.root(), words.at(1)
    answer = _moved(root, environ, "approve", note=note or None)
    if answer["type"] == "error":
        return refused("approve", answer, FAILED)
    return Said((f'Review approved (note: "{note}")' if note else "Review approved",))


def reject(words: Words, environ: Mapping[str, str]) -> Said:
    """Send the story back from the human step it waits at."""
    root, reason = words.root(), words.needed(1, "reason", f"One of: {REASONS}")
    answer = _moved(root, environ, "reject", reason=reason, note=words.at(2) or None)
    if answer["type"] == "error":
        return refused("reject", answer, FAILED)
    return Said((f"Review rejected (reason: {reason})",))


def rollback(words: Words, environ: Mapping[str, str]) -> Said:
    """Go back to an earlier step."""
    root = words.root()
    step = words.needed(1, "target-step", "Example: orchestrator rollback ./project impl")
    answer = _moved(root, environ, "rollback", step=step, force=words.has(FORCE))
    if answer["type"] == "error":
        renamed = {"NEEDS_FORCE": "BOOTSTRAP_NEEDS_FORCE"}.get(answer["code"], answer["code"])
        return refused("rollback", {**answer, "code": renamed}, FAILED)
    return Said((f'Rolled back to step "{answer["step"]}" {_standing(root, answer)}',))


def reopen(words: Words, environ: Mapping[str, str]) -> Said:
    """Take a story that is done up again at a step."""
    root = words.root()
    step = words.needed(1, "target-step", "Example: orchestrator reopen ./project impl")
    answer = _moved(root, environ, "reopen", step=step, note=words.at(2) or None)
    if answer["type"] == "error":
        return refused("reopen", answer, FAILED)
    story = (_state(root) or {}).get("story")
    return Said((f'Reopened story "{story}" at step "{answer["step"]}" {_standing(root, answer)}',))


def _moved(root: str, environ: Mapping[str, str], verb: str, **arguments: Any) -> Json:
    """Give a verb that needs a STATE.json to begin with."""
    return without_state(root) or Door(root, environ).give(verb, **arguments)


def _standing(root: str, answer: Json) -> str:
    return f"(status: {answer['status']}, attempt: {_attempt(root)})"


def _attempt(root: str) -> Any:
    return (_state(root) or {}).get("attempt", 1)


def _state(root: str) -> dict[str, Any] | None:
    """Return STATE.json; None where there is none, or none that could be understood."""
    try:
        return read_state(root).values
    except (NoState, BadState):
        return None
