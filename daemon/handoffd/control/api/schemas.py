"""From what a parameter may be to its JSON schema.

The checks are in `asking.py` and `control/verbs.py`; a test gives both the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handoffd.control.api.endpoint import MOST, UrlParameter
from handoffd.control.history import Json
from handoffd.control.verbs import MOST_SPENT, MOST_URGENT
from handoffd.control.vocabulary import MAX_TEXT, MOST_PATHS, Parameter
from handoffd.protocol.state import Reason
from handoffd.protocol.story import RESERVED_IDS

_STORY: Final[Json] = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9](\.?[A-Za-z0-9_-]){0,63}\.?$",
    "maxLength": 64,
    "not": {"enum": sorted(RESERVED_IDS)},
}
_DIGITS: Final = "^[1-9][0-9]{0,11}$"
"""A number as text: command lines have no others."""

_BODY: Final[Mapping[str, Json]] = {
    "text": {"type": "string", "maxLength": MAX_TEXT},
    "step": {"type": "string", "maxLength": MAX_TEXT},
    "story": _STORY,
    "stories": {"type": "array", "items": _STORY},
    "paths": {
        "type": "array",
        "minItems": 1,
        "maxItems": MOST_PATHS,
        "items": {"type": "string", "pattern": "^/", "maxLength": MAX_TEXT},
    },
    "reason": {"type": "string", "enum": [str(reason) for reason in Reason]},
    "flag": {"type": "boolean"},
    "executors": {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
    },
    "priority": {
        "anyOf": [
            {"type": "integer", "minimum": -MOST_URGENT, "maximum": MOST_URGENT},
            {"type": "string", "pattern": "^-?(0|[1-9][0-9]{0,2}|1000)$"},
        ]
    },
    "level": {"anyOf": [{"type": "integer", "enum": [1, 2]}, {"type": "string", "enum": ["1", "2"]}]},
    "amount": {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_SPENT},
            {"type": "string", "pattern": _DIGITS},
        ]
    },
    "count": {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": MOST_SPENT},
            {"type": "string", "pattern": _DIGITS},
        ]
    },
}


def body_schema(parameters: tuple[Parameter, ...]) -> Json:
    """Return the schema of a body with these parameters and no others."""
    schema: Json = {
        "type": "object",
        "properties": {one.name: _of_body(one) for one in parameters},
        "additionalProperties": False,
    }
    required = [one.name for one in parameters if one.required]
    return {**schema, "required": required} if required else schema


def _of_body(parameter: Parameter) -> Json:
    known = _BODY.get(parameter.type, {})
    if parameter.choices:
        known = {"type": "string", "enum": list(parameter.choices)}
    described = {"description": parameter.help}
    if parameter.required or parameter.type == "level":
        return {**_not_empty(known), **described}
    if parameter.type in {"stories", "flag"} or parameter.guards:
        return {"anyOf": [known, {"type": "null"}], **described}
    return {"anyOf": [known, {"type": "null"}, {"const": ""}], **described}


def _not_empty(schema: Json) -> Json:
    """Return the schema of a value that has to be there."""
    if "anyOf" in schema:
        return {"anyOf": [_not_empty(one) for one in schema["anyOf"]]}
    if schema.get("type") == "array":
        return {**schema, "minItems": 1}
    plain_text = schema.get("type") == "string" and not {"enum", "pattern"} & schema.keys()
    return {**schema, "minLength": 1} if plain_text else schema


def url_parameter(parameter: UrlParameter) -> Json:
    """Return a parameter of a URL as OpenAPI describes it."""
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required or parameter.place == "path",
        "description": parameter.help,
        "schema": _of_url(parameter),
    }


def _of_url(parameter: UrlParameter) -> Json:
    schema: dict[str, Any] = {"type": "string"}
    if parameter.type == "number":
        schema = {"type": "integer", "minimum": 0, "maximum": MOST}
    elif parameter.type == "flag":
        schema["enum"] = ["1", "true", "0", "false", ""]
    elif parameter.choices:
        schema["enum"] = [*parameter.choices, ""]
    elif parameter.pattern:
        schema["pattern"] = parameter.pattern if parameter.required else f"^$|{parameter.pattern}"
    elif parameter.required or parameter.place == "path":
        schema["minLength"] = 1
    return schema if parameter.default is None else {**schema, "default": _shown(parameter.default)}


def _shown(default: object) -> object:
    return str(default).lower() if isinstance(default, bool) else default
