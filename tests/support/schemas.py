"""JSON Schemas of the files that people and tools write, generated from the models that read them.

Editors complete and check with them (`config/schema/`), and so can other tools. A schema describes a
file, not a model: keys that a file may leave out are not required, even if the model behind them gets
them from somewhere else. A new kind of file is one line in `_SCHEMAS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from handoffd.protocol.handoff import FrontMatter
from handoffd.protocol.pipelines.schema import json_schema
from handoffd.protocol.rule_merge import RULEBOOK
from handoffd.protocol.rules import OF_FLOWS, Language, RuleBook
from handoffd.protocol.state import Reason, State
from handoffd.settings.model import ProjectSettings, Settings

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> Mapping[str, Schema]:
    """Return every schema by its file name."""
    return {name: build() for name, build in _SCHEMAS.items()}


def _state() -> Schema:
    return _schema(
        State,
        "STATE.json",
        "`.ai/STATE.json`: the state of a track. Written by the orchestrator alone; other keys are kept.",
        required=("project", "step", "status"),
    )


def _handoff() -> Schema:
    return _schema(
        FrontMatter,
        "Front matter of HANDOFF.md",
        "What an executor writes between the `---` lines of `.ai/HANDOFF.md`; other keys are ignored.",
    )


def _settings() -> Schema:
    return _schema(Settings, "handoffd.yaml", "The daemon's settings.")


def _project_settings() -> Schema:
    return _schema(ProjectSettings, "Project settings", "`.ai/handoffd.yaml`: what one project wants.")


def _step_rules() -> Schema:
    """Return the schema of a table, a preset or an override: any part of the table may be left out."""
    schema = _schema(
        RuleBook,
        "Step rules",
        "A step table, a preset, or `.ai/step-rules.yaml`; laid over what ships, key by key.",
    )
    for of_the_settings in RuleBook.model_fields.keys() - RULEBOOK.keys.keys():
        del schema["properties"][of_the_settings]
    parts = schema["$defs"]
    rule: Schema = parts["Rule"]["properties"]
    for of_flows in OF_FLOWS:
        del rule[of_flows]
    for unused in ("Delivery", "FieldRule", "Formula", "OutRule"):
        del parts[unused]
    name: Schema = {"type": "string", "minLength": 1}
    optional_name: Schema = {"anyOf": [name, {"type": "null"}]}
    rule["next_on_fail"] = {
        "title": "Next On Fail",
        "description": "Short for `on_fail: {default: …}`.",
        **name,
    }
    targets = {"default": name, **{reason.value: optional_name for reason in Reason}}
    rule["on_fail"] |= _closed_mapping(targets)
    for key in ("display_name", "step_instruction"):
        rule[key] |= _closed_mapping(dict.fromkeys(get_args(Language), name))
    one, several, none = rule["post_check"]["anyOf"]
    several["additionalProperties"] = {"anyOf": [one, none]}
    for part in parts.values():
        part.pop("required", None)
    return schema


def _closed_mapping(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def _schema(model: type[BaseModel], title: str, description: str, *, required: Iterable[str] = ()) -> Schema:
    """Return a model's schema as that of a file, in which only `required` keys must be given."""
    generated = model.model_json_schema(mode="validation")
    for key in ("title", "description", "required"):
        generated.pop(key, None)
    head = {"$schema": _DIALECT, "title": title, "description": description}
    needed = list(required)
    return head | generated | ({"required": needed} if needed else {})


_SCHEMAS: Mapping[str, Callable[[], Schema]] = {
    "state.schema.json": _state,
    "handoff.schema.json": _handoff,
    "step-rules.schema.json": _step_rules,
    "settings.schema.json": _settings,
    "project-settings.schema.json": _project_settings,
    "pipeline.schema.json": json_schema,
}
