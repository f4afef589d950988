"""Copies of frozen values with some fields changed: what a decision spends most of its time on.

`dataclasses.replace` runs the class's whole `__init__`, which for a frozen class is a call for each
field. Here all fields are copied by one: that is why these classes have no slots.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

_T = TypeVar("_T")


def changed(value: _T, /, **changes: Any) -> _T:
    """Return a copy of a frozen dataclass with `changes`; TypeError for a field it has not."""
    kind: Any = type(value)
    names = _fields_of(kind)
    if not changes.keys() <= names:
        raise TypeError(f"{kind.__name__} has no field {next(iter(changes.keys() - names))!r}")
    copy: _T = object.__new__(kind)
    # A dict made in one go has half the room of one that has grown, and a ledger is kept for each track.
    object.__setattr__(copy, "__dict__", {**value.__dict__, **changes})
    return copy


@cache
def _fields_of(kind: Any) -> frozenset[str]:
    assert not hasattr(kind, "__post_init__"), f"{kind.__name__} would not be checked"
    assert not hasattr(kind, "__slots__"), f"{kind.__name__} has slots, which are not copied"
    return frozenset(field.name for field in fields(kind))
