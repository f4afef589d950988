"""JSON Schemas: generated, up to date on disk, and true of the files they describe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.generate import ROOT, main
from tests.support.schemas import schemas

from handoffd.protocol.handoff import FrontMatter
from handoffd.protocol.rule_merge import RULEBOOK, Family, Table
from handoffd.protocol.state import Reason, State, Status, render_state
from handoffd.settings.model import ProjectSettings, Settings

FOLDER = ROOT / "config" / "schema"


def test_every_schema_on_disk_is_generated() -> None:
    """A renamed schema takes its old file with it."""
    assert sorted(schemas()) == sorted(path.name for path in FOLDER.glob("*.json"))


@pytest.mark.parametrize("name", sorted(schemas()))
def test_every_schema_says_what_it_is(name: str) -> None:
    """Title, description and dialect, for editors."""
    schema = schemas()[name]

    assert all(isinstance(schema[key], str) and schema[key] for key in ("$schema", "title", "description"))


def test_the_state_schema_names_every_field() -> None:
    """With a description each, and the values that are allowed."""
    schema = schemas()["state.schema.json"]

    assert list(State.model_fields) == list(schema["properties"])
    assert all("description" in field for field in schema["properties"].values())
    assert ["project", "step", "status"] == schema["required"]
    assert [list(Status), list(Reason)] == [schema["$defs"][name]["enum"] for name in ("Status", "Reason")]
    assert list(json.loads(render_state(State(project="p")))) == list(schema["properties"])


def test_the_front_matter_schema_requires_nothing() -> None:
    """Every field is described; every one may be missing."""
    schema = schemas()["handoff.schema.json"]

    assert list(FrontMatter.model_fields) == list(schema["properties"])
    assert all("description" in field for field in schema["properties"].values())
    assert "required" not in schema


def test_settings_that_have_a_default_elsewhere_are_not_required() -> None:
    """A file need not name the folders that follow from the user's environment."""
    daemon, project = schemas()["settings.schema.json"], schemas()["project-settings.schema.json"]

    assert [list(Settings.model_fields), list(ProjectSettings.model_fields)] == [
        list(daemon["properties"]), list(project["properties"])
    ]  # fmt: skip
    assert "required" not in daemon
    assert daemon["additionalProperties"] is False


def test_the_step_rules_schema_allows_what_the_reader_reads() -> None:
    """The same keys, none of them required: a file may hold any part of a table."""
    schema = schemas()["step-rules.schema.json"]
    steps, pipelines = RULEBOOK.keys["steps"], RULEBOOK.keys["pipelines"]
    assert isinstance(steps, Family)
    assert isinstance(steps.member, Table)
    assert isinstance(pipelines, Family)
    assert isinstance(pipelines.member, Table)
    on_fail = steps.member.keys["on_fail"]
    assert isinstance(on_fail, Table)

    rule = schema["$defs"]["Rule"]
    assert set(steps.member.keys) == set(rule["properties"])
    assert set(pipelines.member.keys) == set(schema["$defs"]["Pipeline"]["properties"])
    assert set(on_fail.keys) == set(rule["properties"]["on_fail"]["properties"])
    assert all("required" not in part for part in (schema, *schema["$defs"].values()))


def test_drift_is_reported_and_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--check` fails on a file that is missing or old, and changes nothing; without it, it is written."""
    missing, old, good = tmp_path / "new" / "a", tmp_path / "b", tmp_path / "c"
    old.write_text("before")
    good.write_text("c")
    generated = {missing: lambda: "a", old: lambda: "b", good: lambda: "c"}

    assert 1 == main(["--check"], generated)
    assert (False, "before") == (missing.exists(), old.read_text())
    assert "make schema" in capsys.readouterr().out
    assert 0 == main([], generated)
    assert ("a", "b", "c") == (missing.read_text(), old.read_text(), good.read_text())
    assert 0 == main(["--check"], generated)
