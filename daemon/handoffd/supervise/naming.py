"""How people call a project: by a path, by a path inside it, or by its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from handoffd.engine.commands import command_for
from handoffd.errors import NotFound, Refused
from handoffd.supervise.project import Project

MOST_NAMES = 20
"""So many are told to somebody who named none of them."""


def root_called(name: str, projects: Mapping[str, Project]) -> str:
    """Return the root of the project called, or lying at (or above), `name`.

    Raises NotFound, naming those there are, and Refused, with their roots, when a name fits several.
    """
    if name in projects:
        return name  # without a look at the disk, which may not answer
    path = Path(name)
    resolved = _resolved(path)
    for folder in (resolved, *resolved.parents) if resolved else ():
        if str(folder) in projects:
            return str(folder)
    called = [root for root, project in projects.items() if name_of(project) == name]
    if len(called) == 1:
        return called[0]
    if called:
        message = f"{name} is the name of several projects; give a path: {_listed(called)}"
        raise Refused(message, hint="handoffd projects")
    known = _listed(sorted(name_of(project) for project in projects.values()))
    message = f"no supervised project is called or lies at {name} (known: {known})"
    raise NotFound(message, hint=command_for(name, "add") if path.is_absolute() else "handoffd projects")


def _resolved(path: Path) -> Path | None:
    """Return where a path leads; None for a name: it means nothing relative to wherever the daemon runs."""
    try:
        return path.resolve() if path.is_absolute() else None
    except (OSError, RuntimeError, ValueError):  # links in a circle, and characters that no path can have
        return None


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more if names else "none yet"


def names_of(projects: Mapping[str, Project]) -> dict[str, str]:
    """Return, by root, what `root_called` finds it by: its name, or its root where several share that."""
    names = {root: name_of(project) for root, project in projects.items()}
    often = Counter(names.values())
    return {root: name if often[name] == 1 else root for root, name in names.items()}


def name_of(project: Project) -> str:
    """Return what its STATE.json calls a project; else its folder's name."""
    state = project.main.track.state
    return state.project if state is not None else Path(project.root).name
