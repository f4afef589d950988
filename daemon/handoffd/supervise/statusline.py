"""The one line by which `systemctl status` tells how everything is."""

from __future__ import annotations

from dataclasses import dataclass

from handoffd.engine.usage import counted
from handoffd.supervise.gauges import Fleet
from handoffd.track.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the line is made of: counts, and what is wrong with all of it, in words."""

    projects: int
    running: int
    """Executors."""
    queued: int = 0
    """Tracks that wait for a slot or an account."""
    gates: int = 0
    """Tracks that wait for a person."""
    unusable: int = 0
    """Projects that cannot be worked on as they are."""
    trouble: str | None = None
    """Why nothing is started."""
    settings: str | None = None
    """Why the latest settings are not in force."""


def status_line(overview: Overview) -> str:
    """Return the line; what needs a person comes first, and what is 0 is left out."""
    first = [
        f"nothing is started: {overview.trouble}" if overview.trouble else "",
        f"the settings were not taken: {overview.settings}" if overview.settings else "",
    ]
    counts = [counted(overview.projects, "project"), f"{counted(overview.running, 'executor')} running"]
    more = (
        (overview.queued, "waiting"),
        (overview.gates, "for people to decide"),
        (overview.unusable, "in trouble"),
    )
    counts += [f"{count} {what}" for count, what in more if count]
    return "; ".join(part for part in (*first, ", ".join(counts)) if part)


def overview_of(services: Services, fleet: Fleet, count: int) -> Overview:
    """Return what is told of `count` projects; what is wrong with all of them is not in it."""
    accounts = services.accounts.views(services.clock.now())
    conditions = fleet.conditions()
    usable = conditions.get("ok", 0) + conditions.get("not_initialized", 0)
    return Overview(
        projects=count,
        running=fleet.running,
        queued=services.slots.queued + sum(account.waiting for account in accounts),
        unusable=count - usable,
    )
