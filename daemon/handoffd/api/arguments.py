"""From the arguments of a verb to the event it is for the engine.

Arguments come as JSON from a socket that scripts and chat layers use, so each is checked here, with
the allowed values in the error. `init`, `add`, `remove` and `trust` are no events; see `service.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from handoffd.api.verbs import MAX_TEXT, MOST_PATHS, VERBS, Arguments, Parameter, VerbSpec
from handoffd.engine.events import (
    Aborted,
    Approved,
    AutoContinueChosen,
    BacklogEdited,
    BacklogMoved,
    BacklogRemoved,
    BudgetRaised,
    Continued,
    EditConfirmed,
    ExecutorChosen,
    LevelChosen,
    Noted,
    Paused,
    Rejected,
    Reopened,
    Resumed,
    Retried,
    RolledBack,
    Skipped,
    Verb,
)
from handoffd.engine.wording import command_for
from handoffd.errors import NotFound, Refused
from handoffd.protocol.state import Reason
from handoffd.protocol.story import check_story_id

BAD_ARGUMENT = "BAD_ARGUMENT"

DEFAULT = "default"
"""In place of an executor's name: the one that the settings say."""

EVENTS: Final[Mapping[str, Callable[[Arguments, str], Verb]]] = {
    "approve": lambda given, by: Approved(note=given["note"], story=given["story"], by=by),
    "reject": lambda given, by: Rejected(
        reason=given["reason"], note=given["note"], story=given["story"], by=by
    ),
    "retry": lambda _, by: Retried(by=by),
    "skip": lambda _, by: Skipped(by=by),
    "abort": lambda _, by: Aborted(by=by),
    "pause": lambda _, by: Paused(by=by),
    "resume": lambda _, by: Resumed(by=by),
    "note": lambda given, by: Noted(text=given["text"], by=by),
    "rollback": lambda given, by: RolledBack(step=given["step"], force=given["force"], by=by),
    "reopen": lambda given, by: Reopened(step=given["step"], note=given["note"], entry=2, by=by),
    "use": lambda given, by: ExecutorChosen(executor=given["executor"], by=by),
    "budget": lambda given, by: BudgetRaised(
        scope="attempt" if given["attempt"] else "story" if given["story"] else "project",
        story=given["story"],
        usd=given["usd"],
        tokens=given["tokens"],
        by=by,
    ),
    "level": lambda given, by: LevelChosen(level=given["level"], by=by),
    "confirm": lambda _, by: EditConfirmed(by=by),
    "continue": lambda _, by: Continued(by=by),
    "backlog_move": lambda given, by: BacklogMoved(
        story=given["story"], before=given["before"], last=given["last"], by=by
    ),
    "backlog_edit": lambda given, by: BacklogEdited(
        story=given["story"],
        priority=given["priority"],
        blocked_by=() if given["unblock"] else given["blocked_by"] or None,
        complexity=given["complexity"],
        executor=given["executor"] or None,
        by=by,
    ),
    "backlog_remove": lambda given, by: BacklogRemoved(stories=given["stories"], by=by),
    "backlog_auto": lambda given, by: AutoContinueChosen(on=_ON.get(given["auto"]), by=by),
}
"""The verbs that are one event each, with arguments that were checked."""

_ON: Final[Mapping[str, bool | None]] = {"on": True, "off": False, "default": None}

MOST_URGENT: Final = 1000
"""The highest priority of a story, and with a minus the lowest."""

MOST_SPENT: Final = 10**12
"""More dollars or tokens than this is a slip of the finger."""


def spec_of(verb: str) -> VerbSpec:
    """Return a verb of the table; NotFound, with the verbs there are, for any other."""
    spec = VERBS.get(verb)
    if spec is None:
        known = ", ".join(sorted(VERBS))
        raise NotFound(f"there is no verb {verb[:80]!r} (allowed: {known})", hint="handoffd --help")
    return spec


def usage(spec: VerbSpec, project: str, remark: str | None = None) -> str:
    """Return how a verb is given, as a command line: what must be said in capitals, a remark behind it."""
    needed = [parameter for parameter in spec.parameters if parameter.required]
    line = command_for(project, spec.typed, *(parameter.name.upper() for parameter in needed))
    if remark is None and any(parameter.type == "reason" for parameter in needed):
        remark = f"REASON: {', '.join(Reason)}"
    return line if remark is None else f"{line}  # {remark}"


def checked(spec: VerbSpec, project: str, given: Arguments) -> dict[str, Any]:
    """Return every parameter of a verb for `project` with a valid value.

    Raises Refused (BAD_ARGUMENT, INVALID_STORY) for anything else; its hint tells how the verb is given.
    """
    try:
        return values(spec.parameters, given)
    except Refused as refused:
        raise Refused(refused.message, code=refused.code, hint=usage(spec, project)) from None


def values(parameters: Sequence[Parameter], given: Arguments) -> dict[str, Any]:
    """Return every one of `parameters` with a valid value. Raises Refused as `checked`, without a hint."""
    unknown = sorted(given.keys() - {parameter.name for parameter in parameters})
    if unknown:
        allowed = ", ".join(parameter.name for parameter in parameters) or "none"
        raise _bad(f"unknown argument {unknown[0][:80]!r} (allowed: {allowed})")
    return {parameter.name: _value(parameter, given.get(parameter.name)) for parameter in parameters}


def _value(parameter: Parameter, value: object) -> object:
    if parameter.type == "flag":
        return _flag(parameter, value)
    if parameter.type == "stories":
        return _stories(parameter, value)
    if parameter.type == "paths" and value:
        return _paths(parameter, value)
    if parameter.type == "executors" and value:
        return _executors(parameter, value)
    if value == "" and parameter.guards:
        raise _bad(f"{parameter.name} is empty: name one, or leave it out")
    if value is None or value == "":
        if parameter.required:
            raise _bad(f"{parameter.name} is missing: {parameter.help}")
        return () if parameter.type in {"executors", "paths"} else None
    if parameter.type == "level":
        return _level(value)
    if parameter.type == "priority":
        return _priority(parameter, value)
    if parameter.type in {"amount", "count"}:
        return _number(parameter, value)
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise _bad(f"{parameter.name} must be a text of at most {MAX_TEXT} characters")
    if not _is_text(value):
        raise _bad(f"{parameter.name} holds half of a character; it cannot be written as UTF-8")
    if parameter.choices and value not in parameter.choices:
        raise _bad(f"{value[:80]!r} is no {parameter.name} (allowed: {', '.join(parameter.choices)})")
    if parameter.type == "story":
        return check_story_id(value)
    return _reason(value) if parameter.type == "reason" else value


def _flag(parameter: Parameter, value: object) -> bool:
    if value is not None and not isinstance(value, bool):
        raise _bad(f"{parameter.name} must be true or false")
    return bool(value)


def _stories(parameter: Parameter, value: object) -> tuple[str, ...]:
    if value is None or value == []:
        if parameter.required:
            raise _bad(f"{parameter.name} is missing: {parameter.help}")
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _bad(f"{parameter.name} must be a list of story ids")
    return tuple(dict.fromkeys(check_story_id(name) for name in value))


def _paths(parameter: Parameter, value: object) -> tuple[str, ...]:
    given = value if isinstance(value, list) else []
    if not 0 < len(given) <= MOST_PATHS or not all(map(_is_path, given)):
        raise _bad(f"{parameter.name} must be a list of 1 to {MOST_PATHS} paths, from the root of all files")
    return tuple(given)


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value.startswith("/") and len(value) <= MAX_TEXT and _is_text(value)


def _executors(parameter: Parameter, value: object) -> tuple[str, ...]:
    """Return names of executors, given as one text or as a list; none at all for the default ones."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise _bad(f"{parameter.name} must be a name, several with commas between them, or a list")
    names = tuple(dict.fromkeys(name.strip() for name in given))
    return () if names == (DEFAULT,) else names


def _number(parameter: Parameter, value: object) -> float:
    """Return a number above nothing; from the command line it comes as text."""
    number = float if parameter.type == "amount" else int
    kind = "a number" if parameter.type == "amount" else "a whole number"
    try:
        found = number(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else 0
    except (ValueError, OverflowError):
        found = 0
    if not 0 < found <= MOST_SPENT or (isinstance(value, float) and found != value):
        raise _bad(f"{parameter.name} must be {kind} above 0: {parameter.help}")
    return found


def _priority(parameter: Parameter, value: object) -> int:
    """Return how urgent something is; from the command line it comes as text."""
    try:
        found = int(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        found = None
    if found is None or abs(found) > MOST_URGENT or (isinstance(value, float) and found != value):
        raise _bad(f"{parameter.name} must be a whole number from -{MOST_URGENT} to {MOST_URGENT}")
    return found


def _level(value: object) -> int:
    """Return a level of adoption that is a verb's to choose; from the command line it comes as text."""
    if value in (1, 2) and not isinstance(value, bool):
        return 1 if value == 1 else 2
    if value in ("1", "2"):
        return 1 if value == "1" else 2
    raise _bad("level must be 1 (people dispatch) or 2 (handoffd does); for 0, remove the project")


def _reason(value: str) -> Reason:
    try:
        return Reason(value)
    except ValueError:
        raise _bad(f"{value[:80]!r} is no reason (allowed: {', '.join(Reason)})") from None


def _is_text(value: str) -> bool:
    """Whether a string can be stored: JSON may hold lone surrogates, UTF-8 cannot."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _bad(message: str) -> Refused:
    return Refused(message, code=BAD_ARGUMENT)
