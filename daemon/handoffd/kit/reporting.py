"""`report`: what the tasks before found and did, as Markdown for a person.

Each kind of file has a section of its own; a kind that the flow does not have leaves no trace. Whatever an
agent wrote is put on one line, and cannot end a table or begin a heading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from handoffd.kit.given import SEVERITIES, Done, Entry, Given, objects

FILE: Final = "report.md"
_LONGEST: Final = 300
_MOST_ROWS: Final = 200
_MARKS: Final = re.compile(r"([\\|`*_<>\[\]#])")


def report(given: Given) -> Done:
    """Write the report."""
    title = given.pipeline or "Report"
    lines = [f"# {_cell(title)}", "", *_sum(given)]
    for name, section in _SECTIONS.items():
        found = list(given.board.named(name))
        # A file of the whole says all that the files of its parts do.
        wholes = [pair for pair in found if pair[0].item is None] or found
        lines += section(given, wholes) if wholes else []
    lines += _tasks(given.board.entries)
    text = "\n".join(lines).rstrip() + "\n"
    return Done(summary=f"{FILE} has {text.count(chr(10)):,} lines.", out={FILE: text.encode()})


def _sum(given: Given) -> list[str]:
    accepted = [one for one in given.board.entries if one.state == "accepted"]
    rest = [one for one in given.board.entries if one.state not in {"accepted", "skipped"}]
    lines = [f"Flow {_cell(given.flow)}."] if given.flow else []
    lines.append(
        f"Tasks that ended well: {len(accepted)}." + (f" Left out or failed: {len(rest)}." if rest else "")
    )
    return [*lines, *(f"- {_cell(one.node)}: {_cell(one.state)}{_why(one)}" for one in rest), ""]


def _why(entry: Entry) -> str:
    words = [word for word in (entry.outcome, entry.summary) if word]
    return f" ({_cell(', '.join(words))})" if words else ""


# --- the sections -------------------------------------------------------------------------------------
_Files = Sequence[tuple[Entry, str]]


def _findings(given: Given, files: _Files) -> list[str]:
    rows = [row for _, file in files for row in objects(given.board.json(file), file, "findings")]
    by_severity = [row for severity in SEVERITIES for row in rows if row.get("severity") == severity]
    table = (
        (row.get("id"), row.get("severity"), _place(row), row.get("title"), row.get("reason"))
        for row in by_severity
    )
    return _table("Findings", ("Id", "Severity", "Place", "What", "Why"), table)


def _place(row: Mapping[str, Any]) -> str:
    line = row.get("line")
    return f"{row.get('file')}:{line}" if line else str(row.get("file"))


def _analyses(given: Given, files: _Files) -> list[str]:
    rows = []
    for entry, file in files:
        data = given.board.json(file)
        row = data if isinstance(data, dict) else {}
        rows.append((entry.item or entry.task, row.get("cause"), row.get("fix"), row.get("risk")))
    return _table("Closer looks", ("Finding", "Cause", "Repair", "Risk"), rows)


def _debt(given: Given, files: _Files) -> list[str]:
    ends = _ends_of_items(given.board.entries)
    rows = [row for _, file in files for row in objects(given.board.json(file), file, "queue")]
    table = (
        (row.get("id"), row.get("title"), row.get("reason"), ends.get(str(row.get("id")), "not begun"))
        for row in rows
    )
    return _table("Items", ("Id", "What", "Why", "How it ended"), table)


def _ends_of_items(entries: Sequence[Entry]) -> dict[str, str]:
    """Return how each item ended: left out where one of its tasks was, else as the last of them says."""
    ends: dict[str, str] = {}
    for one in entries:
        if one.item is not None and not ends.get(one.item, "").startswith("left out"):
            bad = one.state not in {"accepted", "skipped"}
            ends[one.item] = f"left out: {one.outcome or one.state}" if bad else one.outcome or one.state
    return ends


def _tests(given: Given, files: _Files) -> list[str]:
    rows = []
    for entry, file in files:
        data = given.board.json(file)
        row = data if isinstance(data, dict) else {}
        rows.append(
            (entry.node, row.get("passed"), row.get("failed"), row.get("skipped"), row.get("pass_rate"))
        )
    return _table("Tests", ("When", "Passed", "Failed", "Skipped", "Rate"), rows)


def _plan(given: Given, files: _Files) -> list[str]:
    rows = [row for _, file in files for row in objects(given.board.json(file), file, "tasks")]
    ends = _ends_of_items(given.board.entries)
    table = ((row.get("id"), row.get("title"), ends.get(str(row.get("id")), "not begun")) for row in rows)
    return _table("Tasks of the plan", ("Id", "What", "How it ended"), table)


def _tasks(entries: Sequence[Entry]) -> list[str]:
    rows = ((one.node, one.visit, one.state, one.outcome, one.summary) for one in entries)
    return _table("Tasks of the flow", ("Task", "Visit", "State", "Outcome", "In its own words"), rows)


_SECTIONS: Final[Mapping[str, Callable[[Given, _Files], list[str]]]] = {
    "findings.json": _findings, "analysis.json": _analyses, "debt.json": _debt, "plan.json": _plan,
    "tests.json": _tests,
}  # fmt: skip


# --- tables -------------------------------------------------------------------------------------------
def _table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[object]] | Iterator[Sequence[object]]
) -> list[str]:
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return []
    shown = [f"| {' | '.join(row)} |" for row in cells[:_MOST_ROWS]]
    more = [f"And {len(cells) - _MOST_ROWS} more.", ""] if len(cells) > _MOST_ROWS else []
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *shown, ""]
    return [f"## {title}", "", *lines, *more]


def _cell(value: object) -> str:
    """Return a value on one line, without what Markdown would take for a sign."""
    text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    short = line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
    return _MARKS.sub(r"\\\1", short)
