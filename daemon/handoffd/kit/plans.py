"""Plans as lists of tasks: read from whatever a flow has made, and checked. `plan-check` says what it found.

Several files are lists of tasks under other names: a plan, the tasks of a team, a queue, a roadmap, debt. All
become one form here, so that what works off a plan knows one only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from msgspec import Struct

from handoffd.engine.wording import counted
from handoffd.errors import NotFound
from handoffd.kit.given import Board, Done, Given, id_of, invalid, objects, path_of, texts_of

FORMS: Final[Mapping[str, tuple[str, str]]] = {
    "plan.json": ("tasks", "depends_on"),
    "task-analysis.json": ("tasks", "blocked_by"),
    "breakdown.json": ("tasks", "depends_on"),
    "queue.json": ("queue", "depends_on"),
    "debt.json": ("queue", "depends_on"),
    "roadmap.json": ("units", "depends_on"),
}
"""By the name of a file: the keys of its list and of what a task depends on. The first one found counts."""


class Planned(Struct, frozen=True, kw_only=True):
    """One task of a plan; `row` is as it was written."""

    id: str
    title: str
    depends_on: tuple[str, ...]
    files: tuple[str, ...]
    row: Mapping[str, Any]

    def as_data(self) -> dict[str, Any]:
        """Return it as the schema plan/1 has it, and further keys of its row."""
        rest = {name: value for name, value in self.row.items() if name != "blocked_by"}
        return {
            **rest, "id": self.id, "title": self.title, "depends_on": list(self.depends_on),
            "files": list(self.files),
        }  # fmt: skip


def planned(data: object, file: str, key: str = "tasks", needs: str = "depends_on") -> list[Planned]:
    """Return the tasks of a file, found sound. Raises InvalidFile."""
    found: list[Planned] = []
    for at, row in enumerate(objects(data, file, key)):
        where = f"{key}[{at}]"
        one = id_of(row, file, where)
        if any(one == other.id for other in found):
            invalid(file, f"{where}.id", f"'{one}' is there twice")
        files = (path_of(path, file, f"{where}.files") for path in texts_of(row, "files", file, where))
        found.append(
            Planned(
                id=one,
                title=str(row.get("title") or one),
                depends_on=tuple(dict.fromkeys(texts_of(row, needs, file, where))),
                files=tuple(dict.fromkeys(files)),
                row=row,
            )
        )
    return found


def plan_of(board: Board, flow: str) -> tuple[str, list[Planned]]:
    """Return the plan on a board, and its file. Raises NotFound and InvalidFile."""
    for name, (key, needs) in FORMS.items():
        whole = [file for entry, file in board.named(name) if entry.item is None]
        if whole:
            return whole[-1], planned(board.json(whole[-1]), whole[-1], key, needs)
    raise NotFound(f"the flow '{flow}' has no plan: none of {', '.join(FORMS)}")


def check_needs(tasks: Sequence[Planned], file: str) -> None:
    """Refuse a need that is not in the plan, and needs that go round in a circle. Raises InvalidFile."""
    known = {task.id for task in tasks}
    for task in tasks:
        unknown = [one for one in task.depends_on if one not in known]
        if unknown:
            invalid(file, f"{task.id}.depends_on", f"there is no task '{unknown[0][:80]}'", sorted(known))
    circle = circle_in(tasks)
    if circle:
        invalid(file, f"{circle[0]}.depends_on", f"goes round in a circle: {' → '.join(circle)}")


def circle_in(tasks: Iterable[Planned]) -> list[str]:
    """Return the ids of tasks that need each other in a circle; empty where there is none."""
    try:
        TopologicalSorter({task.id: task.depends_on for task in tasks}).prepare()
    except CycleError as error:
        return [str(one) for one in error.args[1]]
    return []


def plan_check(given: Given) -> Done:
    """Check the plan of another flow: errors are refused, doubts are a warning."""
    flow = given.words["flow"]
    file, tasks = plan_of(given.of_flow(flow), flow)
    check_needs(tasks, file)
    doubts = [f"{task.id} names no files: it may clash with any other" for task in tasks if not task.files]
    doubts += ["the plan is empty"] if not tasks else []
    summary = "\n".join([f"{counted(len(tasks), 'task')}, {counted(len(doubts), 'doubt')}.", *doubts[:20]])
    fields = {"tasks": len(tasks), "doubts": len(doubts)}
    return Done(outcome="warned" if doubts else "pass", fields=fields, summary=summary)
