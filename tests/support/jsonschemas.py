"""A judge of JSON documents by their schema, for the keywords that our own schemas use.

It refuses a schema with a keyword it does not know, so that it never approves by ignorance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "array": (list,), "object": (dict,),
}  # fmt: skip
_NOTES = {"$schema", "$defs", "title", "description", "default", "format", "writeOnly", "discriminator"}


def complaints(value: Any, schema: Schema, whole: Schema | None = None, at: str = "$") -> list[str]:
    """Return what is wrong with `value`; nothing when the schema accepts it."""
    whole = schema if whole is None else whole
    found: list[str] = []
    for keyword, wanted in schema.items():
        if keyword in _NOTES:
            continue
        found += [f"{at}: {wrong}" for wrong in _SIMPLE[keyword](value, wanted)] if keyword in _SIMPLE else []
        if keyword not in _SIMPLE:
            found += _deeper(keyword, wanted, value, schema, whole, at)
    return found


def _deeper(keyword: str, wanted: Any, value: Any, schema: Schema, whole: Schema, at: str) -> Iterator[str]:
    match keyword:
        case "$ref":
            yield from complaints(value, whole["$defs"][wanted.rpartition("/")[2]], whole, at)
        case "allOf":
            for part in wanted:
                yield from complaints(value, part, whole, at)
        case "anyOf":
            tries = [complaints(value, part, whole, at) for part in wanted]
            if all(tries):
                yield f"{at}: fits none of {len(tries)} forms ({'; '.join(one[0] for one in tries)})"
        case "oneOf":
            fitting = [part for part in wanted if not complaints(value, part, whole, at)]
            if len(fitting) != 1:
                yield f"{at}: fits {len(fitting)} of {len(wanted)} forms, not one"
        case "not":
            if not complaints(value, wanted, whole, at):
                yield f"{at}: is what it must not be"
        case "items":
            for index, item in enumerate(value if isinstance(value, list) else ()):
                yield from complaints(item, wanted, whole, f"{at}[{index}]")
        case "prefixItems":
            for index, (item, part) in enumerate(
                zip(value if isinstance(value, list) else (), wanted, strict=False)
            ):
                yield from complaints(item, part, whole, f"{at}[{index}]")
        case "properties":
            for name, part in wanted.items():
                if isinstance(value, dict) and name in value:
                    yield from complaints(value[name], part, whole, f"{at}.{name}")
        case "patternProperties":
            for pattern, part in wanted.items():
                for name in (name for name in value if re.search(pattern, name)):
                    yield from complaints(value[name], part, whole, f"{at}.{name}")
        case "propertyNames":
            for name in value if isinstance(value, dict) else ():
                yield from complaints(name, wanted, whole, f"{at}.{name}")
        case "additionalProperties":
            for name in _others(value, schema):
                if wanted is False:
                    yield f"{at}: unknown key {name!r}"
                elif wanted is not True:
                    yield from complaints(value[name], wanted, whole, f"{at}.{name}")
        case _:
            raise AssertionError(f"{at}: the keyword {keyword} is not known here")


def _others(value: Any, schema: Schema) -> list[str]:
    return (
        [name for name in value if name not in schema.get("properties", {})]
        if isinstance(value, dict)
        else []
    )


def _of_type(value: Any, wanted: str) -> list[str]:
    # A whole number is one however it is written.
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    fits = isinstance(number, _TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))
    return [] if fits else [f"{value!r} is no {wanted}"]


def _at_least(value: Any, low: float) -> list[str]:
    return [f"{value} is below {low}"] if isinstance(value, int | float) and value < low else []


def _at_most(value: Any, high: float) -> list[str]:
    return [f"{value} is above {high}"] if isinstance(value, int | float) and value > high else []


def _above(value: Any, low: float) -> list[str]:
    return [f"{value} is not above {low}"] if isinstance(value, int | float) and value <= low else []


def _as_long_as(value: Any, least: int) -> list[str]:
    short = isinstance(value, str | list | dict) and len(value) < least
    return [f"{value!r} is too short"] if short else []


def _no_longer_than(value: Any, most: int) -> list[str]:
    return [f"{len(value)} characters are too many"] if isinstance(value, str) and len(value) > most else []


def _no_more_than(value: Any, most: int) -> list[str]:
    return [f"{len(value)} items are too many"] if isinstance(value, list) and len(value) > most else []


def _like(value: Any, pattern: str) -> list[str]:
    return (
        [f"{value!r} is not like {pattern}"]
        if isinstance(value, str) and not re.search(pattern, value)
        else []
    )


_SIMPLE: Mapping[str, Any] = {
    "type": _of_type,
    "enum": lambda value, allowed: [] if value in allowed else [f"{value!r} is none of {allowed}"],
    "const": lambda value, only: [] if value == only else [f"{value!r} is not {only!r}"],
    "minimum": _at_least,
    "maximum": _at_most,
    "exclusiveMinimum": _above,
    "minLength": _as_long_as,
    "maxLength": _no_longer_than,
    "minItems": _as_long_as,
    "minProperties": _as_long_as,
    "maxItems": _no_more_than,
    "pattern": _like,
    "required": lambda value, names: [
        f"{name} is missing" for name in names if isinstance(value, dict) and name not in value
    ],
}
