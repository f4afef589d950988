"""Whether a daemon runs and answers, and what keeps it and its agents alive: systemd, control groups.

The launcher's unit exists so that agents outlive the daemon. If that unit's launcher does not answer, the
daemon starts a launcher itself, and agents of that launcher stay in the daemon's unit, even after the
launcher's unit runs again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from msgspec import Struct, field

from handoffd.api.client import Client
from handoffd.doctor.finding import Finding, fault, fine, warning
from handoffd.doctor.service import Service, Unit, membership, unit_in
from handoffd.engine.wording import counted
from handoffd.errors import HandoffdError, NoAnswer, NoDaemon
from handoffd.execute.run import living
from handoffd.execute.runner import cgroup, proc
from handoffd.execute.witness import Witness
from handoffd.settings.model import ExecuteSettings

# --- the daemon: whether it answers and is of this version, and who else may speak to it --------------
DAEMON = "daemon"

_LONGEST_PATH = 90
"""Bytes of a socket's path, a little below what the kernel allows."""


class Asked(Struct, frozen=True, kw_only=True):
    """What the daemon said: its health and every project's status, or why there is no answer."""

    version: str | None = None
    pid: int | None = None
    status: dict[str, Any] | None = None
    error: HandoffdError | None = None


class Entry(Struct, frozen=True, kw_only=True):
    """The socket or its folder on the disk."""

    path: str
    mode: int
    owned: bool


class DaemonFacts(Struct, frozen=True, kw_only=True):
    """What was asked and seen. `holder` is the process that holds the state directory, if one does."""

    socket: str
    asked: Asked
    own_version: str
    service: Service
    entries: tuple[Entry, ...] = ()
    holder: int | None = None
    unit: Unit | None = None
    """The daemon's, where one is installed."""
    others: tuple[Unit, ...] = ()
    """The daemons' units of the machine's services, none of which was asked."""


def ask_daemon(socket: Path, answer_s: float) -> Asked:
    """Return what the daemon at `socket` says; each answer is waited for `answer_s` seconds."""
    client, pid, version = Client(socket, answer_s), None, None
    try:
        pid = client.daemon_pid()
        version = str(client.get("/v1/health").get("version"))
        status = client.get("/v1/status")
    except HandoffdError as error:
        return Asked(version=version, pid=pid, error=error)
    if not isinstance(status.get("projects"), list):
        stranger = HandoffdError("another program than handoffd answers on the socket", code="BAD_ANSWER")
        return Asked(version=version, pid=pid, error=stranger)
    return Asked(version=version, pid=pid, status=status)


def socket_entries(socket: Path) -> tuple[Entry, ...]:
    """Return the socket and its folder, as far as they are there."""
    found = []
    for path in (socket.parent, socket):
        try:
            seen = path.lstat()
        except OSError:
            continue
        mode, owned = stat.S_IMODE(seen.st_mode), seen.st_uid == os.geteuid()
        found.append(Entry(path=str(path), mode=mode, owned=owned))
    return tuple(found)


def check_daemon(facts: DaemonFacts) -> tuple[Finding, ...]:
    """Return the problems of the running daemon, or how to start one."""
    return (*_answer(facts), *_socket(facts))


def _answer(facts: DaemonFacts) -> Iterator[Finding]:
    asked = facts.asked
    if isinstance(asked.error, NoDaemon):
        yield from _absent(facts)
    elif asked.error is not None and _process(facts) is None:
        yield fault(DAEMON, "the daemon cannot be reached", asked.error.message, asked.error.hint)
    elif asked.error is not None:
        what = f"the daemon (process {_process(facts)}) does not answer"
        yield fault(DAEMON, what, asked.error.message, _woken(facts))
    elif asked.version != facts.own_version:
        what = f"the daemon is of version {asked.version}, this program of {facts.own_version}"
        yield warning(DAEMON, what, "it was not started again after an upgrade", facts.service.restart)
    else:
        yield fine(DAEMON, f"runs (process {asked.pid}, version {asked.version})")


def _absent(facts: DaemonFacts) -> Iterator[Finding]:
    if facts.holder is not None:
        yield _deaf(facts, facts.holder)
    elif facts.unit is None and facts.others:
        yield from map(_elsewhere, facts.others)
    else:
        yield _missing(facts)


def _deaf(facts: DaemonFacts, holder: int) -> Finding:
    why = f"nothing answers at {facts.socket}: it may have been started with another runtime directory"
    what = f"process {holder} holds the state directory, and cannot be asked"
    if facts.unit is not None and facts.unit.runs and not facts.socket.startswith("/run/"):
        silent = f"nothing answers at {facts.socket}: this shell has no session of its own"
        return fault(DAEMON, what, silent, "export XDG_RUNTIME_DIR=/run/user/$(id -u)")
    if facts.unit is not None and facts.unit.main_pid == holder:
        what, why = f"the daemon (process {holder}) cannot be asked", facts.unit.deaf(facts.socket)
        return fault(DAEMON, what, why, facts.unit.service.restart)
    return fault(DAEMON, what, why, f"ps -fp {holder}; tr '\\0' '\\n' </proc/{holder}/environ | grep DIR")


def _missing(facts: DaemonFacts) -> Finding:
    why = "nothing is dispatched without one"
    if facts.unit is not None and (trouble := facts.unit.trouble):
        return fault(DAEMON, f"no daemon runs: {trouble.what}", trouble.why, trouble.action)
    if facts.unit is not None and facts.unit.starts:
        return _early()
    return warning(DAEMON, "no daemon runs", why, facts.service.start)


def _elsewhere(unit: Unit) -> Finding:
    """Return how a service of the machine is, which its account can say more about while it runs."""
    if trouble := unit.hindrance:
        what = trouble.what if unit.runs else f"no daemon runs: {trouble.what}"
        return fault(DAEMON, what, trouble.why, trouble.action)
    if unit.starts:
        return _early()
    if unit.stopped:
        return warning(DAEMON, "no daemon runs here", f"{unit.name} was stopped", unit.service.start)
    service = unit.service
    return warning(DAEMON, "no daemon runs here", service.elsewhere, service.ask("handoffd doctor"))


def _early() -> Finding:
    return warning(DAEMON, "the daemon is being started", "it does not answer yet", "handoffd status")


def _process(facts: DaemonFacts) -> int | None:
    """Return the daemon's pid, from its lock if the socket is too crowded to answer."""
    silent = isinstance(facts.asked.error, NoAnswer)
    return facts.asked.pid or (facts.holder if silent else None)


def _woken(facts: DaemonFacts) -> str:
    """Return what has a daemon go on that was stopped; one that hangs is replaced."""
    hint = facts.asked.error.hint if facts.asked.error is not None else None
    return hint if hint is not None and hint.startswith("kill -CONT") else _replace(facts)


def _replace(facts: DaemonFacts) -> str:
    """Return what ends a daemon that hangs, and starts another one; executors go on."""
    if facts.service.unit is not None:
        return facts.service.restart
    return f"kill -9 {_process(facts)} && handoffd run"


def _socket(facts: DaemonFacts) -> Iterator[Finding]:
    if len(os.fsencode(facts.socket)) > _LONGEST_PATH:
        action = "export HANDOFFD_RUNTIME_DIR=/run/user/$(id -u)/handoffd"
        why = f"a socket's path has at most {_LONGEST_PATH} bytes, and the daemon does not start"
        yield fault(DAEMON, f"the socket's path is too long: {facts.socket}", why, action)
    for entry in facts.entries:
        place = quote(entry.path)
        if not entry.owned:
            why = "its owner can impersonate the daemon"
            yield fault(DAEMON, f"{entry.path} belongs to another account", why, f"ls -ld {place}")
        elif entry.mode & 0o077:
            right = "600" if entry.path == facts.socket else "700"
            why = f"its mode is {entry.mode:o}; strangers are refused all the same, by their account"
            yield warning(DAEMON, f"{entry.path} is open to others", why, f"chmod {right} {place}")


# --- what the machine offers, and how the daemon uses it ----------------------------------------------
SUPERVISION = "supervision"

_UNIFIED = "/sys/fs/cgroup/cgroup.controllers"
_SYSTEMD = "/run/systemd/system"
_SHOWN = 5
"""Most runs that one finding names."""


class SupervisionFacts(Struct, frozen=True, kw_only=True):
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


def supervision_facts(
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


def check_supervision(facts: SupervisionFacts) -> tuple[Finding, ...]:
    """Return protections that are available but unused, and ones that are unavailable."""
    groups = _groups(facts)
    if not facts.systemd:
        told = "no systemd: nothing restarts the daemon after a crash or a reboot"
        return (fine(SUPERVISION, f"{told}; {groups}"),)
    if facts.runs and facts.service.unit is None:
        why = "nothing restarts it after a crash or a reboot, and runs get no control group"
        there = facts.installed
        action = there.install if there.unit is None else f"handoffd stop && {there.start}"
        return (warning(SUPERVISION, "the daemon does not run as a systemd unit", why, action),)
    if found := tuple(_about_units(facts)):
        return found
    if not facts.unified:
        why = "a process that hides well can outlive its run when launcher and shim are both killed"
        action = "cat /proc/cmdline  # boot with systemd.unified_cgroup_hierarchy=1"
        return (warning(SUPERVISION, "control groups are of version 1", why, action),)
    return (fine(SUPERVISION, f"systemd; {groups}"),)


def _about_units(facts: SupervisionFacts) -> Iterator[Finding]:
    if facts.units is None:
        return
    daemon, launcher = facts.units
    alone = "agents are started in the daemon's own unit then, and end with it"
    if daemon.runs and (trouble := daemon.trouble):
        why = f"{trouble.why}; when this daemon ends, none comes after it"
        yield warning(SUPERVISION, trouble.what, why, trouble.action)
    if trouble := launcher.trouble:
        why = trouble.why if launcher.runs else f"{trouble.why}; {alone}"
        yield warning(SUPERVISION, trouble.what, why, trouble.action)
    elif daemon.runs and not (launcher.runs or launcher.starts):
        start = f"{daemon.service.systemctl} start {launcher.name}"
        yield warning(SUPERVISION, f"{launcher.name} does not run", alone, start)
    if idle := [unit.name for unit in (launcher, daemon) if not unit.enabled]:
        names = " ".join(idle)
        action = f"{daemon.service.systemctl} enable {names}"
        yield warning(SUPERVISION, f"not enabled: {names}", "a reboot does not bring them back", action)
    if facts.fleeting:
        why = "your last logout ends the daemon and its agents; they begin again at your next login"
        yield warning(SUPERVISION, "lingering is off", why, "loginctl enable-linger")


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
    return (fine(SUPERVISION, f"{told}, as a container may have; runs are known by either"),)


class RunPlace(Struct, frozen=True, kw_only=True):
    """A run of which something lives, and the text of that process's `cgroup`. `project` is a root."""

    run: str
    project: str | None
    cgroup: str


class PlaceFacts(Struct, frozen=True, kw_only=True):
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


def run_places(runs_dir: Path) -> tuple[RunPlace, ...]:
    """Return the cgroup of each recorded run in `runs_dir`, if it can be read."""
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
        return (warning(SUPERVISION, what + _listed(found, facts.names), why, _next(facts) + hold),)
    if facts.launcher is not None and not facts.kept and own is not None and own.runs:
        what = "agents are started in the daemon's own unit"
        why = f"a launcher of the daemon's own answers; they end when {unit} is stopped or restarted"
        return (warning(SUPERVISION, what, why, _launcher(own)),)
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


# --- whether limits of memory and tasks that are set for runs can be enforced -------------------------
CONTROLLERS = {"memory_max": "memory", "tasks_max": "pids"}
"""Which controller of the kernel a setting needs."""


class LimitFacts(Struct, frozen=True, kw_only=True):
    """`limits` are the settings that are set; `launcher`: one runs, as `service` says.

    `offered` are the controllers that runs below it could have, `on` the ones that they have.
    """

    limits: tuple[str, ...]
    launcher: bool
    service: Service
    offered: frozenset[str] = frozenset()
    on: frozenset[str] = frozenset()


def limit_facts(settings: ExecuteSettings, launcher: int | None, service: Service) -> LimitFacts:
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


def check_limits(facts: LimitFacts) -> tuple[Finding, ...]:
    """Return which limits are set and cannot be enforced, and why."""
    if not facts.limits or not facts.launcher:
        return ()
    lacking = [name for name in facts.limits if CONTROLLERS[name] not in facts.on]
    if not lacking:
        return (fine(SUPERVISION, f"{_named(facts.limits)}: enforced for each run"),)
    what = f"{_named(lacking)} cannot be enforced: agents run without"
    if facts.service.unit is None:
        why = "only under the service has each run a control group"
        return (warning(SUPERVISION, what, why, "handoffd service install"),)
    missing = [CONTROLLERS[name] for name in lacking if CONTROLLERS[name] not in facts.offered]
    if missing:
        why = f"the launcher's control group has no {' and no '.join(missing)} controller of version 2"
        return (warning(SUPERVISION, what, why, "cat /proc/cgroups /sys/fs/cgroup/cgroup.controllers"),)
    why = "the launcher's unit was written by a release without these limits"
    return (warning(SUPERVISION, what, why, facts.service.install),)


def _named(limits: tuple[str, ...] | list[str]) -> str:
    return " and ".join(f"execute.{name}" for name in limits)


def _controllers(place: str | None, name: str) -> frozenset[str]:
    try:
        text = "" if place is None else Path(place, name).read_text("ascii")
    except OSError:
        text = ""
    return frozenset(text.split())
