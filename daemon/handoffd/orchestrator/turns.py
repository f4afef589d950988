"""The turns of a story at level 1: its next prompt, and what came of it.

`dispatch` prints the prompt, for a pipe to an agent, and the `<task-meta>` block that scripts parse;
for everything else that may be the case, stdout stays empty and the exit code is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handoffd.orchestrator.arguments import Words
from handoffd.orchestrator.door import Door, Json, without_state
from handoffd.orchestrator.printing import js_json
from handoffd.orchestrator.reading import framework
from handoffd.orchestrator.said import FAILED, RECOVERABLE, Said, as_json, broken, refused
from handoffd.orchestrator.statefile import BadState, NoState, read_state

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
    """Take what the agent left, run what is due, and print where that leads."""
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
    """Run the post_check of the step; none is a passed one."""
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
    """Fail the attempt whose agent crashed: the error is left as its result, and heard at once."""
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
        if answer["type"] in {"applied", "taken"}:  # a daemon may have heard it before this asked
            return Said((f'Recorded error for step "{step}": {message}',))
    told = f"{step} is {status}: there is no running attempt that could have failed"
    return refused("report-error", {"type": "error", "code": "NOT_RUNNING", "message": told}, FAILED)


def _named(root: str, answer: Json) -> Json:
    """Return what is told in the `<task-meta>` block beside what an answer has."""
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
