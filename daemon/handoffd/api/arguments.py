"""Checks the arguments of verbs, and builds the engine's event of a verb from them.

Scripts and chat layers send arguments as JSON, so each is checked here, and the error lists the allowed
values. `TYPES` declares each type once: its check, and the schema by which the API and the tools of MCP
describe it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import Any, Final, get_args

from msgspec import Struct

from handoffd.api.verbs import MAX_TEXT, MOST_PATHS, VERBS, Arguments, Parameter, VerbSpec
from handoffd.engine.events import Verb
from handoffd.engine.flow.events import Verb as FlowVerb
from handoffd.engine.routing import MOST_STORIES
from handoffd.engine.track import kind_of
from handoffd.engine.wording import command_for
from handoffd.errors import Json, NotFound, Refused
from handoffd.protocol.pipelines.shapes import seconds
from handoffd.protocol.state import Reason
from handoffd.protocol.story import RESERVED_IDS, check_story_id
from handoffd.protocol.story_text import MAX_BYTES, QUOTE_BYTES, NewStory, story_text

BAD_ARGUMENT = "BAD_ARGUMENT"

DEFAULT = "default"
"""In place of an executor's name: the executor of the settings."""

MOST_URGENT: Final = 1000
"""The highest priority of a story, and with a minus the lowest."""

MOST_SPENT: Final = 10**12
"""More dollars or tokens than this is a typing error."""


_KINDS: Final[Mapping[str, Callable[..., Verb | FlowVerb]]] = {
    kind_of(event): event for event in (*get_args(Verb), *get_args(FlowVerb))
}
_ON: Final[Mapping[str, bool | None]] = {"on": True, "off": False, "default": None}


def _start(given: Arguments) -> Arguments:
    """Return the fields of a start; `text`, `title` and `source` become one value."""
    fields = {name: value for name, value in given.items() if name not in _OF_TEXT}
    text = given.get("text")
    described = None if text is None else story_text(text, given["title"], given["source"])
    story = given["story"] or ""
    return {
        **fields, "story": story, "described": described, "priority": given["priority"] or 0,
        "then": tuple(one for one in given["then"] if one != story), "automatic": not given["manual"],
        "heeds_undescribed": given["described"], "tells_aside": True, "heeds_begun": True,
        "heeds_words": True, "keeps_place": True, "names_story": True,
    }  # fmt: skip


def _custom(given: Arguments) -> Arguments:
    """Return the fields of the start that a custom task is."""
    fields = {name: value for name, value in given.items() if name not in {"text", "label", "manual"}}
    return {
        **fields, "story": given["label"], "task_type": "custom", "instruction": given["text"],
        "priority": given["priority"] or 0, "automatic": not given["manual"], "tells_aside": True,
        "heeds_begun": True, "keeps_place": True, "names_story": True,
    }  # fmt: skip


_OF_TEXT: Final = frozenset({"text", "title", "source", "described", "manual", "go_on"})

_OTHERWISE: Final[Mapping[str, Callable[[Arguments], Arguments]]] = {
    "start": _start, "custom": _custom,
    "approve": lambda given: {**given, "undoable": True},
    "reopen": lambda given: {**given, "entry": 2},
    "budget": lambda given: {
        "scope": "attempt" if given["attempt"] else "story" if given["story"] else "project",
        "story": given["story"], "usd": given["usd"], "tokens": given["tokens"],
    },
    "backlog_edit": lambda given: {
        "story": given["story"], "priority": given["priority"], "complexity": given["complexity"],
        "blocked_by": () if given["unblock"] else given["blocked_by"] or None,
        "executor": given["executor"] or None,
    },
    "backlog_auto": lambda given: {"on": _ON.get(given["auto"])},
    "flow_start": lambda given: {"params": given["params"] or {}, "automatic": bool(given["auto"])},
    "flow_answer": lambda given: {
        "node": given["node"] or "", "visit": given["visit"] or 0, "choice": given["choice"],
        "text": given["text"] or "",
    },
    "flow_revise": lambda given: {**given, "text": given["text"] or ""},
    "flow_call": lambda given: {**given, "text": given["text"] or ""},
    "flow_raise": lambda given: {
        **{name: value for name, value in given.items() if name != "wall"}, "wall_s": given["wall"],
    },
}  # fmt: skip
"""Verbs whose event has other fields than the verb has arguments."""


def spec_of(verb: str) -> VerbSpec:
    """Return a verb of the table. Raises NotFound, with the known verbs, for any other."""
    spec = VERBS.get(verb)
    if spec is None:
        known = ", ".join(sorted(VERBS))
        raise NotFound(f"there is no verb {verb[:80]!r} (allowed: {known})", hint="handoffd --help")
    return spec


def event_of(spec: VerbSpec, given: Arguments, by: str) -> Verb | FlowVerb:
    """Return the engine's event for a verb, from checked arguments; `by` is the name to record."""
    assert spec.event is not None
    apart = {parameter.name for parameter in spec.parameters if parameter.addresses}
    told = {name: value for name, value in given.items() if name not in apart}
    return _KINDS[spec.event](**_OTHERWISE.get(spec.name, dict)(told), by=by)


def meant_by(spec: VerbSpec, given: Arguments) -> str | None:
    """Return the story that a verb is for, where it was named; None: the one in flight, or the project."""
    named = any(parameter.name == "story" for parameter in spec.parameters)
    return given["story"] if named and spec.event not in _OF_THE_BACKLOG else None


_OF_THE_BACKLOG: Final = frozenset({"started", "backlog_moved", "backlog_edited"})
"""Events whose story is none in flight."""


def usage(spec: VerbSpec, project: str, remark: str | None = None) -> str:
    """Return a verb as a command line: required arguments in capitals, then `remark` as a comment."""
    needed = [parameter for parameter in spec.parameters if parameter.required]
    words = [parameter.name.upper() for parameter in needed]
    line = command_for(project, spec.typed, *words)
    if spec.name == "flow_start":
        line = f"handoffd {spec.typed} {' '.join(words)} --project {quote(project)}"
    elif spec.of_flow:
        line = f"handoffd {spec.typed} {' '.join(words)}"
    if remark is None and any(parameter.type == "reason" for parameter in needed):
        remark = f"REASON: {', '.join(Reason)}"
    return f"{line}  # {remark}" if remark else line


def checked(spec: VerbSpec, project: str, given: Arguments) -> dict[str, Any]:
    """Return every parameter of a verb for `project` with a valid value.

    Raises Refused (BAD_ARGUMENT, INVALID_STORY) for anything else; the hint is the command line.
    """
    try:
        return values(spec.parameters, given)
    except Refused as refused:
        remark = "" if "(allowed: " in refused.message else None  # it lists the values already
        raise Refused(refused.message, code=refused.code, hint=usage(spec, project, remark)) from None


def values(parameters: Sequence[Parameter], given: Arguments) -> dict[str, Any]:
    """Return every one of `parameters` with a valid value. Raises Refused as `checked`, without a hint."""
    unknown = sorted(given.keys() - {parameter.name for parameter in parameters})
    if unknown:
        allowed = ", ".join(parameter.name for parameter in parameters) or "none"
        raise _bad(f"unknown argument {unknown[0][:80]!r} (allowed: {allowed})")
    return {one.name: _value(_wanted(one, given), given.get(one.name)) for one in parameters}


def _wanted(parameter: Parameter, given: Arguments) -> Parameter:
    """Return a parameter that is not required once another is given in its place."""
    instead = None if parameter.unless is None else given.get(parameter.unless)
    return parameter if instead in (None, "") else replace(parameter, required=False)


def _value(parameter: Parameter, value: object) -> object:
    kind = TYPES[parameter.type]
    if value == "" and parameter.guards:
        raise _bad(f"{parameter.name} is empty: name one, or leave it out")
    if value is None or value in kind.empty:
        if parameter.required:
            raise _bad(f"{parameter.name} is missing: {parameter.help}")
        return kind.nothing
    return kind.check(parameter, value)


def shape_of(parameter: Parameter) -> Json:
    """Return the JSON Schema of a parameter, in the form that programs send."""
    if parameter.choices:
        return {"type": "string", "enum": list(parameter.choices)}
    return TYPES[parameter.type].shape


def schema_of(parameter: Parameter) -> Json:
    """Return the JSON Schema that accepts exactly what the check of a parameter accepts."""
    kind, known = TYPES[parameter.type], shape_of(parameter)
    if kind.also is not None:
        known = {"anyOf": [known, kind.also]}
    described = {"description": parameter.help}
    if parameter.needed:
        return {**_not_empty(known), **described}
    if "" not in kind.empty or parameter.guards:
        return {"anyOf": [known, {"type": "null"}], **described}
    return {"anyOf": [known, {"type": "null"}, {"const": ""}], **described}


def _not_empty(schema: Json) -> Json:
    """Return the schema of a required value."""
    if "anyOf" in schema:
        return {"anyOf": [_not_empty(one) for one in schema["anyOf"]]}
    if schema.get("type") == "array":
        return {**schema, "minItems": 1}
    if schema.get("type") == "object":
        return {**schema, "minProperties": 1}
    plain_text = schema.get("type") == "string" and not {"enum", "pattern"} & schema.keys()
    return {**schema, "minLength": 1} if plain_text else schema


# --- the check of each type --------------------------------------------------------------------------
def _flag(parameter: Parameter, value: object) -> bool:
    if not isinstance(value, bool):
        raise _bad(f"{parameter.name} must be true or false")
    return value


def _text(parameter: Parameter, value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise _bad(f"{parameter.name} must be a text of at most {MAX_TEXT} characters")
    if not _is_text(value):
        raise _bad(f"{parameter.name} holds half of a character; it cannot be written as UTF-8")
    if parameter.choices and value not in parameter.choices:
        raise _bad(f"unknown {parameter.name} {value[:80]!r} (allowed: {', '.join(parameter.choices)})")
    return value


def _story_text(parameter: Parameter, value: object) -> str:
    if not isinstance(value, str):
        raise _bad(f"{parameter.name} must be a text")
    return story_text(value).text


def _new_stories(parameter: Parameter, value: object) -> tuple[NewStory, ...]:
    """Return stories with their texts. Raises Refused for the first problem."""
    if not isinstance(value, list) or not 0 < len(value) <= MOST_STORIES:
        raise _bad(f"{parameter.name} must be a list of 1 to {MOST_STORIES} objects")
    return tuple(_new_story(f"{parameter.name}.{place}", one) for place, one in enumerate(value))


def _new_story(where: str, value: object) -> NewStory:
    if not isinstance(value, dict):
        raise _bad(f"{where} must be an object")
    try:
        given = values(NEW_STORY, value)
    except Refused as refused:
        raise Refused(f"{where}: {refused.message}", code=refused.code) from None
    return NewStory(
        story=given["story"] or "", blocked_by=given["blocked_by"],
        described=story_text(given["text"], given["title"], given["source"]), priority=given["priority"] or 0,
    )  # fmt: skip


def _story(parameter: Parameter, value: object) -> str:
    return check_story_id(_text(parameter, value))


def _stories(parameter: Parameter, value: object) -> tuple[str, ...]:
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
    """Return names of executors, given as one text or as a list; empty for the default executors."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list) or not given or not all(isinstance(name, str) for name in given):
        raise _bad(f"{parameter.name} must be a name, several with commas between them, or a list")
    names = tuple(dict.fromkeys(name.strip() for name in given))
    return () if names == (DEFAULT,) else names


def _number(parameter: Parameter, value: object) -> float:
    """Return a number above 0; the command line sends it as text."""
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
    """Return a priority; the command line sends it as text."""
    try:
        found = int(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        found = None
    if found is None or abs(found) > MOST_URGENT or (isinstance(value, float) and found != value):
        raise _bad(f"{parameter.name} must be a whole number from -{MOST_URGENT} to {MOST_URGENT}")
    return found


def _duration(parameter: Parameter, value: object) -> int:
    """Return the seconds of a time such as `90m`."""
    found = seconds(value) if isinstance(value, str) else None
    if not found:
        raise _bad(f"{parameter.name} must be a time such as 90m or 12h")
    return found


def _object(parameter: Parameter, value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) and _is_text(name) for name in value):
        raise _bad(f"{parameter.name} must be a JSON object")
    try:
        size = len(json.dumps(value, ensure_ascii=False).encode())
    except (ValueError, RecursionError):
        raise _bad(f"{parameter.name} holds half of a character, or is nested too deeply") from None
    if size > MAX_TEXT:
        raise _bad(f"{parameter.name} must have at most {MAX_TEXT} bytes")
    return value


def _texts(parameter: Parameter, value: object) -> dict[str, list[str]]:
    for one in (found := _object(parameter, value)).values():
        if not isinstance(one, list) or not one or not all(isinstance(text, str) for text in one):
            raise _bad(f"{parameter.name} must be an object of lists of texts")
    return found


def _level(_: Parameter, value: object) -> int:
    """Return a level that the verb can choose; the command line sends it as text."""
    if value in (1, 2) and not isinstance(value, bool):
        return 1 if value == 1 else 2
    if value in ("1", "2"):
        return 1 if value == "1" else 2
    raise _bad("level must be 1 (people dispatch) or 2 (handoffd does); for 0, remove the project")


def _reason(parameter: Parameter, value: object) -> Reason:
    text = _text(parameter, value)
    try:
        return Reason(text)
    except ValueError:
        raise _bad(f"unknown reason {text[:80]!r} (allowed: {', '.join(Reason)})") from None


def _is_text(value: str) -> bool:
    """Whether a string can be stored: JSON may hold lone surrogates, UTF-8 cannot."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _bad(message: str) -> Refused:
    return Refused(message, code=BAD_ARGUMENT)


class ParameterType(Struct, frozen=True, kw_only=True):
    """A type of parameter: its check, and the same as JSON Schema.

    `shape` describes the form that programs send, `also` a further form, as from a command line. A value in
    `empty` counts as left out; a parameter that is left out has the value `nothing`.
    """

    check: Callable[[Parameter, Any], object]
    shape: Json
    also: Json | None = None
    empty: tuple[object, ...] = ("",)
    nothing: object = None


_STORY: Final[Json] = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9](\.?[A-Za-z0-9_-]){0,63}\.?$",
    "maxLength": 64,
    "not": {"enum": sorted(RESERVED_IDS)},
}
_PATH: Final[Json] = {"type": "string", "pattern": "^/", "maxLength": MAX_TEXT}
_DIGITS: Final[Json] = {"type": "string", "pattern": "^[1-9][0-9]{0,11}$"}
"""A number as text: command lines have no others."""

NEW_STORY: Final = (
    Parameter(name="story", type="story", help="its id; the next free one by default"),
    Parameter(name="text", type="story_text", required=True, help="what the story shall bring"),
    Parameter(name="title", type="text", help="its title"),
    Parameter(name="source", type="text", help="where the text comes from"),
    Parameter(name="blocked_by", type="stories", help="stories that must be done first"),
    Parameter(name="priority", type="priority", help="higher starts sooner"),
)
"""What a new story of the backlog is made of."""

_STORY_TEXT: Final[Json] = {"type": "string", "maxLength": MAX_BYTES - QUOTE_BYTES, "pattern": r"\S"}
_NEW_STORY: Final[Json] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {
        "story": _STORY,
        "text": _STORY_TEXT,
        "title": {"type": "string", "maxLength": MAX_TEXT},
        "source": {"type": "string", "maxLength": MAX_TEXT},
        "blocked_by": {"type": "array", "items": _STORY},
        "priority": {"type": "integer", "minimum": -MOST_URGENT, "maximum": MOST_URGENT},
    },
}

TYPES: Final[Mapping[str, ParameterType]] = {
    "object": ParameterType(check=_object, shape={"type": "object"}, empty=({},)),
    "texts": ParameterType(
        check=_texts,
        shape={
            "type": "object",
            "additionalProperties": {"type": "array", "minItems": 1, "items": {"type": "string"}},
        },
        empty=({},),
    ),
    "duration": ParameterType(
        check=_duration, shape={"type": "string", "pattern": "^[1-9][0-9]{0,5}[smhd]$"}
    ),
    "story_text": ParameterType(check=_story_text, shape=_STORY_TEXT),
    "new_stories": ParameterType(
        check=_new_stories,
        shape={"type": "array", "minItems": 1, "maxItems": MOST_STORIES, "items": _NEW_STORY},
    ),
    "text": ParameterType(check=_text, shape={"type": "string", "maxLength": MAX_TEXT}),
    "step": ParameterType(check=_text, shape={"type": "string", "maxLength": MAX_TEXT}),
    "story": ParameterType(check=_story, shape=_STORY),
    "stories": ParameterType(
        check=_stories, shape={"type": "array", "items": _STORY}, empty=([],), nothing=()
    ),
    "paths": ParameterType(
        check=_paths,
        shape={"type": "array", "minItems": 1, "maxItems": MOST_PATHS, "items": _PATH},
        nothing=(),
    ),
    "reason": ParameterType(
        check=_reason, shape={"type": "string", "enum": [str(reason) for reason in Reason]}
    ),
    "flag": ParameterType(check=_flag, shape={"type": "boolean"}, empty=(), nothing=False),
    "executors": ParameterType(
        check=_executors,
        shape={"type": "string"},
        also={"type": "array", "items": {"type": "string"}, "minItems": 1},
        nothing=(),
    ),
    "priority": ParameterType(
        check=_priority,
        shape={"type": "integer", "minimum": -MOST_URGENT, "maximum": MOST_URGENT},
        also={"type": "string", "pattern": "^-?(0|[1-9][0-9]{0,2}|1000)$"},
    ),
    "level": ParameterType(
        check=_level, shape={"type": "integer", "enum": [1, 2]}, also={"type": "string", "enum": ["1", "2"]}
    ),
    "amount": ParameterType(
        check=_number, shape={"type": "number", "exclusiveMinimum": 0, "maximum": MOST_SPENT}, also=_DIGITS
    ),
    "count": ParameterType(
        check=_number, shape={"type": "integer", "minimum": 1, "maximum": MOST_SPENT}, also=_DIGITS
    ),
}
