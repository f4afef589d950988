"""How people call a project: by a path, by a path inside it, or by its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from handoffd.errors import NotFound, Refused
from handoffd.supervise.project import Project


def root_called(name: str, projects: Mapping[str, Project]) -> str:
    """Return the root of the project called, or lying at (or above), `name`.

    Raises NotFound, naming those there are, and Refused when a name fits several.
    """
    if name in projects:
        return name  # without a look at the disk, which may not answer
    path = Path(name)
    # Only absolute paths: a name means nothing relative to wherever the daemon runs.
    resolved = path.resolve() if path.is_absolute() else None
    for folder in (resolved, *resolved.parents) if resolved else ():
        if str(folder) in projects:
            return str(folder)
    called = [root for root, project in projects.items() if name_of(project) == name]
    if len(called) == 1:
        return called[0]
    if called:
        raise Refused(f"{name} is the name of several projects", hint=f"give a path: {', '.join(called)}")
    known = ", ".join(sorted(name_of(project) for project in projects.values())) or "none yet"
    raise NotFound(
        f"no supervised project is called or lies at {name}", hint=f"handoffd add {name} (known: {known})"
    )


def name_of(project: Project) -> str:
    """Return what its STATE.json calls a project; else its folder's name."""
    state = project.main.track.state
    return state.project if state is not None else Path(project.root).name
