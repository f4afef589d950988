"""What pydantic finds wrong, in the words of the person who has to mend it.

Every problem gets its place (file and line, variable or flag), its dotted key and the values that
would have been accepted. Values that may hold a key are never quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from handoffd.errors import Problem

Location = tuple[int | str, ...]
Locate = Callable[[str], tuple[str, int | None]]
"""Takes a dotted key; returns the file (variable, flag) it was given in, and the line there."""

_SHOWN_CHARACTERS = 60
_MESSAGES = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a section with keys of its own",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be more than {gt:.15g}",
    "greater_than_equal": "must be at least {ge:.15g}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than": "must be less than {lt:.15g}",
    "less_than_equal": "must be at most {le:.15g}",
    "literal_error": "must be one of the allowed values",
    "mapping_type": "must be a section with keys of its own",
    "missing": "is missing",
    "model_attributes_type": "must be a section with keys of its own",
    "model_type": "must be a section with keys of its own",
    "path_type": "must be a path",
    "string_pattern_mismatch": "must be the name of an environment variable",
    "string_type": "must be text",
    "too_short": "must not be empty",
    "tuple_type": "must be a list",
    "value_error": "{error}",
}
_WITHOUT_VALUE = frozenset({"extra_forbidden", "missing", "told_by_other_key", "too_short", "value_error"})
_WITH_ALLOWED = frozenset({"literal_error", "told_by_other_key"})
"""The second is ours: a value that another setting is for, which the message names."""


def problems_of(error: ValidationError, model: type[BaseModel], locate: Locate) -> tuple[Problem, ...]:
    """Return one Problem for each thing that is wrong."""
    return tuple(_problem(details, model, locate) for details in error.errors(include_url=False))


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a field that is a section (or may be one), else None."""
    return _model_in(_kinds(field.annotation, items=False))


def _model_in(kinds: Iterator[Any]) -> type[BaseModel] | None:
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def item_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of the items of a field that is a mapping of sections, else None."""
    parts = get_args(field.annotation)[1:] if get_origin(field.annotation) is Mapping else ()
    return _model_in(iter(parts))


def dotted(location: Location) -> str:
    """Return `notify.command.0` for ("notify", "command", 0)."""
    return ".".join(map(str, location))


def _problem(details: ErrorDetails, model: type[BaseModel], locate: Locate) -> Problem:
    key = dotted(details["loc"])
    owner, field = _owner(model, details["loc"])
    message, allowed = _words(details, owner, field)
    file, line = locate(key)
    return Problem(file=file, line=line, key=key or None, message=message, allowed=allowed)


def _words(
    details: ErrorDetails, owner: type[BaseModel] | None, field: FieldInfo | None
) -> tuple[str, tuple[str, ...]]:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "extra_forbidden" and owner is not None:
        known = tuple(owner.model_fields)
        close = get_close_matches(str(details["loc"][-1]), known, n=1)
        return f"unknown setting; did you mean {close[0]}?" if close else "unknown setting", known
    told = _MESSAGES.get(kind)
    message = told.format(**context) if told else details["msg"][:1].lower() + details["msg"][1:]
    allowed = tuple(re.findall(r"'([^']*)'", context.get("expected", ""))) if kind in _WITH_ALLOWED else ()
    return message + ("" if kind in _WITHOUT_VALUE else _shown(details["input"], field)), allowed


def _shown(value: Any, field: FieldInfo | None) -> str:
    """Return `, not …` unless the value may be a secret or says nothing."""
    text = repr(value)
    if "://" in text or (field is not None and _may_be_secret(field)):
        return ""
    if isinstance(value, SecretStr):
        return ", not a secret"
    if isinstance(value, Mapping):
        return ", not a section"
    if isinstance(value, list | tuple):
        return ", not a list"
    return f", not {'nothing' if value is None else text[:_SHOWN_CHARACTERS]}"


def _may_be_secret(field: FieldInfo) -> bool:
    """Return whether a field is a secret, or a section that holds one."""
    section = item_of(field) or _model_in(_kinds(field.annotation))
    return SecretStr in _kinds(field.annotation) or (
        section is not None and any(map(_may_be_secret, section.model_fields.values()))
    )


def _owner(model: type[BaseModel], location: Location) -> tuple[type[BaseModel] | None, FieldInfo | None]:
    """Return the model in which the last key of `location` is looked up, and its field there."""
    owner: type[BaseModel] | None = model
    field: FieldInfo | None = None
    within = False
    for depth, key in enumerate(location):
        if owner is None:
            return None, field  # below a field that is no section: an item of a list or mapping
        if isinstance(key, int):
            continue  # an item of a list of sections
        if within:
            within = False  # the name of an item, which is a section itself
            continue
        field = owner.model_fields.get(str(key))
        if depth < len(location) - 1:
            item = item_of(field) if field else None
            within = item is not None
            owner = item or (_model_in(_kinds(field.annotation)) if field else None)
    return owner, field


def _kinds(annotation: Any, *, items: bool = True) -> Iterator[Any]:
    """Yield what a value may be, and what one of its `items` may be; not what a mapping may hold."""
    yield annotation
    origin = get_origin(annotation)
    if origin is Mapping or (origin is tuple and not items):
        return
    for part in get_args(annotation):
        yield from _kinds(part, items=items)
