"""What the machine offers for keeping agents together and the daemon alive: control groups, systemd.

The launcher's unit is there so that agents outlive the daemon. While no launcher of that unit answers, the
daemon starts one itself, and what that starts is in the daemon's unit for good: also when the launcher's
unit runs again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from handoffd.doctor.finding import Finding, fine, warning
from handoffd.doctor.service import Service, membership, unit_in
from handoffd.doctor.unit import Unit
from handoffd.engine.usage import counted
from handoffd.execute.run import living
from handoffd.execute.runner import proc
from handoffd.execute.witness import Witness

CHECK = "supervision"

_UNIFIED = "/sys/fs/cgroup/cgroup.controllers"
_SYSTEMD = "/run/systemd/system"
_SHOWN = 5
"""So many runs are named."""


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
        return "each run of the launcher's unit has a control group of its own"
    return "runs are kept together by descent, not by control groups"


def boots(pid: int, witness: Witness) -> tuple[Finding, ...]:
    """Return that the daemon of process `pid` and its launcher read different boot ids, if they do."""
    daemon, launcher = proc.boot_id_of(pid), witness.boot_id()
    if daemon is None or launcher is None or daemon == launcher:
        return ()
    told = f"the daemon's unit reads the boot id of the machine ({daemon}), the launcher another ({launcher})"
    return (fine(CHECK, f"{told}, as a container may have; runs are known by either"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """A run of which something lives, and the text of that process's `cgroup`. `project` is a root."""

    run: str
    project: str | None
    cgroup: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFacts:
    """`service` is how the daemon is run, `launcher` the text of the `cgroup` of the one that answers.

    `unit` is the launcher's, where one is installed; `names` are what projects are called, by root.
    """

    service: Service
    runs: tuple[RunPlace, ...] = ()
    launcher: str | None = None
    unit: Unit | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def inside(self) -> tuple[RunPlace, ...]:
        """The runs that are in the daemon's unit; none where no unit runs it."""
        return tuple(one for one in self.runs if self._ends(one.cgroup))

    @property
    def kept(self) -> bool:
        """Whether the next runs outlive the daemon's unit: the launcher that answers is not in that."""
        return self.launcher is not None and not self._ends(self.launcher)

    def _ends(self, cgroup: str) -> bool:
        return self.service.unit is not None and unit_in(cgroup) == self.service


def gather_runs(runs_dir: Path) -> tuple[RunPlace, ...]:
    """Return where the runs are whose records are in `runs_dir`, as far as that can be told."""
    return tuple(_places(runs_dir))


def _places(runs_dir: Path) -> Iterator[RunPlace]:
    try:
        for run in living(runs_dir):
            pid = run.shim_pid if run.is_running() else run.pid
            yield RunPlace(run=run.run_dir.name, project=run.folder(), cgroup=membership(pid))
    except (OSError, ValueError):
        return  # a folder that cannot be read is another check's finding


def check_runs(facts: PlaceFacts) -> tuple[Finding, ...]:
    """Return which runs end with the daemon's unit, or that the next ones would."""
    unit, own = facts.service.unit, facts.unit
    if found := facts.inside:
        one = len(found) == 1
        what = f"{counted(len(found), 'run is', 'runs are')} in the daemon's own unit: "
        why = (
            f"no launcher of its unit answered when {'it' if one else 'they'} began; "
            f"{'it ends' if one else 'they end'} when {unit} is stopped or restarted, or the daemon crashes"
        )
        hold = f"  # and restart {unit} only when {'it has' if one else 'they have'} ended"
        return (warning(CHECK, what + _listed(found, facts.names), why, _next(facts) + hold),)
    if facts.launcher is not None and not facts.kept and own is not None and own.runs:
        what = "agents are started in the daemon's own unit"
        why = f"a launcher of the daemon's own answers; they end when {unit} is stopped or restarted"
        return (warning(CHECK, what, why, _launcher(own)),)
    return ()


def _next(facts: PlaceFacts) -> str:
    """Return what has the next runs outlive the daemon's unit; where they do, what tells that these ended."""
    if facts.kept or facts.unit is None:
        return "handoffd doctor"
    return _launcher(facts.unit)


def _launcher(unit: Unit) -> str:
    """Return what has a launcher of its unit answer instead of the daemon's own."""
    if trouble := unit.trouble:
        return trouble.action
    return f"{unit.service.systemctl} {'reload' if unit.runs else 'start'} {unit.name}"


def _listed(runs: Sequence[RunPlace], names: Mapping[str, str]) -> str:
    shown = [
        f"{one.run} of {names.get(one.project, one.project)}" if one.project is not None else one.run
        for one in runs[:_SHOWN]
    ]
    more = [f"{len(runs) - _SHOWN} more"] if len(runs) > _SHOWN else []
    return ", ".join((*shown, *more))
