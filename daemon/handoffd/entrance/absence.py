"""What to tell people where no daemon answers: what its service does, and the command that starts it.

A person whose service has failed is helped by the reason, and harmed by `handoffd run`, which would
start a second daemon in a terminal.
"""

from __future__ import annotations

from dataclasses import dataclass

from handoffd.entrance.place import Place
from handoffd.errors import NoDaemon


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """Why none answers, where its service knows, and the next command. `starting`: one is on its way."""

    why: str | None
    action: str
    starting: bool = False


def absence(place: Place) -> Absence:
    """Return why no daemon answers, and what to type."""
    from handoffd.doctor.service import installed
    from handoffd.doctor.unit import units_of

    service = installed(place.environ, place.config)
    units = units_of(service, place.environ)
    if units is None:
        return Absence(why=None, action=service.start)
    daemon = units[0]
    if trouble := daemon.trouble:
        return Absence(why=f"{trouble.what}: {trouble.why}", action=trouble.action)
    if daemon.starts:
        return Absence(why=f"{daemon.name} is being started", action="handoffd status", starting=True)
    if daemon.runs:
        return Absence(why=f"{daemon.name} runs, and does not answer here", action="handoffd doctor")
    return Absence(why=None, action=service.start)


def closing(place: Place) -> str:
    """Return what to say below what was found, or done, without a daemon."""
    found = absence(place)
    if found.starting:
        return f"The daemon is not ready yet: {found.why}."
    if found.why is None:
        return f"No daemon runs: `{found.action}` goes on from here."
    return f"No daemon runs: {found.why}.\n  next: {found.action}"


def explained(error: NoDaemon, place: Place) -> NoDaemon:
    """Return the error for what needs a daemon, with what its service says."""
    found = absence(place)
    message = error.message if found.why is None else f"{error.message}: {found.why}"
    return NoDaemon(message, hint=found.action, code=error.code)
