"""`group`: issues and findings, each group for one agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.generate import ROOT
from tests.support.jsonschemas import complaints
from tests.unit.kit.boards import board, given, row

from handoffd.errors import InvalidFile, NotFound
from handoffd.kit.findings import group

SCHEMA = json.loads((ROOT / "config/schema/groups/1.json").read_text("utf-8"))


def _groups(tmp_path: Path, params: dict[str, str], **words: Any) -> list[dict[str, Any]]:
    done = group(given(tmp_path / "w", params=params, words=words, flows=tmp_path / "flows"))
    data = json.loads(done.out["groups.json"])
    assert [] == complaints(data, SCHEMA)
    return list(data["groups"])


def _review(tmp_path: Path, *places: tuple[str, str]) -> None:
    findings = [
        {
            "id": f"F{n}",
            "file": file,
            "line": n,
            "severity": "low",
            "title": f"t{n}",
            "reason": "r",
            "dimension": d,
        }
        for n, (file, d) in enumerate(places, 1)
    ]
    rows = [row("dims[x]", "findings.json"), row("aggregate", "findings.json")]
    files = {"dims[x]/findings.json": {"findings": []}, "aggregate/findings.json": {"findings": findings}}
    board(tmp_path / "flows" / "review-cycle-1", rows, files)


def test_issues_are_grouped_in_their_order(tmp_path: Path) -> None:
    """The last group may be smaller; one that is named twice counts once."""
    found = _groups(tmp_path, {"issues": '["A", "B", "A", "C"]'}, size=2)

    assert [("G1", ["A", "B"]), ("G2", ["C"])] == [(one["id"], one["members"]) for one in found]


def test_findings_of_one_file_and_dimension_stay_together(tmp_path: Path) -> None:
    """Where they fit into a group; files and findings are in it for its planner."""
    _review(tmp_path, ("a", "x"), ("b", "x"), ("a", "x"), ("a", "y"), ("b", "x"))

    found = _groups(tmp_path, {}, size=3, **{"from": "review-cycle-1", "by": "file,dimension"})

    assert [["F1", "F3", "F4"], ["F2", "F5"]] == [one["members"] for one in found]
    assert [["a"], ["b"]] == [one["files"] for one in found]
    assert 3 == len(found[0]["findings"])


def test_more_findings_of_one_kind_than_a_group_has_are_split(tmp_path: Path) -> None:
    """None is lost."""
    _review(tmp_path, *[("a", "x")] * 5)

    found = _groups(tmp_path, {}, size=2, **{"from": "review-cycle-1", "by": "file"})

    assert [2, 2, 1] == [len(one["members"]) for one in found]


def test_what_cannot_be_grouped_is_refused(tmp_path: Path) -> None:
    """Another flow, and a key that is none."""
    _review(tmp_path, ("a", "x"))
    board(tmp_path / "flows" / "empty", [], {})

    with pytest.raises(NotFound, match=r"has no findings\.json"):
        _groups(tmp_path, {}, **{"from": "empty"})
    with pytest.raises(InvalidFile, match=r"unknown value 'colour' \(allowed: file, dimension\)"):
        _groups(tmp_path, {}, **{"from": "review-cycle-1", "by": "colour"})
