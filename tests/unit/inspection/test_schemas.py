"""The schemas that pipelines can name: which there are, their digests, and what is wrong with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handoffd.errors import InvalidFile
from handoffd.inspection.schemas import SCHEMAS, schema_ids, schema_of
from handoffd.protocol.json_schema import misfits


def put(root: Path, name: str, text: str) -> None:
    """Write a schema of a project."""
    path = root / SCHEMAS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_every_shipped_schema_can_be_used() -> None:
    """Each of the ids leads to one."""
    for name in schema_ids():
        schema = schema_of(name)

        assert schema is not None
        assert (name, f"config/schema/{name}.json") == (schema.id, schema.file)
        assert () != misfits(None, schema.document)


def test_a_project_has_schemas_of_its_own(tmp_path: Path) -> None:
    """Known by folder and number; other names are not found."""
    put(tmp_path, "bill/2.json", '{"type": "object"}')
    for name in ("bill/x.json", "Bill/1.json", "bill/1.yaml", "bill/02.json", "3.json"):
        put(tmp_path, name, "{}")

    schema = schema_of("bill/2", tmp_path)

    assert schema is not None
    assert (".ai/schemas/bill/2.json", {"type": "object"}) == (schema.file, schema.document)
    assert {"bill/2"} == {*schema_ids(tmp_path)} - {*schema_ids()}
    assert schema_of("bill/2") is None
    assert schema_of("bill/1", tmp_path) is None
    assert schema_of("../bill/2", tmp_path) is None


def test_the_digest_is_of_what_a_schema_says(tmp_path: Path) -> None:
    """Spaces and the order of keys change nothing."""
    put(tmp_path, "a/1.json", '{"type": "object", "minProperties": 1}')
    put(tmp_path, "a/2.json", '{\n"minProperties": 1, "type":"object"}\n')
    put(tmp_path, "a/3.json", '{"type": "object", "minProperties": 2}')

    one, same, other = (schema_of(f"a/{number}", tmp_path) for number in (1, 2, 3))

    assert one is not None
    assert same is not None
    assert other is not None
    assert one.digest == same.digest != other.digest


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON: Expecting property name enclosed in double quotes (line 1, column 2)"),
        ('{"typ": "text"}', "/typ: this keyword is not known here"),
        ("[]", "a schema is an object"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    """With its file."""
    put(tmp_path, "bad/1.json", text)

    with pytest.raises(InvalidFile) as refused:
        schema_of("bad/1", tmp_path)

    assert [f".ai/schemas/bad/1.json: {problem}"] == [str(one) for one in refused.value.problems]


def test_a_project_can_neither_replace_a_shipped_schema_nor_lead_elsewhere(tmp_path: Path) -> None:
    """An agent can write its files."""
    elsewhere = tmp_path / "elsewhere"
    put(elsewhere, "far/1.json", "{}")
    project = tmp_path / "project"
    put(project, "near/1.json", "{}")
    (project / SCHEMAS / "far").symlink_to(elsewhere / SCHEMAS / "far")
    for name in schema_ids():
        put(project, f"{name}.json", "{}")

    assert schema_of("far/1", project) is None
    assert [schema_of(name) for name in schema_ids()] == [schema_of(name, project) for name in schema_ids()]
    assert "far/1" not in schema_ids(project)
    assert json.dumps(schema_ids(project)).count("near/1") == 1
