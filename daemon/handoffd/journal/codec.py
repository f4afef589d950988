"""Values to JSON text and back, exactly.

The journal is read by later releases and after crashes, so what goes in must come out equal: with
the unknown keys of STATE.json, in their order, with microseconds, and with nothing that a hostile
document could use to pass itself off as one of our own wrappers. Writing is orjson's, but for what it
has no form for; reading is pydantic's, over the engine's dataclasses. Fields that a later release adds
must have a default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import BaseModel, Field, TypeAdapter

from handoffd.engine.decision import Effect, Ground, Result
from handoffd.engine.events import Event, TestEvidence
from handoffd.engine.run import Exit
from handoffd.engine.track import Track
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import State

_STATE = "$state"
"""Marks a STATE document with the order of its keys. Foreign keys that begin with `$` get a second one."""

_ESCAPED = '"$$'
"""Without it no key of a text has a second `$`. With it one may have: few texts do, and it may be no key."""

_WRAPPER = '"$state":{"layout":'
_OURS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
"""orjson leaves moments, and values of subclasses of str, dict and int, to `_plain`."""

_SCALARS = frozenset({str, int, float, bool, type(None)})
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

_T = TypeVar("_T")

_EVENT: Any = Annotated[Event, Field(discriminator="kind")]
_EFFECT: Any = Annotated[Effect, Field(discriminator="kind")]
_RESULT: Any = Annotated[Result, Field(discriminator="type")]


def encode(value: object) -> str:
    """Return `value` (a dataclass or model of the engine or protocol) as JSON text in one line.

    Half of a surrogate pair, which only broken output of an agent holds, becomes `?`. Numbers are finite:
    readers of foreign files refuse others.
    """
    try:
        text = orjson.dumps(value, default=_plain, option=_OURS).decode()
    except TypeError:
        return _encode_anything(value)
    # A foreign key that begins with `$` is not escaped yet.
    return text if text.count('"$') == text.count(_WRAPPER) else _encode_anything(value)


def _encode_anything(value: object) -> str:
    """Do what `encode` does for what is seldom: half a character, a number beyond 64 bits, keys with `$`."""
    text = _JSON.encode(_plain(value))
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def decode_event(text: str) -> Event:
    """Return the event that `encode` wrote; ValueError when it is none."""
    event: Event = _decode(_EVENT, text)
    return event


def decode_effect(text: str) -> Effect:
    """Return the effect that `encode` wrote; ValueError when it is none."""
    effect: Effect = _decode(_EFFECT, text)
    return effect


def decode_result(text: str) -> Result:
    """Return the result that `encode` wrote; ValueError when it is none."""
    result: Result = _decode(_RESULT, text)
    return result


def decode_track(text: str) -> Track:
    """Return the track that `encode` wrote; ValueError when it is none."""
    return _decode(Track, text)


def encode_grounds(grounds: tuple[Ground, ...]) -> str:
    """Return what a decision rests on as JSON text in one line, made safe like that of `encode`."""
    text = json.dumps({ground.rule: ground.value for ground in grounds}, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode("utf-8")


def decode_grounds(text: str) -> tuple[Ground, ...]:
    """Return the grounds that `encode_grounds` wrote; ValueError when they are none."""
    grounds = _adapter_of(dict[str, str]).validate_json(text)
    return tuple(Ground(rule=rule, value=value) for rule, value in grounds.items())


def decode_rules(text: str) -> RuleBook:
    """Return the step table that `encode` wrote; ValueError when it is none."""
    return _decode(RuleBook, text)


def decode_exit(text: str) -> Exit:
    """Return the exit that `encode` wrote; ValueError when it is none."""
    return _decode(Exit, text)


def decode_tests(text: str) -> TestEvidence:
    """Return the test evidence that `encode` wrote; ValueError when it is none."""
    return _decode(TestEvidence, text)


def readable(text: str) -> dict[str, Any]:
    """Return what `encode` wrote as plain JSON for people and scripts, STATE documents unwrapped."""
    value = json.loads(text, object_hook=_reveal)
    assert isinstance(value, dict)
    return value


def _decode(kind: Callable[..., _T], text: str) -> _T:
    hook = _revive if _ESCAPED in text else _revive_state
    found: _T = _adapter_of(kind).validate_python(json.loads(text, object_hook=hook))
    return found


@cache
def _adapter_of(kind: Any) -> TypeAdapter[Any]:
    """Return what reads a type. To make all of them takes 50 ms, and most verbs need one or none."""
    return TypeAdapter(kind)


def _plain(value: object) -> Any:
    kind: Any = type(value)
    if kind in _SCALARS:
        return value
    return _form_of(kind)(value)


@cache
def _form_of(kind: Any) -> Callable[[Any], Any]:
    """Return what makes values of a type plain: what a type is, is asked once and not for every value."""
    if kind is tuple or kind is list:
        return lambda items: [_plain(item) for item in items]
    if is_dataclass(kind):
        return _form_of_fields(tuple(kind.__dataclass_fields__))
    if issubclass(kind, State):
        return _plain_state
    for known, form in _FORMS.items():
        if issubclass(kind, known):
            return form
    raise TypeError(f"the journal has no form for {kind.__name__}")


def _form_of_fields(names: tuple[str, ...]) -> Callable[[Any], dict[str, Any]]:
    if len(names) < 2:  # of a single name, the getter returns the value alone
        return lambda value: {name: _plain(getattr(value, name)) for name in names}
    values_of = attrgetter(*names)

    def plain(value: Any) -> dict[str, Any]:
        found = zip(names, values_of(value), strict=True)
        return {name: item if type(item) in _SCALARS else _plain(item) for name, item in found}

    return plain


def _plain_state(state: State) -> dict[str, Any]:
    layout = list(state._layout)  # noqa: SLF001  (the order of keys is part of the value)
    return {_STATE: {"layout": layout, "document": _plain_model(state)}}


def _plain_model(model: BaseModel) -> dict[str, Any]:
    aliases, extra = _aliases(type(model)), model.__pydantic_extra__
    known = {aliases[name]: _plain(item) for name, item in vars(model).items()}
    return known | {_escaped(name): _plain(item) for name, item in extra.items()} if extra else known


def _plain_moment(moment: datetime) -> str:
    return (moment.astimezone(UTC) if moment.tzinfo else moment).isoformat()


_FORMS: dict[type, Callable[[Any], Any]] = {
    Enum: attrgetter("value"),
    BaseModel: _plain_model,
    Mapping: lambda values: {_escaped(key): _plain(item) for key, item in values.items()},
    datetime: _plain_moment,
    str: lambda text: text,
    int: lambda number: number,
    float: lambda number: number,
}
"""By the first that a type is: an Enum of strings is its value."""


@cache
def _aliases(kind: type[BaseModel]) -> dict[str, str]:
    return {name: field.alias or name for name, field in kind.model_fields.items()}


def _escaped(key: object) -> str:
    assert isinstance(key, str)
    return f"${key}" if key.startswith("$") else key


def _unescaped(pairs: dict[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("$"): value for key, value in pairs.items()}


def _revive(pairs: dict[str, Any]) -> Any:
    return _revive_state(pairs) if _STATE in pairs else _unescaped(pairs)


def _revive_state(pairs: dict[str, Any]) -> Any:
    if _STATE not in pairs:
        return pairs
    wrapped = pairs[_STATE]
    state = State.model_validate(wrapped["document"])
    state._layout = tuple(wrapped["layout"])  # noqa: SLF001  (see `_plain`)
    return state


def _reveal(pairs: dict[str, Any]) -> Any:
    return pairs[_STATE]["document"] if _STATE in pairs else _unescaped(pairs)


def moment(at: datetime) -> str:
    """Return an aware datetime as text that sorts by time; UTC, microseconds."""
    assert at.tzinfo is not None
    return at.astimezone(UTC).isoformat(timespec="microseconds")
