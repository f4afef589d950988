"""Documents have the right form and place, and a person's stay; the memory gets finished stories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.rehearsal import Rehearsal

from handoffd.rehearsal.assignment import Assignment, Counts, Report, hand_over
from handoffd.rehearsal.documents import bdd, bootstrap, contract, custom, sdd_delta, title, update_memory
from handoffd.rehearsal.workspace import Workspace


def assignment(step: str, story: str | None = "US-009", prompt: str = "") -> Assignment:
    """Return the first attempt at a step."""
    return Assignment(step, story, 1, "d-1", prompt)


def openapi(rehearsal: Rehearsal) -> Any:
    """Return the project's contract, parsed."""
    return yaml.safe_load(rehearsal.text("docs/api/openapi.yaml"))


def test_bootstrap_writes_what_is_missing_and_nothing_else(tmp_path: Path) -> None:
    """A person's document stays."""
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
    """The hand-off lists no changed file."""
    (foreign.root / "docs/bdd").mkdir()
    (foreign.root / "docs/bdd/US-009.md").write_text("# US-009 By hand\n")

    report = bdd(Workspace(str(foreign.root)), assignment("bdd"))

    assert ((), "# US-009 By hand\n") == (report.files, foreign.text("docs/bdd/US-009.md"))


def test_the_samples_contract_gets_its_path_and_schema(shop: Rehearsal) -> None:
    """It stays valid YAML and keeps its paths; there is the new schema, too."""
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
    """The person's words: from STATE.json, else from the prompt."""
    (foreign.root / ".ai").mkdir()
    (foreign.root / ".ai/STATE.json").write_text(json.dumps(state))

    report = custom(Workspace(str(foreign.root)), assignment("custom", "CUSTOM-17", prompt))

    assert ("docs/notes/CUSTOM-17.md",) == report.files
    assert foreign.text("docs/notes/CUSTOM-17.md").endswith(f"The instruction was:\n\n{expected}")


def test_a_story_has_the_title_of_the_memory(shop: Rehearsal) -> None:
    """The part before the colon; without an entry a title is made up."""
    workspace = Workspace(str(shop.root))

    found = [title(workspace, assignment("bdd", story)) for story in ("US-001", "US-002", "US-00")]

    assert ["Discount codes", "Bottle deposit", "a rehearsed story"] == found


ELEVEN = Counts(11)


def done(rehearsal: Rehearsal, story: str, tests: Counts = ELEVEN, commit: str | None = None) -> Report:
    """Hand over as the step before does, and update the memory."""
    workspace = Workspace(str(rehearsal.root))
    before = Assignment("verify", story, 1, "d-1", "")
    hand_over(workspace, before, Report(summary="it works", tests=tests, commit=commit))
    return update_memory(workspace, before._replace(step="update-memory"))


def test_a_story_moves_from_now_to_done(shop: Rehearsal) -> None:
    """NOW is cleared, TESTS and LOG get the facts of the step before, all else stays."""
    report = done(shop, "US-001", Counts(11, 0, 2), "abc123")

    assert (Counts(11, 0, 2), "abc123") == (report.tests, report.commit)
    assert """# Project memory

## NOW
- Nothing in progress

## NEXT
- US-002 Bottle deposit: a deposit is added for each bottle

## ISSUES
- [ ] The receipt has no date

## TESTS
- 11 pass, 0 fail, 2 skip

## DONE
- Baskets, totals and receipts
- US-001 Discount codes

## LOG
- The till adds up and prints
- US-001 done: 11 pass, 0 fail, 2 skip
""" == shop.text("PROJECT_MEMORY.md")
    assert "### US-001 Discount codes\n- tests: 11 pass, 0 fail, 2 skip\n- commit: abc123\n" in shop.text(
        ".ai/history.md"
    )


def test_missing_sections_are_added_and_similar_stories_kept(foreign: Rehearsal) -> None:
    """US-0099 is another story than US-009."""
    done(foreign, "US-009")

    text = foreign.text("PROJECT_MEMORY.md")
    assert "## DONE\n- US-0099 Another\n- US-009 Sort the list\n" in text
    assert ["## NOW", "## DONE", "## NEXT", "## TESTS", "## LOG"] == [
        x for x in text.splitlines() if x[:2] == "##"
    ]


def test_a_reopened_story_gets_another_entry(shop: Rehearsal) -> None:
    """Repeating the step adds nothing to the history; after a reopening it adds an entry."""
    done(shop, "US-001")
    done(shop, "US-001")
    assert 1 == shop.text(".ai/history.md").count("### US-001")
    with (shop.root / ".ai/history.md").open("a") as history:
        history.write("\n### Reopen\n- US-001 at impl\n")

    done(shop, "US-001")

    assert 2 == shop.text(".ai/history.md").count("### US-001")


@pytest.mark.parametrize(
    "facts",
    [
        "- Tests, measured last: 7 passed, 1 failed, 2 skipped\n- Commit: 0123abcd\n",
        "- 最近一次量測的測試結果：通過 7，失敗 1，略過 2\n- 提交：0123abcd\n",
    ],
)
def test_measured_facts_win_over_claims(shop: Rehearsal, facts: str) -> None:
    """The prompt has measured facts; the hand-off may be wrong."""
    workspace = Workspace(str(shop.root))
    before = Assignment("verify", "US-001", 1, "d-1", "")
    hand_over(workspace, before, Report("it works", tests=Counts(12), commit="fedc"))

    prompt = f"> - Tests: 99 passed, 0 failed, 0 skipped\n\n{facts}"
    report = update_memory(workspace, before._replace(step="update-memory", prompt=prompt))

    assert (Counts(7, 1, 2), "0123abcd") == (report.tests, report.commit)


def test_facts_of_another_story_are_not_used(shop: Rehearsal) -> None:
    """An old hand-off is ignored."""
    workspace = Workspace(str(shop.root))
    hand_over(workspace, Assignment("verify", "US-007", 1, "d", ""), Report("ok", tests=Counts(99)))

    report = update_memory(workspace, Assignment("update-memory", "US-001", 1, "d-1", ""))

    assert (Counts(), None) == (report.tests, report.commit)
