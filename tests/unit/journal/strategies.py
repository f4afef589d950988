"""Hypothesis strategies for every value the journal holds, made from the types themselves.

So a field that is added to an event is generated, and must survive the journal, too.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec.structs import fields
from pydantic import BaseModel

from handoffd.engine.track import Ledger, Parked
from handoffd.errors import Problem
from handoffd.protocol.state import State

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=6), inner, max_size=2),
    max_leaves=4,
)
KEYS = st.sampled_from(["$state", "$$state", "$", "x-note", "layout", "document", "kind", "備註"])
MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001

_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(min_size=1, max_size=8),
    int: st.integers(1, 10**9),
    float: st.floats(0, 1e9),
    bool: st.booleans(),
    type(None): st.none(),
    datetime: MOMENTS,
    Any: JSON,
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a type annotation."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return values(arguments[0])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in {Union, types.UnionType}:
        return st.one_of(*map(values, arguments))
    if origin is frozenset:
        return st.frozensets(KEYS | values(arguments[0]), max_size=2)
    if origin is tuple and Ellipsis not in arguments:
        return st.tuples(*map(values, arguments))
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is Mapping:
        keys = KEYS | _PLAIN[str] if arguments[0] is str else values(arguments[0])
        return st.dictionaries(keys, values(arguments[1]), max_size=2)
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    if issubclass(hint, BaseModel):
        return _models(hint)
    return _structs(hint)


def _structs(kind: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    names = dataclasses.fields(kind) if kind is Problem else fields(kind)
    parts = {field.name: _part(kind, hints[field.name]) for field in names}
    return st.builds(kind, **parts)


def _part(kind: Any, hint: Any) -> st.SearchStrategy[Any]:
    # A parked story holds a ledger, which holds parked stories: one level will do.
    if kind is Parked and hint is Ledger:
        return st.builds(Ledger, visits=values(Mapping[str, int]), red_done=st.booleans())
    return values(hint)


def _models(kind: type[BaseModel]) -> st.SearchStrategy[Any]:
    parts = {
        field.alias or name: values(field.annotation) | st.just(field.get_default(call_default_factory=True))
        if not field.is_required()
        else values(field.annotation)
        for name, field in kind.model_fields.items()
    }
    extra = (
        st.dictionaries(KEYS, JSON, max_size=2) if kind.model_config.get("extra") == "allow" else st.just({})
    )
    built = st.builds(
        lambda known, more: kind.model_validate({**more, **known}), st.fixed_dictionaries(parts), extra
    )
    return st.builds(_laid_out, built, st.lists(KEYS, max_size=3)) if kind is State else built


def _laid_out(state: State, layout: list[str]) -> State:
    state._layout = tuple(layout)
    return state
