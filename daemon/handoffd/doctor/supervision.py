"""What the machine offers for keeping agents together and the daemon alive: control groups, systemd."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from handoffd.doctor.finding import Finding, fine, warning
from handoffd.doctor.service import Service
from handoffd.doctor.unit import Unit
from handoffd.execute.runner import proc
from handoffd.execute.witness import Witness

CHECK = "supervision"

_UNIFIED = "/sys/fs/cgroup/cgroup.controllers"
_SYSTEMD = "/run/systemd/system"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisionFacts:
    """`systemd` manages this machine; `unified`: control groups are of version 2; `runs`: a daemon does.

    `service` is how that is run, `installed` the unit that could, `units` the daemon's and its launcher's;
    `fleeting`: the last logout of the person ends these.
    """

    systemd: bool
    unified: bool
    runs: bool
    service: Service
    installed: Service
    units: tuple[Unit, Unit] | None = None
    fleeting: bool = False


def gather(
    pid: int | None, service: Service, installed: Service, units: tuple[Unit, Unit] | None, *, fleeting: bool
) -> SupervisionFacts:
    """Return what this machine offers, and how the daemon of process `pid` uses it."""
    return SupervisionFacts(
        systemd=os.path.isdir(_SYSTEMD),
        unified=os.path.exists(_UNIFIED),
        runs=pid is not None,
        service=service,
        installed=installed,
        units=units,
        fleeting=fleeting,
    )


def check(facts: SupervisionFacts) -> tuple[Finding, ...]:
    """Return what could be had and is not used, and what cannot be had."""
    groups = _groups(facts)
    if not facts.systemd:
        told = "no systemd: nobody starts the daemon again after a crash or a reboot"
        return (fine(CHECK, f"{told}; {groups}"),)
    if facts.runs and facts.service.unit is None:
        why = "nobody starts it again after a crash or a reboot, and runs get no control group"
        there = facts.installed
        action = there.install if there.unit is None else f"handoffd stop && {there.start}"
        return (warning(CHECK, "the daemon is no unit of systemd", why, action),)
    if found := tuple(_about_units(facts)):
        return found
    if not facts.unified:
        why = "a process that hides well can outlive its run when launcher and shim are both killed"
        action = "cat /proc/cmdline  # boot with systemd.unified_cgroup_hierarchy=1"
        return (warning(CHECK, "control groups are of version 1", why, action),)
    return (fine(CHECK, f"systemd; {groups}"),)


def _about_units(facts: SupervisionFacts) -> Iterator[Finding]:
    if facts.units is None:
        return
    daemon, launcher = facts.units
    alone = "agents are started in the daemon's own unit then, and end with it"
    if trouble := launcher.trouble:
        yield warning(CHECK, trouble.what, f"{trouble.why}; {alone}", trouble.action)
    elif daemon.runs and not (launcher.runs or launcher.starts):
        start = f"{daemon.service.systemctl} start {launcher.name}"
        yield warning(CHECK, f"{launcher.name} does not run", alone, start)
    if idle := [unit.name for unit in (launcher, daemon) if not unit.enabled]:
        names = " ".join(idle)
        action = f"{daemon.service.systemctl} enable {names}"
        yield warning(CHECK, f"not enabled: {names}", "a reboot does not bring them back", action)
    if facts.fleeting:
        why = "your last logout ends the daemon and its agents; they begin again at your next login"
        yield warning(CHECK, "lingering is off", why, "loginctl enable-linger")


def _groups(facts: SupervisionFacts) -> str:
    if facts.systemd and facts.unified and facts.service.unit is not None:
        return "each run has a control group of its own"
    return "runs are kept together by descent, not by control groups"


def boots(pid: int, witness: Witness) -> tuple[Finding, ...]:
    """Return that the daemon of process `pid` and its launcher read different boot ids, if they do."""
    daemon, launcher = proc.boot_id_of(pid), witness.boot_id()
    if daemon is None or launcher is None or daemon == launcher:
        return ()
    told = f"the daemon's unit reads the boot id of the machine ({daemon}), the launcher another ({launcher})"
    return (fine(CHECK, f"{told}, as a container may have; runs are known by either"),)
