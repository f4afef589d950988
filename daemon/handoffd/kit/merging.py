"""`merge-plans`: several plans become one, whose tasks never wait for each other in a circle.

Where tasks of two plans touch one file, the later one waits for the earlier. Plans are taken in the order of
the board, tasks in the order of their plan, so the same plans always become the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from handoffd.engine.wording import counted
from handoffd.errors import Refused
from handoffd.kit.given import Done, Given, as_json, id_of, invalid, objects
from handoffd.kit.plans import Planned, check_needs, plan_of, planned

PLAN: Final = "plan.json"
GROUPS: Final = "groups.json"
CONFLICTS: Final = "conflicts.json"
KINDS: Final = ("file", "dependency", "strategy")


class Part(Struct, frozen=True, kw_only=True):
    """One plan of several."""

    name: str
    file: str
    tasks: tuple[Planned, ...]
    decisions: tuple[tuple[str, str], ...] = ()


def merge_plans(given: Given) -> Done:
    """Merge the plans of the board; with the parameter `plans`, the ones of other flows."""
    if given.words.get("serialize_same_file"):
        return _groups(given)
    if "plans" in given.params:
        return _of_flows(given)
    return _of_board(given, _kinds(given.words.get("detect")))


def _kinds(said: str | None) -> tuple[str, ...]:
    kinds = tuple(said.split(",")) if said else ()
    for one in kinds:
        if one not in KINDS:
            invalid("--detect", "", f"unknown value '{one[:80]}'", KINDS)
    return kinds


# --- plans of areas, with their conflicts -------------------------------------------------------------
def _of_board(given: Given, kinds: tuple[str, ...]) -> Done:
    parts = parts_of(given)
    answer = given.answers.get("conflict")
    order = answer.words if answer is not None and answer.choice == "chosen" else ()
    tasks, conflicts = merged(parts, order, kinds)
    data = {"tasks": [task.as_data() for task in tasks], "decisions": _decisions(parts)}
    settled = not kinds or not conflicts or bool(order)
    summary = f"{counted(len(tasks), 'task')}, {counted(len(conflicts), 'conflict')}."
    return Done(
        outcome=("clean" if kinds else "pass") if settled else "conflicts",
        fields={"tasks": len(tasks), "conflicts": len(conflicts)},
        summary="\n".join(
            [summary, *(f"{one['id']}: {one['what']}; {one['resolution']}" for one in conflicts)]
        ),
        out={PLAN: as_json(data), CONFLICTS: as_json({"conflicts": conflicts})},
    )


def parts_of(given: Given) -> list[Part]:
    """Return the plans on the board, one for each item. Raises Refused and InvalidFile."""
    parts = []
    for entry, file in given.board.named(PLAN):
        data = given.board.json(file)
        rows = data.get("decisions") if isinstance(data, dict) else None
        said = [one for one in rows or () if isinstance(one, dict)] if isinstance(rows, list) else []
        decisions = tuple((str(one.get("topic", "")), str(one.get("choice", ""))) for one in said)
        parts.append(
            Part(
                name=entry.item or entry.task,
                file=file,
                tasks=tuple(planned(data, file)),
                decisions=decisions,
            )
        )
    if not parts:
        raise Refused(f"the board has no {PLAN}")
    return parts


def merged(
    parts: Sequence[Part], order: Sequence[str], kinds: Sequence[str]
) -> tuple[list[Planned], list[dict[str, Any]]]:
    """Return the tasks of all plans, and where these did not go together. Raises InvalidFile.

    `order` names tasks: of two that clash, the one that is named earlier comes first.
    """
    tasks: dict[str, Planned] = {}
    origin: dict[str, str] = {}
    for part in parts:
        for task in part.tasks:
            if task.id in tasks:
                invalid(part.file, f"{task.id}", f"this id is also in the plan of '{origin[task.id]}'")
            tasks[task.id], origin[task.id] = task, part.name
    found = _unknown_needs(tasks)
    found += _circles(tasks)
    found += _same_files(tasks, origin, order)
    found += _strategies(parts)
    wanted = [one for one in found if not kinds or one["kind"] in kinds]
    return list(tasks.values()), [{"id": f"C{number}", **one} for number, one in enumerate(wanted, 1)]


def _unknown_needs(tasks: dict[str, Planned]) -> list[dict[str, Any]]:
    found = []
    for task in list(tasks.values()):
        unknown = [one for one in task.depends_on if one not in tasks]
        if unknown:
            kept = tuple(one for one in task.depends_on if one in tasks)
            tasks[task.id] = replace(task, depends_on=kept)
            what = f"{task.id} needs {', '.join(unknown)}, which no plan has"
            found.append(_conflict("dependency", [task.id], what, "the need was left out"))
    return found


def _circles(tasks: dict[str, Planned]) -> list[dict[str, Any]]:
    """Leave out each need that closes a circle, the later tasks' first."""
    found = []
    needs: dict[str, set[str]] = {name: set() for name in tasks}
    for task in list(tasks.values()):
        closing = [one for one in task.depends_on if _reaches(needs, one, task.id)]
        needs[task.id] = {one for one in task.depends_on if one not in closing}
        if closing:
            kept = tuple(one for one in task.depends_on if one not in closing)
            tasks[task.id] = replace(task, depends_on=kept)
            what = f"{task.id} and {', '.join(closing)} need each other"
            found.append(_conflict("dependency", [task.id, *closing], what, f"{task.id} no longer waits"))
    return found


def _reaches(needs: dict[str, set[str]], start: str, aim: str) -> bool:
    """Return whether `start` needs `aim`, directly or through others."""
    seen, open_ = set[str](), [start]
    while open_:
        one = open_.pop()
        if one == aim:
            return True
        if one not in seen:
            seen.add(one)
            open_ += needs.get(one, ())
    return False


def _same_files(
    tasks: dict[str, Planned], origin: dict[str, str], order: Sequence[str]
) -> list[dict[str, Any]]:
    """Let one of two tasks wait that touch one file and belong to two plans."""
    found = []
    rank = {name: at for at, name in enumerate(order)}
    needs = {name: set(task.depends_on) for name, task in tasks.items()}
    for left, right in combinations(list(tasks), 2):
        common = sorted(set(tasks[left].files) & set(tasks[right].files))
        if not common or origin[left] == origin[right]:
            continue
        if _reaches(needs, left, right) or _reaches(needs, right, left):
            continue
        last = len(order)
        first, second = (right, left) if rank.get(right, last) < rank.get(left, last) else (left, right)
        needs[second].add(first)
        later = tasks[second]
        tasks[second] = replace(later, depends_on=(*later.depends_on, first))
        what = f"{first} and {second} change {', '.join(common[:5])}"
        found.append(_conflict("file", [first, second], what, f"{second} comes after {first}"))
    return found


def _strategies(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the topics that two plans decide in different ways."""
    chosen: dict[str, dict[str, list[Part]]] = {}
    for part in parts:
        for topic, choice in part.decisions:
            chosen.setdefault(topic.strip().casefold(), {}).setdefault(choice.strip(), []).append(part)
    return [
        _conflict(
            "strategy",
            [part.tasks[0].id for parts in choices.values() for part in parts if part.tasks],
            f"{topic}: " + "; ".join(f"{parts[0].name} takes {choice}" for choice, parts in choices.items()),
            "both are in the plan: a person has to choose",
        )
        for topic, choices in chosen.items()
        if len(choices) > 1
    ]


def _conflict(kind: str, tasks: Iterable[str], what: str, resolution: str) -> dict[str, Any]:
    return {"kind": kind, "tasks": list(dict.fromkeys(tasks)), "what": what, "resolution": resolution}


def _decisions(parts: Sequence[Part]) -> list[dict[str, str]]:
    pairs = dict.fromkeys(pair for part in parts for pair in part.decisions)
    return [{"topic": topic, "choice": choice} for topic, choice in pairs if topic and choice]


# --- plans of other flows -----------------------------------------------------------------------------
def _of_flows(given: Given) -> Done:
    """Put the plans of flows behind each other; of several, ids begin with the number of the plan."""
    flows = given.param_list("plans")
    tasks: list[Planned] = []
    for number, flow in enumerate(flows, 1):
        file, found = plan_of(given.of_flow(flow), flow)
        check_needs(found, file)
        prefix = f"p{number}-" if len(flows) > 1 else ""
        for task in found:
            needs = tuple(f"{prefix}{one}" for one in task.depends_on)
            tasks.append(
                replace(task, id=id_of({"id": f"{prefix}{task.id}"}, file, task.id), depends_on=needs)
            )
    summary = f"{counted(len(tasks), 'task')} of {counted(len(flows), 'plan')}."
    out = {PLAN: as_json({"tasks": [task.as_data() for task in tasks]})}
    return Done(fields={"tasks": len(tasks)}, summary=summary, out=out)


# --- plans of groups ----------------------------------------------------------------------------------
def _groups(given: Given) -> Done:
    """Return the groups that have a plan; one that shares a file with an earlier one comes after it."""
    plans = {part.name: part for part in parts_of(given)}
    file, data = given.find(GROUPS)
    found: list[dict[str, Any]] = []
    for at, row in enumerate(objects(data, file, "groups")):
        part = plans.get(id_of(row, file, f"groups[{at}]"))
        if part is None:  # its plan was left out
            continue
        own = [path for path in row.get("files") or () if isinstance(path, str)]
        files = sorted({*own, *(path for task in part.tasks for path in task.files)})
        after = [str(one["id"]) for one in found if set(files) & set(one["files"])]
        tasks = [task.as_data() for task in part.tasks]
        found.append({**row, "files": files, "after": after, "tasks": tasks})
    waiting = sum(bool(one["after"]) for one in found)
    summary = f"{counted(len(found), 'group')}, of which {waiting} wait for another."
    return Done(fields={"groups": len(found)}, summary=summary, out={GROUPS: as_json({"groups": found})})
