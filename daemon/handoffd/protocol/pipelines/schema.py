"""The JSON Schema of the language, with which editors complete a pipeline and underline what is unknown.

It is made from the tables that the reader walks, so both say the same. It does not have what only several
tasks together show: names of tasks, circles, expressions.
"""

from __future__ import annotations

from typing import Any, Final

from handoffd.protocol.pipelines.shapes import (
    DEFINITIONS,
    DOERS,
    FILE,
    TASK,
    Either,
    Family,
    Key,
    Leaf,
    Listing,
    Named,
    Shape,
    Table,
)

Schema = dict[str, Any]
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DESCRIPTION: Final = "A pipeline: its tasks, what each needs, and what follows from each outcome."


def json_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of a file that holds a pipeline."""
    head = {"$schema": _DIALECT, "title": "Pipeline", "description": _DESCRIPTION}
    definitions = {name: _of(shape) for name, shape in DEFINITIONS.items()}
    return {**head, **_of(FILE), "$defs": definitions}


def _of(shape: Shape) -> Schema:
    match shape:
        case Named():
            return {"$ref": f"#/$defs/{shape.name}"}
        case Leaf():
            return dict(shape.schema)
        case Listing():
            least = {"minItems": shape.least} if shape.least else {}
            return {"type": "array", "items": _of(shape.member), **least, "maxItems": shape.most}
        case Family():
            names = {"pattern": f"^(?:{shape.pattern})$"}
            return {"type": "object", "propertyNames": names, "additionalProperties": _of(shape.member)}
        case Either():
            forms = [_of(form) for form in (shape.scalar, shape.listing, shape.mapping) if form is not None]
            return forms[0] if len(forms) == 1 else {"anyOf": forms}
        case Table():
            return _table(shape)


def _table(shape: Table) -> Schema:
    properties = {name: _key(key) for name, key in shape.keys.items()}
    table: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if shape is TASK:
        table["not"] = {"anyOf": [{"required": pair} for pair in _pairs([*DOERS])]}
    return {**table, "required": list(shape.required)} if shape.required else table


def _key(key: Key) -> Schema:
    found = _of(key.shape)
    return {"description": key.about, **found} if key.about else found


def _pairs(names: list[str]) -> list[list[str]]:
    return [[one, other] for index, one in enumerate(names) for other in names[index + 1 :]]
