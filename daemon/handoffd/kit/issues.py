"""`issues-append` and `bind`: the issues of a project as files, and the solutions that belong to them.

An issue is `docs/issues/<ID>.md`; its head says what it was made from. That is how the same unit of a roadmap
is recognised: after a crash, or when the flow runs again, no issue is made twice.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from handoffd.engine.wording import counted
from handoffd.errors import Refused
from handoffd.files.rooted import read_project_file
from handoffd.kit.given import MAX_FILE, Done, Given, as_json, objects, text_of, texts_of
from handoffd.kit.plans import Planned, check_needs, planned

FOLDER: Final = "docs/issues"
ISSUES: Final = "issues.json"
SOLUTIONS: Final = "solutions.json"
PRIORITIES: Final[Mapping[str, int]] = {"small": 4, "medium": 3, "large": 2}
"""Of a unit, by its effort: what is done quickly comes first."""
_NAME: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})\.md")
_SOURCE: Final = re.compile(r"^source: ([0-9a-f]{16})$", re.MULTILINE)


# --- from a roadmap to issues -------------------------------------------------------------------------
def issues_append(given: Given) -> Done:
    """Make an issue of each unit of a roadmap that has none."""
    file, data = given.find(given.words["roadmap"])
    units = planned(data, file, "units")
    check_needs(units, file)
    there = dict(_known(given.root))
    ids = _ids(units, there, given.today)
    writes = {
        f"{FOLDER}/{ids[unit.id]}.md": _text(unit, ids).encode()
        for unit in units
        if source_of(unit) not in there
    }
    rows = [_row(unit, ids) for unit in units]
    return Done(
        fields={"made": len(writes), "known": len(units) - len(writes)},
        summary=f"{counted(len(writes), 'issue')} made, {len(units) - len(writes)} were there.",
        out={ISSUES: as_json({"issues": rows})},
        writes=writes,
    )


def source_of(unit: Planned) -> str:
    """Return what a unit is recognised by: its content, whatever its place in the roadmap."""
    content = {name: value for name, value in unit.row.items() if name not in {"wave", "depends_on"}}
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


def _known(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the sources of the issues that are there, with their ids."""
    folder = root / FOLDER
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    for name in names:
        found = _NAME.fullmatch(name)
        content = read_project_file(root, f"{FOLDER}/{name}", MAX_FILE) if found else None
        if found and content is not None:
            source = _SOURCE.search(content.content.decode("utf-8", "replace"))
            yield (source[1] if source else f"file {name}", found[1])


def _ids(units: list[Planned], there: Mapping[str, str], today: str) -> dict[str, str]:
    day, taken = today.replace("-", ""), set(there.values())
    ids: dict[str, str] = {}
    number = 0
    for unit in units:
        known = there.get(source_of(unit))
        while known is None:
            number += 1
            free = f"ISS-{day}-{number:03}"
            known = None if free in taken else free
        taken.add(known)
        ids[unit.id] = known
    return ids


def _row(unit: Planned, ids: Mapping[str, str]) -> dict[str, Any]:
    wave = unit.row.get("wave")
    return {
        "id": ids[unit.id], "title": unit.title, "wave": wave if isinstance(wave, int) else 1,
        "priority": PRIORITIES.get(str(unit.row.get("effort")), 3),
        "depends_on": [ids[one] for one in unit.depends_on], "files": list(unit.files), "unit": unit.id,
    }  # fmt: skip


def _text(unit: Planned, ids: Mapping[str, str]) -> str:
    row = _row(unit, ids)
    title = " ".join(unit.title.split())
    head = [f"id: {row['id']}", f"title: {json.dumps(title, ensure_ascii=False)}", "status: open"]
    head += [f"priority: {row['priority']}", f"wave: {row['wave']}", f"source: {source_of(unit)}"]
    head.append(f"depends_on: {json.dumps(row['depends_on'])}")
    lines = ["---", *head, "---", "", f"# {title}", ""]
    for name, heading in (
        ("criteria", "Criteria"),
        ("verification", "How to verify it"),
        ("done", "Done when"),
    ):
        said = unit.row.get(name)
        values = said if isinstance(said, list) else [said] if isinstance(said, str) else []
        lines += (
            [f"## {heading}", "", *(f"- {' '.join(str(one).split())}" for one in values), ""]
            if values
            else []
        )
    return "\n".join(lines).rstrip() + "\n"


# --- from solutions to their issues -------------------------------------------------------------------
def bind(given: Given) -> Done:
    """Write each solution beside its issue; tell where solutions change the same files."""
    found: dict[str, dict[str, Any]] = {}
    for _, file in given.board.named(SOLUTIONS):
        for at, row in enumerate(objects(given.board.json(file), file, "solutions")):
            issue = text_of(row, "issue", file, f"solutions[{at}]")
            if _NAME.fullmatch(f"{issue}.md") is None:
                raise Refused(f"'{issue[:80]}' cannot name an issue", hint=f"ls {FOLDER}")
            found.setdefault(issue, row)
    if not found:
        raise Refused(f"the board has no {SOLUTIONS}")
    overlaps = shared_files(found)
    writes = {f"{FOLDER}/{issue}.solution.json": as_json(row) for issue, row in sorted(found.items())}
    lines = [f"{counted(len(found), 'solution')} bound.", *overlaps]
    fields = {"bound": len(found), "overlaps": len(overlaps)}
    outcome = "overlap" if overlaps else "pass"
    return Done(outcome=outcome, fields=fields, summary="\n".join(lines), writes=writes)


def shared_files(solutions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line for each file that several solutions change."""
    users: dict[str, list[str]] = {}
    for issue, row in sorted(solutions.items()):
        tasks = row.get("tasks")
        parts = [one for one in tasks if isinstance(one, dict)] if isinstance(tasks, list) else []
        for path in sorted({path for task in parts for path in texts_of(task, "files", SOLUTIONS, issue)}):
            users.setdefault(path, []).append(issue)
    return [f"{path}: {', '.join(issues)}" for path, issues in sorted(users.items()) if len(issues) > 1]
