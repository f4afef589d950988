"""The verbs that change a project: people move a story, or take its turns at level 1.

`dispatch` prints the prompt, for a pipe to an agent, and the `<task-meta>` block that scripts parse; for
every other outcome of a turn, stdout stays empty and the exit code is 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from handoffd.entrance import requests
from handoffd.entrance.place import Place
from handoffd.errors import Json, NotFound, Refused
from handoffd.orchestrator.console import (
    AGENT_TEAMS,
    FAILED,
    FORCE,
    RECOVERABLE,
    Said,
    Words,
    as_json,
    broken,
    js_json,
    refused,
)
from handoffd.orchestrator.reads import BadState, NoState, framework, read_state


# --- the way to the engine: through the daemon, or, while none runs, alone ----------------------------
# The reference works on any folder that has a STATE.json. Here a verb first adds the project, at level 1, so
# that the daemon supervises it and still dispatches nothing.
class Door:
    """Gives verbs to one project at `root`. A refusal is an answer of type `error`."""

    def __init__(self, root: str, environ: Mapping[str, str]) -> None:
        self.root = root
        self._place = Place(config=environ.get("HANDOFFD_CONFIG") or None, environ=environ)

    def give(self, verb: str, **arguments: Any) -> Json:
        """Return the answer to a verb, with the outcome of its checks. Raises HandoffdError."""
        return _or_error(lambda: requests.give(self._place, verb, self.root, arguments, adds=_always))

    def peek(self) -> Json:
        """Return what the next turn would do. This does not start supervising the project."""
        return _or_error(lambda: requests.peek(self._place, self.root, aside=_always))

    def at_gate(self) -> bool:
        """Return whether a supervised project waits for a person's decision."""
        try:
            shown = requests.ask(self._place, "status", project=self.root).json
        except NotFound:
            return False
        return any(track["gate"] for project in shown["projects"] for track in project["tracks"])


def _always(_: str) -> bool:
    """Return True: what needs a STATE.json has looked for one before."""
    return True


def _or_error(ask: Callable[[], requests.Answer]) -> Json:
    try:
        return ask().json
    except (Refused, NotFound) as error:
        told = {"type": "error", "code": error.code, "message": error.message, "recoverable": False}
        return {**told, "next_command": error.hint}


def without_state(root: str) -> Json | None:
    """Return the error for a project without a usable STATE.json; None if it has one."""
    try:
        read_state(root)
    except (NoState, BadState) as error:
        return {"type": "error", "code": "STATE_NOT_FOUND", "message": str(error), "recoverable": False}
    return None


# --- people move a story -----------------------------------------------------------------------------
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
    """Start a task in a person's own words; the label names it."""
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
    """Reopen a story that is done, at a step."""
    root = words.root()
    step = words.needed(1, "target-step", "Example: orchestrator reopen ./project impl")
    answer = _moved(root, environ, "reopen", step=step, note=words.at(2) or None)
    if answer["type"] == "error":
        return refused("reopen", answer, FAILED)
    story = (_state(root) or {}).get("story")
    return Said((f'Reopened story "{story}" at step "{answer["step"]}" {_standing(root, answer)}',))


def _moved(root: str, environ: Mapping[str, str], verb: str, **arguments: Any) -> Json:
    """Give a verb that needs an existing STATE.json."""
    return without_state(root) or Door(root, environ).give(verb, **arguments)


def _standing(root: str, answer: Json) -> str:
    return f"(status: {answer['status']}, attempt: {_attempt(root)})"


def _attempt(root: str) -> Any:
    return (_state(root) or {}).get("attempt", 1)


def _state(root: str) -> dict[str, Any] | None:
    """Return STATE.json; None where it is missing or cannot be understood."""
    try:
        return read_state(root).values
    except (NoState, BadState):
        return None


# --- turns at level 1 --------------------------------------------------------------------------------
RESULT = ".ai/executor-result"


def dispatch(words: Words, environ: Mapping[str, str]) -> Said:
    """Take the next turn, and print the prompt that is due."""
    root = words.root()
    if (missing := without_state(root)) is not None:
        return refused("dispatch", missing)
    answer = Door(root, environ).give("dispatch")
    if answer["type"] == "error":
        return refused("dispatch", answer)
    if answer["type"] == "dispatched":
        then = f"the attempt runs from now on; when the agent is done: orchestrator apply-handoff {root}"
        return _with_prompt("dispatch", {**answer, **_named(root, answer)}, then)
    return _nothing_dispatched("dispatch", answer)


def peek(words: Words, environ: Mapping[str, str]) -> Said:
    """Print the prompt that `dispatch` would print, and change nothing."""
    root = words.root()
    if (missing := without_state(root)) is not None:
        return refused("peek", missing, code=0)
    answer = Door(root, environ).peek()
    if answer.get("type") == "error":
        return refused("peek", answer, code=0)
    if answer["prompt"] is None or answer["result"]["type"] == "timeout":
        return _nothing_dispatched("peek", answer["result"])
    return _with_prompt("peek", {**answer, **_named(root, answer)}, "nothing was changed")


def apply_handoff(words: Words, environ: Mapping[str, str]) -> Said:
    """Apply the agent's hand-off, run its checks, and print the outcome."""
    root = words.root()
    if (missing := without_state(root)) is not None:
        return refused("apply-handoff", missing)
    answer = Door(root, environ).give("apply")
    if answer["type"] == "error":
        return refused("apply-handoff", answer)
    kind = "stale" if answer["type"] == "taken" else answer["type"]  # the reference has no word for it
    told: Json = {"type": kind, "state": answer["state"]}
    if kind != "applied":
        told["message"] = answer["message"]
    return as_json(told, f"[apply-handoff] {kind}: {_outcome(answer)}")


def post_check(words: Words, environ: Mapping[str, str]) -> Said:
    """Run the post_check of the step; without one it passes."""
    root = words.root()
    if (missing := without_state(root)) is not None:
        return broken(missing["message"])
    answer = Door(root, environ).give("check")
    if answer["type"] == "error":
        return refused("post-check", answer, FAILED)
    if answer["passed"] is False:
        return Said(("post_check: FAILED",), tuple(_lines(answer.get("tail"))), FAILED)
    return Said(("post_check: PASSED",))


def report_error(words: Words, environ: Mapping[str, str]) -> Said:
    """Fail the attempt whose agent crashed: write the error as its result, and apply that at once."""
    from pathlib import Path

    from handoffd.files.rooted import write_project_file

    example = 'Example: orchestrator report-error . "the agent ended with exit code 137"'
    root, message = words.root(), words.needed(1, "error-message", example)
    try:
        step, status = (read_state(root).values[name] for name in ("step", "status"))
    except (NoState, BadState) as error:
        return broken(str(error))
    if status == "running":
        line = " ".join(message.split())
        write_project_file(Path(root), RESULT, f"status: failing\nreason: {line}\n")
        answer = Door(root, environ).give("apply")
        if answer["type"] in {"applied", "taken"}:  # a daemon may have applied it before
            return Said((f'Recorded error for step "{step}": {message}',))
    told = f"{step} is {status}: there is no running attempt that could have failed"
    return refused("report-error", {"type": "error", "code": "NOT_RUNNING", "message": told}, FAILED)


def _named(root: str, answer: Json) -> Json:
    """Return what the `<task-meta>` block has in addition to an answer."""
    values = read_state(root).values
    story = answer.get("story", values.get("story"))
    return {"project": values["project"], "story": story, "fw_lv": framework(root)["level"]}


def _with_prompt(verb: str, answer: Json, then: str) -> Said:
    meta: Json = {"task_name": f"{_js(answer['story'])}-{answer['step']}"}
    meta |= {name: answer[name] for name in ("project", "story", "step", "attempt", "fw_lv")}
    block = f"\n<task-meta>\n{js_json(meta)}\n</task-meta>"
    said = f"[{verb}] step={answer['step']} attempt={answer['attempt']}"
    return Said((answer["prompt"].rstrip("\n"), block), (said, f"[{verb}] {then}"))


def _js(value: Any) -> str:
    return "null" if value is None else str(value)


def _nothing_dispatched(verb: str, answer: Json) -> Said:
    """Say why there is no prompt. None of it is an error: scripts with `set -e` go on."""
    kind, why = answer["type"], _why(answer)
    head = {"done": "DONE", "needs_human": "NEEDS HUMAN REVIEW", "blocked": "BLOCKED", "timeout": "TIMEOUT"}
    lines = [f"[{verb}] {head.get(kind, 'Already running')}: {why}"]
    if answer.get("next_command"):
        lines.append(f"  next: {answer['next_command']}")
    code = RECOVERABLE if kind == "error" and verb == "dispatch" else 0
    return Said((), tuple(lines), code)


def _why(answer: Json) -> str:
    if answer["type"] == "already_running":
        return f"{answer['step']}, for {answer['elapsed_min']} min"
    return str(answer.get("summary") or answer.get("reason") or answer.get("message"))


def _outcome(answer: Json) -> str:
    if answer["type"] != "applied":
        return str(answer["message"])
    state = answer["state"]
    return f"step {state['step']}, status {state['status']}, reason {state['reason'] or '(none)'}"


def _lines(text: str | None) -> list[str]:
    return [] if text is None else text.splitlines()
