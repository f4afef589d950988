"""`merge-plans`: several plans become one without circles."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.generate import ROOT
from tests.support.jsonschemas import complaints
from tests.unit.kit.boards import board, given, row

from handoffd.errors import InvalidFile, Refused
from handoffd.kit.given import Answer, Done
from handoffd.kit.merging import Part, merge_plans, merged
from handoffd.kit.plans import circle_in, planned

DETECT = {"detect": "file,dependency,strategy"}


def _task(name: str, *needs: str, files: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"id": name, "title": name, "depends_on": list(needs), "files": list(files)}


def _merged(tmp_path: Path, plans: dict[str, Any], words: dict[str, Any], **rest: Any) -> tuple[Done, Any]:
    rows = [row(f"plan[{name}]", "plan.json") for name in plans]
    files = {f"plan[{name}]/plan.json": data for name, data in plans.items()}
    done = merge_plans(given(tmp_path / "w", board=board(tmp_path / "b", rows, files), words=words, **rest))
    return done, {name: json.loads(content) for name, content in done.out.items()}


CLASH = {
    "api": {"tasks": [_task("api-1", files=("main.py",))]},
    "web": {"tasks": [_task("web-1", files=("main.py", "web.py"))]},
}


def test_tasks_of_two_plans_that_share_a_file_come_one_after_the_other(tmp_path: Path) -> None:
    """The conflict is listed, and resolved in the order of the plans."""
    done, files = _merged(tmp_path, CLASH, DETECT)

    assert ("conflicts", {"tasks": 2, "conflicts": 1}) == (done.outcome, done.fields)
    assert ["api-1"] == files["plan.json"]["tasks"][1]["depends_on"]
    assert ("C1", "file", ["api-1", "web-1"]) == tuple(
        files["conflicts.json"]["conflicts"][0][key] for key in ("id", "kind", "tasks")
    )
    for name in ("plan", "conflicts"):
        schema = json.loads((ROOT / f"config/schema/{name}/1.json").read_text("utf-8"))
        assert [] == complaints(files[f"{name}.json"], schema)


def test_a_person_says_which_comes_first(tmp_path: Path) -> None:
    """Then the plan is clean."""
    answers = {"conflict": Answer("chosen", '["web-1"]')}
    done, files = _merged(tmp_path, CLASH, DETECT, answers=answers)

    assert "clean" == done.outcome
    assert [["web-1"], []] == [task["depends_on"] for task in files["plan.json"]["tasks"]]


def test_tasks_that_wait_for_each_other_anyway_are_no_conflict(tmp_path: Path) -> None:
    """Nor are two of one plan."""
    plans = {
        "a": {"tasks": [_task("a-1", files=("x",)), _task("a-2", files=("x",))]},
        "b": {"tasks": [_task("b-1", "a-2", "a-1", files=("x",))]},
    }

    assert "clean" == _merged(tmp_path, plans, DETECT)[0].outcome


def test_needs_that_lead_nowhere_or_back_are_left_out(tmp_path: Path) -> None:
    """And listed as conflicts of dependencies."""
    plans = {
        "a": {"tasks": [_task("a-1", "b-1"), _task("a-2", "c-9")]},
        "b": {"tasks": [_task("b-1", "a-1")]},
    }
    files = _merged(tmp_path, plans, DETECT)[1]

    assert ["dependency", "dependency"] == [one["kind"] for one in files["conflicts.json"]["conflicts"]]
    assert [["b-1"], [], []] == [task["depends_on"] for task in files["plan.json"]["tasks"]]


def test_two_plans_that_decide_differently_are_listed(tmp_path: Path) -> None:
    """Topics are compared by their words; the kinds that were not asked for are left out."""
    plans = {
        "a": {"tasks": [_task("a-1")], "decisions": [{"topic": "Storage", "choice": "files"}]},
        "b": {"tasks": [_task("b-1")], "decisions": [{"topic": "storage ", "choice": "a database"}]},
    }

    found = _merged(tmp_path, plans, DETECT)[1]["conflicts.json"]["conflicts"]
    assert ["storage: a takes files; b takes a database"] == [one["what"] for one in found]
    assert "clean" == _merged(tmp_path, plans, {"detect": "file"})[0].outcome
    with pytest.raises(InvalidFile, match=r"unknown value 'style' \(allowed: file"):
        _merged(tmp_path, plans, {"detect": "style"})


def test_one_id_in_two_plans_is_refused(tmp_path: Path) -> None:
    """Which of the two would another task need?"""
    with pytest.raises(InvalidFile, match="T1: this id is also in the plan of 'a'"):
        _merged(tmp_path, {"a": {"tasks": [_task("T1")]}, "b": {"tasks": [_task("T1")]}}, DETECT)


@pytest.mark.parametrize("seed", range(60))
def test_merged_plans_have_no_circle(seed: int) -> None:
    """Whatever the plans need and share; and tasks of two plans with a common file are in an order."""
    chance = Random(seed)
    names = [f"{part}-{number}" for part in "abc" for number in range(4)]
    parts = [
        Part(
            name=part,
            file="f",
            tasks=tuple(
                planned(
                    {
                        "tasks": [
                            _task(
                                name,
                                *chance.sample(names, 2),
                                files=tuple(chance.sample(["x", "y", "z"], chance.randrange(3))),
                            )
                            for name in names
                            if name.startswith(part)
                        ]
                    },
                    "f",
                )
            ),
        )
        for part in "abc"
    ]

    tasks, _ = merged(parts, chance.sample(names, 3), ())

    assert [] == circle_in(tasks)
    alone = {task.id: task for task in tasks}
    for left, right in pairwise(sorted(alone)):
        if left[0] != right[0] and set(alone[left].files) & set(alone[right].files):
            assert _waits(alone, left, right) or _waits(alone, right, left)


def _waits(tasks: dict[str, Any], one: str, other: str) -> bool:
    return any(need == other or _waits(tasks, need, other) for need in tasks[one].depends_on)


def test_plans_of_flows_are_put_behind_each_other(tmp_path: Path) -> None:
    """With several, ids tell which plan they are of."""
    for name in ("f-1", "f-2"):
        data = {"tasks": [_task("T1"), _task("T2", "T1")]}
        board(tmp_path / "flows" / name, [row("plan", "plan.json")], {"plan/plan.json": data})

    def ids(*flows: str) -> list[tuple[str, list[str]]]:
        params = {"plans": json.dumps(flows)}
        done = merge_plans(given(tmp_path / "w", flows=tmp_path / "flows", params=params))
        return [(task["id"], task["depends_on"]) for task in json.loads(done.out["plan.json"])["tasks"]]

    assert [("T1", []), ("T2", ["T1"])] == ids("f-1")
    assert ["p1-T1", "p1-T2", "p2-T1", "p2-T2"] == [name for name, _ in ids("f-1", "f-2")]
    assert ["p2-T1"] == ids("f-1", "f-2")[3][1]


def test_groups_that_share_a_file_come_one_after_the_other(tmp_path: Path) -> None:
    """Groups without a plan are left out."""
    groups = {"groups": [{"id": f"G{n}", "members": ["F"], "files": [f"{n}.py"]} for n in (1, 2, 3, 4)]}
    plans = {
        "G1": {"tasks": [_task("T1", files=("shared.py",))]},
        "G2": {"tasks": [_task("T1", files=("other.py",))]},
        "G4": {"tasks": [_task("T1", files=("shared.py",))]},
    }
    rows = [row("batches", "groups.json"), *(row(f"plan[{name}]", "plan.json") for name in plans)]
    files: dict[str, object] = {f"plan[{name}]/plan.json": data for name, data in plans.items()}
    one = board(tmp_path / "b", rows, {"batches/groups.json": groups, **files})

    done = merge_plans(given(tmp_path / "w", board=one, words={"serialize_same_file": True}))
    found = json.loads(done.out["groups.json"])["groups"]

    assert [("G1", []), ("G2", []), ("G4", ["G1"])] == [(one["id"], one["after"]) for one in found]
    assert ["1.py", "shared.py"] == found[0]["files"]


def test_without_a_plan_there_is_nothing_to_merge(tmp_path: Path) -> None:
    """The board is named."""
    with pytest.raises(Refused, match=r"no plan\.json"):
        merge_plans(given(tmp_path, words={}))
