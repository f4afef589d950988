"""Parameters of a pipeline: a small part of JSON Schema, and whether a value fits it.

Patterns are matched at linear cost: none can stop the daemon.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from handoffd.protocol.expressions import Kind
from handoffd.protocol.patterns import pattern_of
from handoffd.protocol.pipelines.reading import Findings
from handoffd.protocol.pipelines.shapes import shown

_KINDS: Final[Mapping[str, Kind]] = {
    "string": "text",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "array": "list",
    "object": "any",
}
_WORDS: Final[Mapping[str, str]] = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}
_BELONGS: Final[Mapping[str, tuple[str, ...]]] = {
    "minimum": ("integer", "number"),
    "maximum": ("integer", "number"),
    "minLength": ("string",),
    "maxLength": ("string",),
    "pattern": ("string",),
    "minItems": ("array",),
    "maxItems": ("array",),
    "items": ("array",),
}
_RANGES: Final = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))


def type_of(schema: Mapping[str, Any]) -> str | None:
    """Return the type of a parameter; where only its values are listed, the type of them."""
    if "type" in schema:
        return str(schema["type"])
    types = [name for name in _TYPES if all(_is(name, one) for one in schema.get("enum", ()))]
    return types[0] if types and "enum" in schema else None


def kind_of(schema: Mapping[str, Any]) -> Kind:
    """Return what a parameter is for an expression."""
    return _KINDS.get(type_of(schema) or "", "any")


def unfit(value: object, schema: Mapping[str, Any]) -> str | None:
    """Return why a value does not fit the schema of a parameter; None: it fits."""
    wanted = type_of(schema)
    if wanted is not None and not _is(wanted, value):
        return f"must be {_WORDS[wanted]}, not {shown(value)}"
    if "enum" in schema and not any(value == one and type(value) is type(one) for one in schema["enum"]):
        return f"must be one of {', '.join(map(str, schema['enum']))}, not {shown(value)}"
    if isinstance(value, str):
        return _outside(len(value), schema, "minLength", "maxLength", " characters") or _unlike(value, schema)
    if isinstance(value, list | tuple):
        return _outside(len(value), schema, "minItems", "maxItems", " entries") or _unfit_entry(value, schema)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _outside(value, schema, "minimum", "maximum", "")
    return None


def read(texts: Sequence[str], schema: Mapping[str, Any]) -> Any:
    """Return what a person has typed as a value of the schema's type; as it is where it can be none.

    `texts` are the values of one parameter: of a list its entries, or the whole of it as JSON.
    """
    kind = type_of(schema)
    if kind == "array" and not (len(texts) == 1 and texts[0].lstrip().startswith("[")):
        return [read((one,), schema.get("items", {})) for one in texts]
    if len(texts) != 1:
        return list(texts)
    (text,) = texts
    try:
        value = json.loads(text) if kind not in {None, "string"} else text
    except (ValueError, RecursionError):
        return text
    return value if kind is None or _is(kind, value) else text


def check_parameters(params: Mapping[str, Mapping[str, Any]], findings: Findings) -> None:
    """Look at the schemas of all parameters, and at their defaults."""
    for name, schema in params.items():
        _check(schema, f"params.{name}", findings)


def _check(schema: Mapping[str, Any], key: str, findings: Findings) -> None:
    kind = type_of(schema)
    if kind is None and not findings.doubts(key):
        findings.refuse(key, "needs a type, or an enum of values of one type", tuple(_TYPES))
    for name in schema:
        if kind is not None and name in _BELONGS and kind not in _BELONGS[name]:
            findings.refuse(f"{key}.{name}", f"{name} does not go with the type {kind}")
    for low, high in _RANGES:
        if low in schema and high in schema and schema[low] > schema[high]:
            findings.refuse(f"{key}.{low}", f"{low} {schema[low]:g} is above {high} {schema[high]:g}")
    if "pattern" in schema and _matches("", schema["pattern"]) is None:
        findings.refuse(
            f"{key}.pattern", f"cannot be read as a regular expression: {shown(schema['pattern'])}"
        )
    elif "default" in schema and (wrong := unfit(schema["default"], schema)) is not None:
        findings.refuse(f"{key}.default", wrong)
    if "items" in schema:
        _check(schema["items"], f"{key}.items", findings)


def _is(name: str, value: object) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean") == isinstance(value, bool)


def _outside(size: float, schema: Mapping[str, Any], low: str, high: str, what: str) -> str | None:
    if low in schema and size < schema[low]:
        return f"must be at least {schema[low]:g}{what}, not {size:g}"
    if high in schema and size > schema[high]:
        return f"must be at most {schema[high]:g}{what}, not {size:g}"
    return None


def _unlike(value: str, schema: Mapping[str, Any]) -> str | None:
    if "pattern" not in schema or _matches(value, schema["pattern"]):
        return None
    return f"must match {schema['pattern']}, and {shown(value)} does not"


def _unfit_entry(value: list[object] | tuple[object, ...], schema: Mapping[str, Any]) -> str | None:
    for index, one in enumerate(value):
        if (wrong := unfit(one, schema.get("items", {}))) is not None:
            return f"entry {index + 1}: {wrong}"
    return None


def _matches(value: str, pattern: str) -> bool | None:
    """Return whether a value has a part that a pattern describes; None: it is not a pattern."""
    try:
        return pattern_of(pattern).occurs_in(value)
    except ValueError:
        return None
