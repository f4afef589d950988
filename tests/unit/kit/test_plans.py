"""Plans as lists of tasks, and `plan-check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.kit.boards import board, given, row

from handoffd.errors import InvalidFile, NotFound
from handoffd.kit.given import Done
from handoffd.kit.plans import check_needs, plan_check, planned


def _task(name: str, *needs: str, files: tuple[str, ...] = ("a.py",)) -> dict[str, Any]:
    return {"id": name, "title": name, "depends_on": list(needs), "files": list(files)}


def _checked(tmp_path: Path, file: str, data: object) -> Done:
    board(tmp_path / "flows" / "f-1", [row("plan", file)], {f"plan/{file}": data})
    return plan_check(given(tmp_path / "w", flows=tmp_path / "flows", words={"flow": "f-1"}))


def test_a_sound_plan_passes(tmp_path: Path) -> None:
    """A task without files is a doubt, which is named."""
    assert "pass" == _checked(tmp_path, "plan.json", {"tasks": [_task("T1"), _task("T2", "T1")]}).outcome
    doubtful = _checked(tmp_path, "plan.json", {"tasks": [_task("T1", files=())]})
    assert ("warned", {"tasks": 1, "doubts": 1}) == (doubtful.outcome, doubtful.fields)
    assert "T1 names no files" in doubtful.summary


@pytest.mark.parametrize(
    ("file", "data"),
    [
        (
            "task-analysis.json",
            {"tasks": [{"id": "T1", "blocked_by": []}, {"id": "T2", "blocked_by": ["T1"]}]},
        ),
        ("queue.json", {"queue": [{"id": "GH-1", "depends_on": []}]}),
        ("roadmap.json", {"units": [{"id": "U1", "depends_on": []}]}),
    ],
)
def test_every_kind_of_list_is_a_plan(tmp_path: Path, file: str, data: object) -> None:
    """Whatever its keys are called."""
    assert "warned" == _checked(tmp_path, file, data).outcome


def test_needs_lead_to_tasks_and_in_no_circle() -> None:
    """Both are refused with the tasks."""
    with pytest.raises(InvalidFile, match=r"T1\.depends_on: there is no task 'T9' \(allowed: T1\)"):
        check_needs(planned({"tasks": [_task("T1", "T9")]}, "plan.json"), "plan.json")
    with pytest.raises(InvalidFile, match="goes round in a circle"):
        check_needs(planned({"tasks": [_task("A", "B"), _task("B", "A")]}, "plan.json"), "plan.json")
    with pytest.raises(InvalidFile, match="'A' is there twice"):
        planned({"tasks": [_task("A"), _task("A")]}, "plan.json")
    with pytest.raises(InvalidFile, match=r"tasks\[0\]\.files"):
        planned({"tasks": [_task("A", files=("../x",))]}, "plan.json")


def test_a_flow_without_a_plan_is_named(tmp_path: Path) -> None:
    """With the files that would be one."""
    board(tmp_path / "flows" / "f-1", [row("a", "other.json")], {})

    with pytest.raises(NotFound, match=r"the flow 'f-1' has no plan: none of plan\.json"):
        plan_check(given(tmp_path / "w", flows=tmp_path / "flows", words={"flow": "f-1"}))
