"""The language of pipelines as tables, made from the description that its reader walks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from tests.support.markdown import table

from handoffd.cli.pipelines.kit import usage
from handoffd.kit.programs import PROGRAMS
from handoffd.protocol.pipelines.shapes import (
    DEFINITIONS,
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
from handoffd.protocol.plan import TaskKind
from handoffd.protocol.rule_merge import MAX_PATH_LENGTH

KINDS: Final[tuple[str, ...]] = get_args(TaskKind)
_TYPES: Final = {"boolean": "`true`, `false`", "string": "text", "null": "nothing"}


def whole_file() -> str:
    """Return the keys at the top of a file."""
    return _keys(FILE)


def programs() -> str:
    """Return the programs of the kit, with the words that each takes."""
    rows = [
        (f"`{usage(one).removeprefix('handoffd kit ')}`", f"{one.about} {one.more}")
        for one in PROGRAMS.values()
    ]
    return table(("`handoffd kit …`", "What it does"), rows)


def task() -> str:
    """Return the keys of a task, with the kinds of tasks that may have each."""
    rows = [(f"`{name}`", _holds(key.shape), _kinds(key), key.about) for name, key in TASK.keys.items()]
    return table(("Key", "Holds", "Of", "Meaning"), rows)


def parts() -> dict[str, str]:
    """Return the keys of all other mappings, by the name of their block."""
    return {
        "pipeline-roles": _roles(),
        "pipeline-limits": _keys(_below(FILE, "limits")),
        "pipeline-reaction": _keys(_mapping(DEFINITIONS["reaction"])),
        "pipeline-hold": _keys(_below(TASK, "hold")),
        "pipeline-join": _keys(_below(TASK, "join")),
        "pipeline-param": _names(DEFINITIONS["param"]),
    }


def _roles() -> str:
    """Return the keys of a role: the ones that a task has by name, its own in a table."""
    keys = _below(FILE, "roles").keys
    shared = ", ".join(f"`{name}`" for name in keys if name in TASK.keys)
    own = Table({name: key for name, key in keys.items() if name not in TASK.keys})
    return f"A role has these keys of a task: {shared}. And:\n\n{_keys(own)}"


def _below(shape: Table, key: str) -> Table:
    return _mapping(shape.keys[key].shape)


def _mapping(shape: Shape) -> Table:
    """Return the mapping that a shape is, or that its members are."""
    match shape:
        case Table():
            return shape
        case Family():
            return _mapping(shape.member)
        case Either():
            assert shape.mapping is not None
            return _mapping(shape.mapping)
        case Named():
            return _mapping(DEFINITIONS[shape.name])
        case _:
            raise AssertionError(shape)


def _keys(shape: Table) -> str:
    rows = [
        (f"`{name}`{'' if name not in shape.required else ', required'}", _holds(key.shape), key.about)
        for name, key in shape.keys.items()
    ]
    return table(("Key", "Holds", "Meaning"), rows)


def _names(shape: Shape) -> str:
    return ", ".join(f"`{name}`" for name in _mapping(shape).keys)


def _kinds(key: Key) -> str:
    return "all" if len(key.kinds) == len(KINDS) else ", ".join(one for one in KINDS if one in key.kinds)


def _holds(shape: Shape) -> str:
    """Return what a value of a shape is, in a few words."""
    match shape:
        case Named():
            return shape.name
        case Leaf():
            return _leaf(shape.schema)
        case Listing():
            return f"list, each: {_holds(shape.member)}"
        case Family():
            return f"by name, each: {_holds(shape.member)}"
        case Either():
            return shape.what
        case Table():
            return "mapping"


def _leaf(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        forms: Sequence[Mapping[str, Any]] = schema["anyOf"]
        return "expression" if all(set(form) == {"type"} for form in forms) else _leaf(forms[-1])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "minimum" in schema:
        whole = "whole number" if schema["type"] == "integer" else "number"
        low, high = schema["minimum"], schema["maximum"]
        return whole if low < 0 else f"{whole}, {low:,.12g} to {high:,.12g}"
    pattern = schema.get("pattern", "")
    if "[smhd]" in pattern:
        return "duration, or `never`" if "never" in pattern else "duration"
    if schema.get("maxLength") == MAX_PATH_LENGTH:
        return "path"
    return "name" if pattern else _TYPES.get(schema.get("type", ""), "value")
