"""Values to JSON text and back, exactly.

The journal is read by later releases and after crashes, so what goes in must come out equal: with
the unknown keys of STATE.json, in their order, with microseconds, and with nothing that a hostile
document could use to pass itself off as one of our own wrappers. msgspec writes and reads the engine's
structs, and pydantic the models in them. Fields that a later release adds must have a default.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel

from handoffd.engine.decision import Effect, Ground, Result
from handoffd.engine.events import Event, TestEvidence
from handoffd.engine.flow.events import FlowEvent, Order
from handoffd.engine.run import Exit
from handoffd.engine.track import Track
from handoffd.errors import Problem
from handoffd.protocol.rules import RuleBook
from handoffd.protocol.state import State, revived

_STATE = "$state"
"""Marks a STATE document with the order of its keys. Foreign keys that begin with `$` get a second one."""

_ESCAPED = '"$$'
"""Without it no key of a text has a second `$`. With it one may have: few texts do, and it may be no key."""

_WRAPPER = '"$state":{"layout":'
_SCALARS = frozenset({str, int, float, bool, type(None)})
_T = TypeVar("_T")

# A type checker does not take a union for a type.
_EVENT: Any = Event
_EFFECT: Any = Effect
_FLOW_EVENT: Any = FlowEvent
_FLOW_ORDER: Any = Order
_ORDER: Any = Effect | Order
_RESULT: Any = Result
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def encode(value: object) -> str:
    """Return `value` (a struct or model of the engine or protocol) as JSON text in one line.

    Half of a surrogate pair, which only broken output of an agent holds, becomes `?`. Numbers are finite:
    readers of foreign files refuse others.
    """
    try:
        text = msgspec.json.encode(value, enc_hook=_plain).decode()
    except UnicodeEncodeError:
        return _encode_anything(value)
    # A foreign key that begins with `$` is not escaped yet.
    return text if text.count('"$') == text.count(_WRAPPER) else _encode_anything(value)


def _encode_anything(value: object) -> str:
    """Do what `encode` does for what is seldom: half a character, keys with `$`."""
    text = _JSON.encode(_plain(value))
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def decode_event(text: str) -> Event:
    """Return the event that `encode` wrote; ValueError when it is none."""
    event: Event = decode(_EVENT, text)
    return event


def decode_effect(text: str) -> Effect:
    """Return the effect that `encode` wrote; ValueError when it is none."""
    effect: Effect = decode(_EFFECT, text)
    return effect


def decode_flow_event(text: str) -> FlowEvent:
    """Return the event of a flow that `encode` wrote; ValueError when it is none."""
    event: FlowEvent = decode(_FLOW_EVENT, text)
    return event


def decode_flow_order(text: str) -> Order:
    """Return the order of a flow that `encode` wrote; ValueError when it is none."""
    order: Order = decode(_FLOW_ORDER, text)
    return order


def decode_order(text: str) -> Effect | Order:
    """Return the order, of a track or of a flow, that `encode` wrote; ValueError when it is none."""
    order: Effect | Order = decode(_ORDER, text)
    return order


def decode_result(text: str) -> Result:
    """Return the result that `encode` wrote; ValueError when it is none."""
    result: Result = decode(_RESULT, text)
    return result


def decode_track(text: str) -> Track:
    """Return the track that `encode` wrote; ValueError when it is none."""
    return decode(Track, text)


def encode_grounds(grounds: tuple[Ground, ...]) -> str:
    """Return what a decision rests on as JSON text in one line, made safe like that of `encode`."""
    text = json.dumps({ground.rule: ground.value for ground in grounds}, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode("utf-8")


def decode_grounds(text: str) -> tuple[Ground, ...]:
    """Return the grounds that `encode_grounds` wrote; ValueError when they are none."""
    grounds = msgspec.json.decode(text, type=dict[str, str])
    return tuple(Ground(rule=rule, value=value) for rule, value in grounds.items())


def decode_rules(text: str) -> RuleBook:
    """Return the step table that `encode` wrote; ValueError when it is none."""
    return decode(RuleBook, text)


def decode_exit(text: str) -> Exit:
    """Return the exit that `encode` wrote; ValueError when it is none."""
    return decode(Exit, text)


def decode_tests(text: str) -> TestEvidence:
    """Return the test evidence that `encode` wrote; ValueError when it is none."""
    return decode(TestEvidence, text)


def readable(text: str) -> dict[str, Any]:
    """Return what `encode` wrote as plain JSON for people and scripts, STATE documents unwrapped."""
    value = json.loads(text, object_hook=_reveal)
    assert isinstance(value, dict)
    return value


def decode(kind: Callable[..., _T], text: str) -> _T:
    """Return the value of a type or union that `encode` wrote; ValueError when it is none."""
    whole: Any = kind
    if _ESCAPED in text:
        plain = json.loads(text, object_hook=_revive)
        found: _T = msgspec.convert(plain, whole, strict=False, dec_hook=_revived)
    else:
        found = _decoder_of(whole).decode(text)
    return found


def as_kept(value: _T) -> _T:
    """Return a struct as it comes back from its text: a decision on that can be made again."""
    return decode(type(value), encode(value))


@cache
def _decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    # Not strictly: a whole number may have been written as 2.0.
    return msgspec.json.Decoder(kind, strict=False, dec_hook=_revived)


def _revived(kind: Any, value: Any) -> Any:
    """Return a value of a model's type; `value` is what is in its place in the JSON text."""
    if kind is State:
        return value if isinstance(value, State) else _revive_state(value)
    return revived(kind, value)


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
    if kind is frozenset:
        return lambda items: [_plain(item) for item in sorted(items)]
    if issubclass(kind, msgspec.Struct):
        return _form_of_struct(kind)
    if issubclass(kind, State):
        return _plain_state
    for known, form in _FORMS.items():
        if issubclass(kind, known):
            return form
    raise TypeError(f"the journal has no form for {kind.__name__}")


def _form_of_struct(kind: type[msgspec.Struct]) -> Callable[[Any], dict[str, Any]]:
    names, config = kind.__struct_fields__, kind.__struct_config__
    tag = {} if config.tag_field is None else {config.tag_field: config.tag}
    return lambda value: tag | {name: _plain(getattr(value, name)) for name in names}


def _plain_state(state: State) -> dict[str, Any]:
    layout = list(state._layout)  # noqa: SLF001  (the order of keys is part of the value)
    return {_STATE: {"layout": layout, "document": _plain_model(state)}}


def _plain_model(model: BaseModel) -> dict[str, Any]:
    aliases, extra = _aliases(type(model)), model.__pydantic_extra__
    known = {aliases[name]: _plain(item) for name, item in vars(model).items()}
    return known | {_escaped(name): _plain(item) for name, item in extra.items()} if extra else known


def _plain_moment(moment: datetime) -> str:
    return (moment.astimezone(UTC) if moment.tzinfo else moment).isoformat().replace("+00:00", "Z")


_FORMS: dict[type, Callable[[Any], Any]] = {
    Enum: attrgetter("value"),
    BaseModel: _plain_model,
    Problem: lambda problem: _plain(asdict(problem)),
    Mapping: lambda values: {_escaped(key): _plain(item) for key, item in values.items()},
    datetime: _plain_moment,
    bytes: lambda raw: b64encode(raw).decode(),
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


def _revive_state(pairs: dict[str, Any]) -> State:
    try:
        wrapped = pairs[_STATE]
        state = State.model_validate(wrapped["document"])
        state._layout = tuple(wrapped["layout"])  # noqa: SLF001  (see `_plain`)
    except (KeyError, TypeError) as error:
        raise ValueError("a STATE document is not as it was written") from error
    return state


def _reveal(pairs: dict[str, Any]) -> Any:
    return pairs[_STATE]["document"] if _STATE in pairs else _unescaped(pairs)


def moment(at: datetime) -> str:
    """Return an aware datetime as text that sorts by time; UTC, microseconds."""
    assert at.tzinfo is not None
    return at.astimezone(UTC).isoformat(timespec="microseconds")
