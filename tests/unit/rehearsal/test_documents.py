"""Documents are in the right form and place, and a person's are left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.rehearsal import Rehearsal

from handoffd.rehearsal.assignment import Assignment
from handoffd.rehearsal.documents import bdd, bootstrap, contract, custom, sdd_delta, title
from handoffd.rehearsal.workspace import Workspace


def assignment(step: str, story: str | None = "US-009", prompt: str = "") -> Assignment:
    """Return the first attempt at a step."""
    return Assignment(step, story, 1, "d-1", prompt)


def openapi(rehearsal: Rehearsal) -> Any:
    """Return the project's contract, parsed."""
    return yaml.safe_load(rehearsal.text("docs/api/openapi.yaml"))


def test_bootstrap_writes_what_is_missing_and_nothing_else(tmp_path: Path) -> None:
    """In an empty folder all of it; then nothing more, whatever a person has made of it."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/sdd.md").write_text("# By hand\n")

    report = bootstrap(Workspace(str(tmp_path)), assignment("bootstrap", None))

    expected = {"PROJECT_CONTEXT.md", "PROJECT_MEMORY.md", "docs/constitution.md", "docs/nfr.md"}
    assert expected == set(report.files)
    assert expected == {name for name in expected if (tmp_path / name).is_file()}
    assert {"bdd", "deltas", "api"} == {path.name for path in (tmp_path / "docs").iterdir() if path.is_dir()}
    assert "# By hand\n" == (tmp_path / "docs/sdd.md").read_text()


@pytest.mark.parametrize("project", ["shop", "foreign"])
def test_scenarios_and_changes_keep_the_form(project: str, request: pytest.FixtureRequest) -> None:
    """RFC 2119 words, a level for each scenario, Non-Goals; three kinds of change."""
    rehearsal: Rehearsal = request.getfixturevalue(project)
    story = "US-001" if project == "shop" else "US-009"
    workspace = Workspace(str(rehearsal.root))

    bdd(workspace, assignment("bdd", story))
    sdd_delta(workspace, assignment("sdd-delta", story))

    scenarios = rehearsal.text(f"docs/bdd/{story}.md")
    headings = [line for line in scenarios.splitlines() if line.startswith("### Scenario:")]
    assert all(line.endswith(("@unit", "@integration")) for line in headings)
    assert 2 <= len(headings) <= 4
    assert ("MUST" in scenarios, "## Non-Goals" in scenarios, "[P]" in scenarios) == (True, True, False)
    changes = rehearsal.text(f"docs/deltas/{story}.md")
    assert ["## ADDED", "## MODIFIED", "## REMOVED"] == [
        x for x in changes.splitlines() if x.startswith("## ")
    ]


def test_a_persons_scenarios_are_left_alone(foreign: Rehearsal) -> None:
    """Then nothing is claimed to have changed either."""
    (foreign.root / "docs/bdd").mkdir()
    (foreign.root / "docs/bdd/US-009.md").write_text("# US-009 By hand\n")

    report = bdd(Workspace(str(foreign.root)), assignment("bdd"))

    assert ((), "# US-009 By hand\n") == (report.files, foreign.text("docs/bdd/US-009.md"))


def test_the_samples_contract_gets_its_path_and_schema(shop: Rehearsal) -> None:
    """It stays valid YAML, what was there stays, and the reference leads to the new schema."""
    before = openapi(shop)

    contract(Workspace(str(shop.root)), assignment("contract", "US-001"))

    after = openapi(shop)
    assert {"/baskets/{basket}/discount"} == after["paths"].keys() - before["paths"].keys()
    assert {"DiscountCode"} == after["components"]["schemas"].keys() - before["components"]["schemas"].keys()
    assert before["paths"].items() <= after["paths"].items()


@pytest.mark.parametrize(
    "present", ["openapi: 3.1.0\npaths: {}\n", "openapi: 3.1.0\npaths:\n  /a: {}\n", None]
)
def test_any_contract_gets_a_path(foreign: Rehearsal, present: str | None) -> None:
    """An empty list of paths, a list with entries, no document at all."""
    file = foreign.root / "docs/api/openapi.yaml"
    file.unlink() if present is None else file.write_text(present)

    report = contract(Workspace(str(foreign.root)), assignment("contract"))

    assert ("docs/api/openapi.yaml",) == report.files
    assert "/rehearsal/US-009" in openapi(foreign)["paths"]


def test_a_contract_of_another_form_is_left_alone(foreign: Rehearsal) -> None:
    """The addition is written beside a document that cannot be extended line by line."""
    (foreign.root / "docs/api/openapi.yaml").write_text('{"openapi": "3.1.0", "paths": {"/a": {}}}\n')

    report = contract(Workspace(str(foreign.root)), assignment("contract"))

    assert ("docs/api/US-009.yaml",) == report.files
    assert {"/a"} == openapi(foreign)["paths"].keys()


@pytest.mark.parametrize(
    ("state", "prompt", "expected"),
    [
        ({"human_note": "Sort the list\nby name"}, "> no", "> Sort the list\n> by name\n"),
        ({}, "Do:\n\n> Sort the list\n\nThen stop.", "> Sort the list\n"),
        ({}, "Sort the list", "> Sort the list\n"),
    ],
)
def test_a_custom_task_is_noted(foreign: Rehearsal, state: object, prompt: str, expected: str) -> None:
    """The person's words, from where they are said most clearly."""
    (foreign.root / ".ai").mkdir()
    (foreign.root / ".ai/STATE.json").write_text(json.dumps(state))

    report = custom(Workspace(str(foreign.root)), assignment("custom", "CUSTOM-17", prompt))

    assert ("docs/notes/CUSTOM-17.md",) == report.files
    assert foreign.text("docs/notes/CUSTOM-17.md").endswith(f"The instruction was:\n\n{expected}")


def test_a_story_is_called_what_the_memory_calls_it(shop: Rehearsal) -> None:
    """The part before the colon; without an entry a story still has a name."""
    workspace = Workspace(str(shop.root))

    found = [title(workspace, assignment("bdd", story)) for story in ("US-001", "US-002", "US-00")]

    assert ["Discount codes", "Bottle deposit", "a rehearsed story"] == found
