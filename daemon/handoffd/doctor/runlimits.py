"""Whether limits of memory and tasks that are set for runs can be enforced here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from handoffd.doctor.finding import Finding, fine, warning
from handoffd.doctor.service import Service
from handoffd.execute.runner import cgroup
from handoffd.settings.model import ExecuteSettings

CHECK = "supervision"

CONTROLLERS = {"memory_max": "memory", "tasks_max": "pids"}
"""Which controller of the kernel a setting needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFacts:
    """`limits` are the settings that are set; `launcher`: one runs, as `service` says.

    `offered` are the controllers that runs below it could have, `on` those that they have.
    """

    limits: tuple[str, ...]
    launcher: bool
    service: Service
    offered: frozenset[str] = frozenset()
    on: frozenset[str] = frozenset()


def gather(settings: ExecuteSettings, launcher: int | None, service: Service) -> LimitFacts:
    """Return which limits are set, and what the launcher, a process, can do with them.

    One that the daemon has started itself is a finding of `supervision`, and none is here.
    """
    if launcher is not None and service.runs(launcher):
        launcher = None
    limits = tuple(name for name in CONTROLLERS if getattr(settings, name) is not None)
    group = cgroup.of(launcher) if limits and launcher is not None else None
    place = group.removesuffix(f"/{cgroup.LAUNCHERS}") if group is not None else None
    return LimitFacts(
        limits=limits,
        launcher=launcher is not None,
        service=service,
        offered=_controllers(place, "cgroup.controllers"),
        on=_controllers(place, "cgroup.subtree_control"),
    )


def check(facts: LimitFacts) -> tuple[Finding, ...]:
    """Return which limits are set and cannot be enforced, and why."""
    if not facts.limits or not facts.launcher:
        return ()
    lacking = [name for name in facts.limits if CONTROLLERS[name] not in facts.on]
    if not lacking:
        return (fine(CHECK, f"{_named(facts.limits)}: enforced for each run"),)
    what = f"{_named(lacking)} cannot be enforced: agents run without"
    if facts.service.unit is None:
        why = "only under the service has each run a control group"
        return (warning(CHECK, what, why, "handoffd service install"),)
    missing = [CONTROLLERS[name] for name in lacking if CONTROLLERS[name] not in facts.offered]
    if missing:
        why = f"the launcher's control group has no {' and no '.join(missing)} controller of version 2"
        return (warning(CHECK, what, why, "cat /proc/cgroups /sys/fs/cgroup/cgroup.controllers"),)
    why = "the launcher's unit was written by a release without these limits"
    return (warning(CHECK, what, why, facts.service.install),)


def _named(limits: tuple[str, ...] | list[str]) -> str:
    return " and ".join(f"execute.{name}" for name in limits)


def _controllers(place: str | None, name: str) -> frozenset[str]:
    try:
        text = "" if place is None else Path(place, name).read_text("ascii")
    except OSError:
        text = ""
    return frozenset(text.split())
