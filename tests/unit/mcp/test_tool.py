"""The arguments of tools, and which are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from handoffd.api.verbs import Parameter
from handoffd.errors import Refused
from handoffd.mcp.tool import PROJECT, checked, project_of, schema_of, takes

SCHEMA = takes(
    {
        "project": PROJECT,
        "limit": {"type": "integer", "minimum": 1, "maximum": 9},
        "share": {"type": "number"},
        "by": {"type": "string", "enum": ["step", "day"]},
        "whole": {"type": "boolean"},
        "stories": {"type": "array"},
    },
    ("project",),
)


def test_valid_arguments_are_taken_without_null() -> None:
    """Clients send null for what they leave out."""
    given = {"project": "shop", "limit": 9, "share": 1, "by": "day", "whole": True, "stories": []}

    assert given == checked("runs", SCHEMA, given)
    assert {"project": "shop"} == checked("runs", SCHEMA, {"project": "shop", "limit": None})


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (None, "runs: project is missing"),
        ({"project": ""}, "runs: project is empty"),
        ({"project": 7}, "runs: project must be of type string"),
        ({"project": "x", "limit": 0}, "runs: limit must be at least 1 and at most 9"),
        ({"project": "x", "limit": True}, "runs: limit must be of type integer"),
        ({"project": "x", "limit": 1.5}, "runs: limit must be of type integer"),
        ({"project": "x", "whole": 1}, "runs: whole must be of type boolean"),
        ({"project": "x", "stories": "US-1"}, "runs: stories must be of type array"),
        ({"project": "x", "by": "moon"}, "runs: by: 'moon' is not allowed (allowed: step, day)"),
        ({"project": "x", "force": True}, "runs takes no 'force' (allowed: project, limit"),
    ],
)
def test_a_wrong_argument_is_refused(given: dict[str, Any] | None, complaint: str) -> None:
    """The refusal names the allowed values."""
    with pytest.raises(Refused) as refused:
        checked("runs", SCHEMA, given)

    assert refused.value.message.startswith(complaint)
    assert "BAD_ARGUMENT" == refused.value.code


@pytest.mark.parametrize("kind", get_args(get_type_hints(Parameter)["type"]))
def test_every_type_of_the_vocabulary_has_a_schema(kind: Any) -> None:
    """With the parameter's own help."""
    schema = schema_of(Parameter(name="x", type=kind, help="what it is"))

    assert "What it is." == schema["description"]
    assert schema["type"] in {"string", "array", "boolean", "number", "integer", "object"}


def test_the_model_sees_the_choices() -> None:
    """The same that are checked, without parts that the services of some models reject."""
    chosen = schema_of(Parameter(name="x", type="text", choices=("S", "M"), help="which"))

    assert {"type": "string", "enum": ["S", "M"], "description": "Which."} == chosen
    assert "not" not in schema_of(Parameter(name="x", type="stories", help="which"))["items"]


def test_a_word_is_a_name_wherever_the_server_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder means nothing to the model."""
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path)

    assert "shop" == project_of({"project": "shop"})
    assert "/srv/shop" == project_of({"project": "/srv/./shop/"})
    assert f"{os.path.expanduser('~')}/shop" == project_of({"project": "~/shop"})
    assert project_of({}) is None
