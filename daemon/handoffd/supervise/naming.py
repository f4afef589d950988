"""How people call a project: by a path, by a path inside it, or by its name."""

from __future__ import annotations

from heapq import nsmallest
from pathlib import Path

from handoffd.engine.commands import command_for
from handoffd.errors import NotFound, Refused
from handoffd.supervise.register import Register

MOST_NAMES = 20
"""So many are told to somebody who named none of them."""


def root_called(name: str, register: Register) -> str:
    """Return the root of the project called, or lying at (or above), `name`.

    Raises NotFound, naming those there are, and Refused, with their roots, when a name fits several.
    """
    if name in register:
        return name  # without a look at the disk, which may not answer
    path = Path(name)
    resolved = _resolved(path)
    for folder in (resolved, *resolved.parents) if resolved else ():
        if str(folder) in register:
            return str(folder)
    called = register.called(name)
    if len(called) == 1:
        return called[0]
    if called:
        message = f"{name} is the name of several projects; give a path: {_listed(called, len(called))}"
        raise Refused(message, hint="handoffd projects")
    known = _listed(nsmallest(MOST_NAMES, map(register.name_of, register)), len(register))
    message = f"no supervised project is called or lies at {name} (known: {known})"
    raise NotFound(message, hint=command_for(name, "add") if path.is_absolute() else "handoffd projects")


def _resolved(path: Path) -> Path | None:
    """Return where a path leads; None for a name: it means nothing relative to wherever the daemon runs."""
    try:
        return path.resolve() if path.is_absolute() else None
    except (OSError, RuntimeError, ValueError):  # links in a circle, and characters that no path can have
        return None


def _listed(names: list[str], count: int) -> str:
    more = f" and {count - MOST_NAMES} more" if count > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more if names else "none yet"
