"""The script: what the rehearsal does instead of its best.

JSON in the environment variable HANDOFFD_REHEARSAL (the text itself or the path of a file), else in
the project's `.ai/rehearsal.json`:

    {"impl": ["crash", "fail:scope_warning", "pass"], "verify": ["flood:1000000+hang"], "*": "slow:2"}

A step (or `*`, for the steps not named) is mapped to a list, whose n-th entry is for the n-th start
of that step; after its end the step passes. A single entry instead of a list holds for every start.
Acts joined by `+` are done one after the other; when none of them ends the session, the step's work
and a proper hand-off follow. The starts are counted in `.ai/rehearsal-count.json` before anything
else is done, so a start that kills itself is counted, too.

Started with `--stream` (the executor `rehearsal-stream`), it prints the JSON lines that claude prints. An
object under the key `stream` gives their content; its tokens and US dollars are for each turn:

    {"stream": {"session": "s-1", "turns": 2, "input_tokens": 1000, "output_tokens": 200,
                "cache_read_tokens": 0, "cache_write_tokens": 0, "cost_usd": 0.05, "pause_s": 0.5},
     "impl": ["turns:20+pass", "limit:60", "error:Not logged in", "gone+pass"]}

All of it may be left out: then there is one turn, which uses nothing, and the session is called after the
dispatch. With `--resume SESSION` it is that session instead.

A task of a flow is named as the flow names it, `build[GH-12]/implement`, or as its pipeline does,
`build/implement`, or by its last name. Of a list, the n-th entry is for all attempts of the n-th visit.
`outcome:NAME` comes to that outcome. An object under the key `flow` says how all tasks are played:

    {"flow": {"seed": 7, "play": "worst", "answers": {"talk": ["deepen", "conclude"]},
              "give": {"audit": {"fields": {"risk": 40}, "out": {"queue": {}}}}},
     "issue/solve": ["outcome:several", "pass"], "implement": "fail"}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from handoffd.rehearsal.workspace import Workspace

VARIABLE = "HANDOFFD_REHEARSAL"
FILE = ".ai/rehearsal.json"
COUNT = ".ai/rehearsal-count.json"
ANY_STEP = "*"

_MOST_BYTES = 1024 * 1024


class Form(NamedTuple):
    """How an act is written: what its argument is called, and whether one must, may or cannot be given."""

    argument: str = ""
    required: bool = False
    ends_session: bool = True


FORMS: Mapping[str, Form] = {
    "pass": Form(),
    "claim": Form(),
    "fail": Form("REASON"),
    "needs_human": Form("REASON"),
    "lie": Form(),
    "none": Form(),
    "crash": Form(),
    "exit": Form("CODE", required=True),
    "hang": Form("SECONDS"),
    "ignore-term": Form(),
    "linger": Form(),
    "half": Form(),
    "garbage": Form(),
    "stale": Form(),
    "old-format": Form(),
    "orphan": Form(ends_session=False),
    "flood": Form("BYTES", required=True, ends_session=False),
    "slow": Form("SECONDS", required=True, ends_session=False),
    "tamper": Form(ends_session=False),
    "error": Form("REASON", required=True),
    "limit": Form("SECONDS", required=True),
    "gone": Form(ends_session=False),
    "turns": Form("COUNT", required=True, ends_session=False),
    "outcome": Form("REASON", required=True),
}
"""Every act there is; `misbehave` says what each does."""


class BadScript(Exception):
    """The script cannot be used; the message has file, key and allowed values, like `errors.Problem`."""

    # No Problem itself: an agent that starts for every step imports as little as it can.
    def __init__(
        self,
        file: str,
        message: str,
        *,
        line: int | None = None,
        key: str | None = None,
        allowed: tuple[str, ...] = (),
    ) -> None:
        place = file if line is None else f"{file}:{line}"
        at = f" {key}:" if key else ""
        super().__init__(f"{place}:{at} {message}" + (f" (allowed: {', '.join(allowed)})" if allowed else ""))
        self.file = file
        self.message = message
        self.line = line
        self.key = key
        self.allowed = allowed


class Act(NamedTuple):
    """One thing to do. `argument` is the part after the colon, already checked."""

    name: str
    argument: str | None = None

    @property
    def number(self) -> float:
        """The argument of an act that counts something."""
        return float(self.argument or 0)


class Speech(NamedTuple):
    """What a stream tells: the tokens and US dollars of each turn, and how long to wait after it."""

    session: str | None = None
    turns: int = 1
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float = 0.0
    pause_s: float = 0.0


STREAM = "stream"


class Flow(NamedTuple):
    """How a flow is played; `give` has fields and files of tasks, `answers` those to questions, by names."""

    seed: int = 0
    play: str = "chance"
    give: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}
    answers: Mapping[str, str | list[str]] = {}


FLOW = "flow"
PLAYS = ("chance", "best", "worst")

Script = Mapping[str, "str | list[str] | dict[str, Any]"]

PASS = (Act("pass"),)


def load(workspace: Workspace, environ: Mapping[str, str]) -> Script | None:
    """Return the script that applies, checked whole, or None when there is none. Raises `BadScript`."""
    given = environ.get(VARIABLE, "").strip()
    if given.startswith("{"):
        return parse(given, f"${VARIABLE}")
    if given:
        return parse(_text_of(os.path.join(workspace.root, given)), given)
    text = workspace.read(FILE)
    return None if text is None else parse(text, FILE)


def parse(text: str, file: str) -> Script:
    """Return the script in `text`; `file` is how a person knows it. Raises `BadScript`."""
    try:
        script = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadScript(file, f"not JSON: {error.msg}", line=error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise BadScript(file, f"not JSON: {error}") from error
    if not isinstance(script, dict):
        raise BadScript(file, 'must map steps to acts, such as {"impl": ["crash", "pass"]}')
    for step, entries in script.items():
        if isinstance(entries, str):
            _acts(entries, file, step)
        elif isinstance(entries, dict) and step == STREAM:
            _checked_speech(entries, file)
        elif isinstance(entries, dict) and step == FLOW:
            _check_flow(entries, file)
        elif isinstance(entries, list):
            for number, entry in enumerate(entries):
                _acts(entry, file, f"{step}[{number}]")
        else:
            raise BadScript(file, f"must be an act or a list of acts, not {entries!r}", key=step)
    return script


def acts_for(script: Script, step: str, start: int) -> tuple[Act, ...]:
    """Return what to do at the `start`-th start (from 1) of a step, ending the session in any case."""
    entries = script.get(step, script.get(ANY_STEP, []))
    if isinstance(entries, dict):  # the description of the stream, and a step of that name
        entries = script.get(ANY_STEP, [])
    if isinstance(entries, list):
        entries = entries[start - 1] if start <= len(entries) else "pass"
    acts = _acts(entries, FILE, step)
    return acts if any(FORMS[act.name].ends_session for act in acts) else acts + PASS


def speech_of(script: Script | None) -> Speech:
    """Return what the stream of a script tells; without one, next to nothing."""
    given = (script or {}).get(STREAM)
    return Speech(**given) if isinstance(given, dict) else Speech()


def flow_of(script: Script | None) -> Flow:
    """Return how a script has the tasks of a flow played."""
    given = (script or {}).get(FLOW)
    return Flow(**given) if isinstance(given, dict) else Flow()


def name_in(script: Script, names: tuple[str, ...]) -> str:
    """Return the first of several names that a script has an entry for; else the last of them."""
    return next((one for one in names if one in script), names[-1])


def count_start(workspace: Workspace, step: str) -> int:
    """Count one more start of `step` and return how many there were; an unreadable count begins anew."""
    try:
        counts = json.loads(workspace.read(COUNT) or "{}")
    except ValueError:
        counts = {}
    counts = counts if isinstance(counts, dict) else {}
    before = counts.get(step)
    counts[step] = (before if isinstance(before, int) else 0) + 1
    workspace.replace(COUNT, json.dumps(counts).encode())
    return int(counts[step])


def _checked_speech(given: Mapping[str, object], file: str) -> None:
    for key, value in given.items():
        if key not in Speech._fields:
            raise BadScript(file, "unknown key", key=f"{STREAM}.{key}", allowed=Speech._fields)
        default = Speech._field_defaults[key]
        kinds = (str,) if default is None else (int, float) if isinstance(default, float) else (int,)
        if (
            not isinstance(value, kinds)
            or isinstance(value, bool)
            or (not isinstance(value, str) and value < 0)
        ):
            wanted = "a text" if default is None else f"a number such as {default}"
            raise BadScript(file, f"must be {wanted}, not {value!r}", key=f"{STREAM}.{key}")


def _check_flow(given: Mapping[str, object], file: str) -> None:
    for key, value in given.items():
        name = f"{FLOW}.{key}"
        if key not in Flow._fields:
            raise BadScript(file, "unknown key", key=name, allowed=Flow._fields)
        if key == "play" and value not in PLAYS:
            raise BadScript(file, f"there is no {value!r}", key=name, allowed=PLAYS)
        if key == "seed" and (not isinstance(value, int) or isinstance(value, bool)):
            raise BadScript(file, f"must be a whole number, not {value!r}", key=name)
        if key == "give":
            _check_given(value, file, name)
        if key == "answers":
            _check_answers(value, file, name)


def _check_answers(given: object, file: str, key: str) -> None:
    if not isinstance(given, dict):
        raise BadScript(file, 'must map questions to answers, such as {"talk": "conclude"}', key=key)
    for name, said in given.items():
        texts = said if isinstance(said, list) else [said]
        if not all(isinstance(one, str) for one in texts):
            raise BadScript(
                file, f"must be an answer or a list of answers, not {said!r}", key=f"{key}.{name}"
            )


def _check_given(given: object, file: str, key: str) -> None:
    if not isinstance(given, dict):
        raise BadScript(file, 'must map tasks to what they give, such as {"audit": {"fields": {}}}', key=key)
    for task, parts in given.items():
        if not isinstance(parts, dict):
            raise BadScript(file, f"must be an object, not {parts!r}", key=f"{key}.{task}")
        for part, values in parts.items():
            if part not in _PARTS:
                raise BadScript(file, "unknown key", key=f"{key}.{task}.{part}", allowed=_PARTS)
            if not isinstance(values, dict):
                raise BadScript(file, f"must be an object, not {values!r}", key=f"{key}.{task}.{part}")


_PARTS = ("fields", "out")


def _acts(entry: object, file: str, key: str) -> tuple[Act, ...]:
    if not isinstance(entry, str):
        raise BadScript(file, f"{entry!r} is not an act", key=key, allowed=_ALLOWED)
    return tuple(_act(part.strip(), file, key) for part in entry.split("+"))


def _act(text: str, file: str, key: str) -> Act:
    name, colon, argument = text.partition(":")
    form = FORMS.get(name)
    if form is None:
        raise BadScript(file, f"there is no act {text!r}", key=key, allowed=_ALLOWED)
    if not colon and form.required:
        raise BadScript(file, f"{name!r} needs an argument: {_written(name, form)}", key=key)
    if colon and not _fits(argument, form.argument):
        raise BadScript(file, f"{text!r} has a wrong argument", key=key, allowed=_ALLOWED)
    return Act(name, argument if colon else None)


def _fits(argument: str, kind: str) -> bool:
    match kind:
        case "REASON":
            return argument.isprintable() and bool(argument.strip())
        case "CODE":
            return argument.isdecimal() and int(argument) <= 255
        case "BYTES" | "COUNT":
            return argument.isdecimal()
        case "SECONDS":
            return argument.replace(".", "", 1).isdecimal()
        case _:
            return False


def _written(name: str, form: Form) -> str:
    if not form.argument:
        return name
    return f"{name}:{form.argument}" if form.required else f"{name}[:{form.argument}]"


_ALLOWED = tuple(_written(name, form) for name, form in FORMS.items())


def _text_of(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise BadScript(path, f"{error.strerror} (named by ${VARIABLE})") from error
