"""Why no daemon answers, and the command that helps: by what systemd says of its service.

A person whose service has failed is helped by the reason, and harmed by `handoffd run`, which would start a
second daemon in a terminal. The command line imports it only when it needs it.
"""

from __future__ import annotations

from pathlib import Path

from handoffd.doctor.service import SYSTEM_UNITS, Trouble, Unit, elsewhere, installed, units_of
from handoffd.entrance.place import Place
from handoffd.errors import InvalidFile, NoDaemon
from handoffd.fleet.name_checks import misfits
from handoffd.settings.loading import Given

_NONE = "No daemon runs"
_SILENT = "The daemon does not answer here"


def absences(place: Place, system_units: Path | None = None) -> tuple[Trouble, ...]:
    """Return why no daemon answers, and what to type; for each service of the machine that may be meant."""
    service = installed(place.environ, place.config)
    if service.unit is None and (others := elsewhere(place.environ, system_units or SYSTEM_UNITS)):
        return tuple(map(_elsewhere, others))
    units = units_of(service, place.environ)
    return (_absent(service.start, place) if units is None else _of(units[0], place),)


def _absent(start: str, place: Place) -> Trouble:
    given = Given(flags={"config": place.config}, environ=place.environ, daemon=False)
    try:
        if any(file.exists() for file in given.files()):
            given.load(misfits)
    except InvalidFile:
        return Trouble(what=_NONE, why="its settings cannot be used", action="handoffd config check")
    return Trouble(what=_NONE, why="", action=start)


def _of(daemon: Unit, place: Place) -> Trouble:
    if trouble := daemon.trouble:
        return _troubled(daemon, trouble)
    if daemon.starts:
        return _early(daemon)
    if not daemon.runs:
        return _absent(daemon.service.start, place)
    if daemon.service.account is None and not place.environ.get("XDG_RUNTIME_DIR"):
        why = f"{daemon.name} runs, and this shell has no session of its own that would lead there"
        return Trouble(what=_SILENT, why=why, action="export XDG_RUNTIME_DIR=/run/user/$(id -u)")
    if daemon.main_pid is not None and daemon.main_pid == place.holder():
        return Trouble(what=_SILENT, why=daemon.deaf(str(place.socket())), action=daemon.service.restart)
    return Trouble(what=_SILENT, why=f"{daemon.name} runs", action="handoffd doctor")


def _elsewhere(daemon: Unit) -> Trouble:
    """Return how a service of the machine is, which its account can say more about while it runs."""
    if trouble := daemon.hindrance:
        return _troubled(daemon, trouble)
    if daemon.starts:
        return _early(daemon)
    service = daemon.service
    if daemon.stopped:
        return Trouble(what=_NONE, why=f"{daemon.name} was stopped", action=service.start)
    return Trouble(what=_SILENT, why=service.elsewhere, action=service.ask("handoffd status"))


def _troubled(daemon: Unit, trouble: Trouble) -> Trouble:
    what = _SILENT if daemon.runs else _NONE
    return Trouble(what=what, why=f"{trouble.what}: {trouble.why}", action=trouble.action)


def _early(daemon: Unit) -> Trouble:
    what, why = "The daemon is not ready yet", f"{daemon.name} is being started"
    return Trouble(what=what, why=why, action="handoffd status")


def closing(place: Place, system_units: Path | None = None) -> str:
    """Return what to say below what was found, or done, without a daemon."""
    return "\n".join(map(_told, absences(place, system_units)))


def _told(found: Trouble) -> str:
    if not found.why:
        return f"{found.what}: `{found.action}` goes on from here."
    return f"{found.what}: {found.why}.\n  next: {found.action}"


def explained(error: NoDaemon, place: Place) -> NoDaemon:
    """Return the error for a verb that needs a daemon, with the state of each service that may be meant."""
    found = absences(place)
    whys = "; ".join(one.why for one in found if one.why)
    message = f"{error.message}: {whys}" if whys else error.message
    return NoDaemon(message, hint=found[0].action, code=error.code)
