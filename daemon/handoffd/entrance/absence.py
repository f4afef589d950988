"""What to tell people where no daemon answers: what its service does, and the command that starts it.

A person whose service has failed is helped by the reason, and harmed by `handoffd run`, which would
start a second daemon in a terminal.
"""

from __future__ import annotations

from dataclasses import dataclass

from handoffd.entrance.place import Place
from handoffd.errors import NoDaemon

_SILENT = "The daemon does not answer here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """What is so, why, where its service knows, and the next command."""

    what: str = "No daemon runs"
    why: str | None = None
    action: str


def absence(place: Place) -> Absence:
    """Return why no daemon answers, and what to type."""
    from handoffd.doctor.service import installed, of_machine, units_of

    service = installed(place.environ, place.config)
    if service.unit is None and (other := of_machine(place.environ)):
        return Absence(what=_SILENT, why=other.elsewhere, action=other.ask("handoffd status"))
    units = units_of(service, place.environ)
    if units is None:
        return Absence(action=service.start)
    daemon = units[0]
    if trouble := daemon.trouble:
        return Absence(why=f"{trouble.what}: {trouble.why}", action=trouble.action)
    if daemon.starts:
        what, why = "The daemon is not ready yet", f"{daemon.name} is being started"
        return Absence(what=what, why=why, action="handoffd status")
    if daemon.runs and service.account is None and not place.environ.get("XDG_RUNTIME_DIR"):
        why = f"{daemon.name} runs, and this shell has no session of its own that would lead there"
        return Absence(what=_SILENT, why=why, action="export XDG_RUNTIME_DIR=/run/user/$(id -u)")
    if daemon.runs:
        return Absence(what=_SILENT, why=f"{daemon.name} runs", action="handoffd doctor")
    return Absence(action=service.start)


def closing(place: Place) -> str:
    """Return what to say below what was found, or done, without a daemon."""
    found = absence(place)
    if found.why is None:
        return f"{found.what}: `{found.action}` goes on from here."
    return f"{found.what}: {found.why}.\n  next: {found.action}"


def explained(error: NoDaemon, place: Place) -> NoDaemon:
    """Return the error for what needs a daemon, with what its service says."""
    found = absence(place)
    message = error.message if found.why is None else f"{error.message}: {found.why}"
    return NoDaemon(message, hint=found.action, code=error.code)
