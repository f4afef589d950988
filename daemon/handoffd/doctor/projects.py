"""Which projects cannot be worked on, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from shlex import quote
from typing import Any

from handoffd.doctor.finding import Finding, Severity, fine
from handoffd.engine.commands import command_for, mending
from handoffd.engine.usage import counted

CHECK = "projects"

_SEVERITY: Mapping[str, Severity] = {
    "not_initialized": "warning",
    "invalid_rules": "warning",  # the last valid ones stay in force
    "locked": "warning",
    "unfinished_git": "warning",
}
"""Conditions under which nothing is broken; under every other one the project stands still."""

_WHAT: Mapping[str, str] = {
    "not_initialized": "has no STATE.json",
    "invalid_state": "has a STATE.json that cannot be read",
    "invalid_rules": "has settings or a step table that cannot be used",
    "invalid_journal": "has a record in the journal that was changed outside handoffd",
    "unfinished_git": "has a repository in the middle of a merge or the like",
    "missing": "is gone",
    "io_error": "cannot be read or written",
    "locked": "is in use by another process or handoffd",
}


def check(projects: Sequence[Mapping[str, Any]], silent: Collection[str] = ()) -> tuple[Finding, ...]:
    """Return each project that is not well. `projects` are those of `status`, `silent` do not answer."""
    found = [_silent(one["project"]) for one in projects if one["project"] in silent]
    found += [_finding(one) for one in projects if one["project"] not in silent and one["condition"] != "ok"]
    well = len(projects) - len(found)
    count = counted(well, "project")
    return (*found, fine(CHECK, f"{count} can be worked on")) if well or not found else tuple(found)


def _finding(project: Mapping[str, Any]) -> Finding:
    root, condition = str(project["project"]), str(project["condition"])
    return Finding(
        check=CHECK,
        severity=_SEVERITY.get(condition, "fault"),
        what=f"{root} {_WHAT.get(condition, condition)} ({condition})",
        why=project["detail"],
        action=mending(root, condition) or command_for(root, "status"),
    )


def _silent(root: str) -> Finding:
    why = "it does not answer, as a network mount does that has lost its server"
    what = f"{root} cannot be looked at (io_error)"
    return Finding(check=CHECK, severity="fault", what=what, why=why, action=f"stat {quote(root)}")
