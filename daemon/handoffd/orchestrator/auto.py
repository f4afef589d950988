"""`auto`: reads a message, does what it asks for, prints JSON.

`chat/intents.py` finds out what a message means, and the verb of that name does it. The reference names
results by `action` here, and leaves out what it does not know.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from handoffd.errors import Json
from handoffd.orchestrator.console import FAILED, Said, Words, as_json
from handoffd.orchestrator.reads import BadState, NoState, framework, listed, no_folder, queried, read_state
from handoffd.orchestrator.verbs import Door, without_state

if TYPE_CHECKING:
    from handoffd.chat.intents import Intent


_CHARACTERS: Final = 2000
_QUERIED: Final = {"memory": "PROJECT_MEMORY.md", "handoff": ".ai/HANDOFF.md"}
_TURNS: Final[Mapping[str, tuple[str, ...]]] = {
    "dispatched": ("step", "attempt", "next_step", "prompt", "fw_lv"),
    "done": ("story", "summary"),
    "needs_human": ("step", "message"),
    "blocked": ("step", "reason"),
    "already_running": ("step", "elapsed_min", "last_error"),
    "timeout": ("step", "elapsed_min", "last_error"),
    "error": ("code", "message", "step", "recoverable"),
}
"""The keys of each outcome of a turn, between `action` and `caller_instruction`."""

_PLAIN: Final = {"retry": "retried", "skip": "skipped", "abort": "aborted", "pause": "paused"}
SUPERVISED: Final = "SUPERVISED"
USED_UP: Final = "max_attempts_exceeded"


def auto(words: Words, environ: Mapping[str, str]) -> Said:
    """Do what a message asks for, and print the outcome."""
    root = words.root()
    message = words.rest(1).strip()
    if not message:
        words.needed(len(words.given), "message", 'Example: orchestrator auto ./project "目前狀態如何"')
    answer = answered(root, message, environ)
    told = [f"[auto] {answer['action']}: {_gist(answer)}"]
    return as_json(answer, *told, code=FAILED if answer["action"] == "error" else 0)


def answered(root: str, message: str, environ: Mapping[str, str]) -> Json:
    """Return the outcome of a message about the project at `root`."""
    from handoffd.chat.intents import classify, settled

    meant = classify(message)
    place = _place_of(root, meant.project)
    if place is None:
        return _failed({"code": "NOT_FOUND", "message": f"no folder {meant.project} is beside {root}"})
    door = Door(place, environ)
    intent = settled(meant, at_gate=_at_gate(door))
    if (look := _LOOKS.get(intent.kind)) is not None:
        return look(place)
    if intent.kind == "init":
        return _made(door)
    if intent.kind == "continue":
        return _turn(door)
    if intent.kind in {"start_story", "start_custom"}:
        return _started(door, intent)
    if intent.kind == "unclear":
        if intent.tells_no_task:
            return _failed({"code": "UNCLEAR", "message": "the message does not say what to do"})
        if intent.command is not None:
            return _failed({"code": "UNCLEAR", "message": f"in a terminal: handoffd {intent.command}"})
        near = f"; for `{intent.near}`, say that alone" if intent.near else ""
        return _failed({"code": "UNCLEAR", "message": f"it is not clear what to do{near}"})
    if (missing := without_state(place)) is not None:
        return _failed(missing)
    return _decided(door, intent)


def _place_of(root: str, name: str | None) -> str | None:
    """Return where the project that a message names is: `root`, or a folder beside it; else None."""
    from handoffd.inspection.project_status import project_name

    own = {os.path.basename(root).lower(), project_name(root).lower()}
    if name is None or name == root or name.lower() in own:
        return root
    beside = os.path.join(os.path.dirname(root), name)
    return beside if os.path.isdir(beside) else None


def _made(door: Door) -> Json:
    answer = door.give("init")
    if answer["type"] == "error":
        return _failed(answer)
    return _given("initialised", project=answer.get("name"), created=answer.get("created"))


def _story_meant(door: Door, intent: Intent) -> str | None:
    """Return the story whose gate is meant: the named one, as STATE spells it, or else the current one."""
    from handoffd.protocol.story import same_story

    here = read_state(door.root).values.get("story")
    known = isinstance(here, str) and (intent.story is None or same_story(intent.story, here))
    return str(here) if known else intent.story


def _decided(door: Door, intent: Intent) -> Json:
    """Give the verb for a person's decision."""
    match intent.kind:
        case "approve":
            answer = door.give("approve", note=intent.note, story=_story_meant(door, intent))
            told = _given("approved", note=intent.note)
        case "reject":
            reason = str(intent.reason)
            answer = door.give("reject", reason=reason, note=intent.note, story=_story_meant(door, intent))
            told = _given("rejected", reason=reason, note=intent.note)
        case "reopen":
            answer = door.give("reopen", step=intent.step or "", note=intent.note)
            story = read_state(door.root).values.get("story")
            told = _given("reopened", story=story, step=answer.get("step"), message=answer.get("message"))
        case "note":
            answer = door.give("note", text=intent.note or intent.text)
            told = _given("noted", message=answer.get("message"), next_command=answer.get("next_command"))
        case _:
            answer = door.give(intent.kind)
            told = _given(_PLAIN[intent.kind], step=answer.get("step"), message=answer.get("message"))
    return _failed(answer) if answer["type"] == "error" else told


def _started(door: Door, intent: Intent) -> Json:
    if intent.kind == "start_story":
        answer = door.give("start", story=intent.story, agent_teams=intent.agent_teams, manual=True)
    else:
        text = intent.instruction or intent.text
        answer = door.give("custom", text=text, agent_teams=intent.agent_teams, manual=True)
    if answer["type"] == "error":
        return _failed(answer)
    turn = _turn(door)
    if turn.get("code") != SUPERVISED:
        return turn
    told = {name: answer[name] for name in ("step", "message", "caller_instruction")}
    return {"action": "started", **told}  # at level 2 the daemon goes on by itself


def _turn(door: Door) -> Json:
    """Take the next turn and return what the reference calls its result."""
    if (missing := without_state(door.root)) is not None:
        answer: Json = {**missing, "caller_instruction": "nothing was begun here: start a story first"}
    else:
        answer = door.give("dispatch")
    if answer["type"] == "dispatched":
        answer |= {"next_step": queried(door.root)["next_step"], "fw_lv": framework(door.root)["level"]}
    if answer["type"] == "timeout":
        answer["last_error"] = answer["message"]
    if answer["type"] == "needs_human" and USED_UP in (read_state(door.root).values.get("blocked_by") or ()):
        answer |= {"type": "blocked", "reason": answer["message"]}
    names = _TURNS[answer["type"]]
    shown = {
        name: answer[name] for name in names if name in answer and (name, answer[name]) != ("step", None)
    }
    instruction = answer.get("caller_instruction") or answer.get("next_command")
    return {"action": answer["type"], **shown, "caller_instruction": instruction}


def _query(root: str) -> Json:
    try:
        data = queried(root)
    except BadState as error:
        return {"action": "error", "message": str(error)}
    return _given("query", data=data, **{key: _beginning(root, file) for key, file in _QUERIED.items()})


def _detect(root: str) -> Json:
    return {"action": "detected", "framework": framework(root)}


def _list(root: str) -> Json:
    return {"action": "listed", "projects": listed(root)}


def _review(root: str) -> Json:
    from handoffd.inspection.sessions import review

    if (missing := no_folder(root)) is not None:
        return _failed(missing)
    found = review(root)
    return {"action": "review", "prompt": found.prompt, "fw_lv": found.fw_lv}


def _triage(root: str) -> Json:
    from handoffd.errors import Refused
    from handoffd.inspection.sessions import triage

    if (missing := no_folder(root)) is not None:
        return _failed(missing)
    try:
        found = triage(root)
    except Refused as error:
        return _failed({"code": error.code, "message": error.message})
    told = {"prompt": found.prompt, "issues": list(found.issues), "fw_lv": found.fw_lv}
    return {"action": "triage", **told}


_LOOKS: Final[Mapping[str, Callable[[str], Json]]] = {
    "query": _query, "detect": _detect, "list": _list, "review": _review, "triage": _triage,
}  # fmt: skip


def _at_gate(door: Door) -> bool:
    """Return whether the story waits for a person's decision.

    The step table alone does not tell: a gate that already asked a person remains one after it is turned
    off, and handoffd may not have accepted an edit of the table yet.
    """
    from handoffd.inspection.own_files import table_of

    try:
        values = read_state(door.root).values
    except (NoState, BadState):
        return False
    rule = table_of(door.root).steps.get(values["step"])
    if rule is not None and rule.requires_human:
        return values["status"] in ("pending", "needs_human")
    return values["status"] == "needs_human" and door.at_gate()


def _beginning(root: str, file: str) -> str | None:
    from handoffd.errors import StoreError
    from handoffd.files.rooted import read_project_file

    try:
        seen = read_project_file(Path(root), file, 1024 * 1024)
    except StoreError:
        return None
    return None if seen is None else seen.content.decode("utf-8", errors="replace")[:_CHARACTERS]


def _failed(error: Json) -> Json:
    return {"action": "error", "code": error["code"], "message": error["message"]}


def _given(action: str, **values: Any) -> Json:
    """Return an answer without what is not known, as JSON.stringify leaves it out."""
    return {"action": action, **{name: value for name, value in values.items() if value is not None}}


def _gist(answer: Json) -> str:
    for name in ("message", "summary", "reason", "step", "story"):
        if answer.get(name):
            return str(answer[name])
    data = answer.get("data")
    return f"{data['project']}, step {data['step']}, {data['status']}" if data else "done"
