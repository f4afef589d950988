"""`issues-append` and `bind`: issues as files, each once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.generate import ROOT
from tests.support.jsonschemas import complaints
from tests.unit.kit.boards import board, given, row

from handoffd.errors import InvalidFile, Refused
from handoffd.kit.given import Done
from handoffd.kit.issues import bind, issues_append

SCHEMA = json.loads((ROOT / "config/schema/issues/1.json").read_text("utf-8"))


def _unit(name: str, *needs: str, effort: str = "small", wave: int = 1) -> dict[str, Any]:
    return {
        "id": name, "title": f"Title: {name}", "wave": wave, "depends_on": list(needs), "effort": effort,
        "files": [f"{name}.py"], "criteria": ["It is fast"], "verification": ["make bench"], "done": ["Seen"],
    }  # fmt: skip


def _published(
    root: Path, *units: dict[str, Any], today: str = "2026-01-31"
) -> tuple[Done, list[dict[str, Any]]]:
    root.mkdir(exist_ok=True)
    (root / "roadmap.json").write_text(json.dumps({"units": units}))
    done = issues_append(given(root, words={"roadmap": "roadmap.json"}, today=today))
    for path, content in done.writes.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    data = json.loads(done.out["issues.json"])
    assert [] == complaints(data, SCHEMA)
    return done, data["issues"]


def test_each_unit_becomes_an_issue(tmp_path: Path) -> None:
    """With the ids of the issues in place of the units', and the priority by effort."""
    _, issues = _published(tmp_path, _unit("U1"), _unit("U2", "U1", effort="large", wave=2))

    assert [("ISS-20260131-001", 4, 1, []), ("ISS-20260131-002", 2, 2, ["ISS-20260131-001"])] == [
        (one["id"], one["priority"], one["wave"], one["depends_on"]) for one in issues
    ]
    text = (tmp_path / "docs/issues/ISS-20260131-002.md").read_text()
    head = yaml.safe_load(text.split("---\n")[1])
    assert ("Title: U2", ["ISS-20260131-001"]) == (head["title"], head["depends_on"])
    assert "## How to verify it\n\n- make bench\n" in text


def test_no_issue_is_made_twice(tmp_path: Path) -> None:
    """On another day, in another order, in another wave: a unit is known by its content."""
    first = _published(tmp_path, _unit("U1"), _unit("U2"))[1]
    done, again = _published(
        tmp_path, _unit("U2", "U1", wave=3), _unit("U1"), _unit("U3"), today="2026-02-01"
    )

    assert {"made": 1, "known": 2} == done.fields
    assert [first[1]["id"], first[0]["id"], "ISS-20260201-001"] == [one["id"] for one in again]


def test_numbers_that_are_taken_are_passed_over(tmp_path: Path) -> None:
    """Also by an issue that a person wrote."""
    (tmp_path / "docs/issues").mkdir(parents=True)
    (tmp_path / "docs/issues/ISS-20260131-001.md").write_text("mine")

    assert ["ISS-20260131-002"] == [one["id"] for one in _published(tmp_path, _unit("U1"))[1]]
    assert "mine" == (tmp_path / "docs/issues/ISS-20260131-001.md").read_text()


def test_units_that_need_each_other_make_no_issue(tmp_path: Path) -> None:
    """Nothing is written."""
    with pytest.raises(InvalidFile, match="circle"):
        _published(tmp_path, _unit("U1", "U2"), _unit("U2", "U1"))
    assert not (tmp_path / "docs").exists()


def _solution(issue: str, *files: str) -> dict[str, Any]:
    return {"issue": issue, "approach": "a", "tasks": [{"id": "S1", "title": "t", "files": list(files)}]}


def _bound(tmp_path: Path, **groups: list[dict[str, Any]]) -> Done:
    rows = [row(f"plan[{name}]", "solutions.json") for name in groups]
    files = {f"plan[{name}]/solutions.json": {"solutions": found} for name, found in groups.items()}
    return bind(given(tmp_path / "w", board=board(tmp_path / "b", rows, files)))


def test_each_solution_is_written_beside_its_issue(tmp_path: Path) -> None:
    """Of all groups."""
    done = _bound(tmp_path, G1=[_solution("GH-1", "a.py")], G2=[_solution("GH-2", "b.py")])

    assert ("pass", {"bound": 2, "overlaps": 0}) == (done.outcome, done.fields)
    assert ["docs/issues/GH-1.solution.json", "docs/issues/GH-2.solution.json"] == list(done.writes)


def test_solutions_that_change_one_file_are_named(tmp_path: Path) -> None:
    """They are bound all the same."""
    done = _bound(tmp_path, G1=[_solution("GH-1", "a.py", "b.py"), _solution("GH-2", "b.py")])

    assert ("overlap", 2) == (done.outcome, len(done.writes))
    assert "b.py: GH-1, GH-2" in done.summary


def test_an_issue_whose_name_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    """And a board without solutions."""
    with pytest.raises(Refused, match="cannot name an issue"):
        _bound(tmp_path, G1=[_solution("../../x", "a.py")])
    with pytest.raises(Refused, match=r"no solutions\.json"):
        bind(given(tmp_path))
