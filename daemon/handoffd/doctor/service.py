"""How the daemon is run here, and so which commands start it, start it again, and show its log."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from handoffd.settings.paths import default_files, default_runtime_dir, default_state_dir, home

_DIRECTORIES = ("HANDOFFD_STATE_DIR", "HANDOFFD_RUNTIME_DIR")
SYSTEM_UNITS = Path("/etc/systemd/system")

_UNIT = "handoffd"
_OF_ACCOUNT = re.compile(r"/(?:run|var/lib)/handoffd/([^/]+)/?")
"""Where the unit of an account has its sockets and its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The unit that runs the daemon, of the machine if it has an `account`; none: it is run in a terminal."""

    unit: str | None
    account: str | None = None

    @property
    def start(self) -> str:
        """The command that starts the daemon."""
        return "handoffd run" if self.unit is None else f"{self.systemctl} start {self.unit}"

    @property
    def restart(self) -> str:
        """The command that replaces the daemon and its launcher by the program that is installed now."""
        if self.unit is None:
            return "handoffd stop && handoffd run"
        return f"{self.systemctl} reload-or-restart {self.launcher} && {self.systemctl} restart {self.unit}"

    @property
    def launcher(self) -> str:
        """The unit of the launcher."""
        return (self.unit or _UNIT).replace(_UNIT, f"{_UNIT}-launcher", 1)

    @property
    def install(self) -> str:
        """The command that writes the units anew."""
        system = f" --system --user {self.account}" if self.account else ""
        return f"{'sudo ' if self.account else ''}handoffd service install{system}"

    @property
    def elsewhere(self) -> str:
        """Why a command that names no directories does not reach the daemon of an account's unit."""
        return f"{self.unit} is the service of {self.account}, and keeps its state and its socket elsewhere"

    def ask(self, command: str) -> str:
        """Return how `command` is typed for the daemon of an account's unit, by the account or by another."""
        places = f"HANDOFFD_STATE_DIR=/var/lib/handoffd/{self.account}"
        places += f" HANDOFFD_RUNTIME_DIR=/run/handoffd/{self.account}"
        return f"{'' if self.account == _asker() else f'sudo -u {self.account} '}env {places} {command}"

    @property
    def log(self) -> str:
        """The command that shows what the daemon and systemd have said last."""
        return f"{'sudo journalctl' if self.account else 'journalctl --user'} -u {self.unit} -n 30"

    @property
    def mend_path(self) -> str:
        """The command that gives the daemon the PATH of the terminal it is typed in."""
        if self.unit is None:
            return self.restart
        return f'{self.install} --path "$PATH"'

    def allow_files(self, pid: int | None) -> str:
        """Return the command that lets the daemon have more files open."""
        if self.unit is not None:
            return f"{self.systemctl} edit {self.unit}  # [Service] LimitNOFILE=65536, then {self.restart}"
        return f"sudo prlimit --nofile=65536:65536 --pid {'$$' if pid is None else pid}"

    def runs(self, pid: int) -> bool:
        """Whether a process is in the unit that runs the daemon, which systemd ends as a whole."""
        return self.unit is not None and unit_in(membership(pid)) == self

    @property
    def systemctl(self) -> str:
        """What a command to its service manager begins with."""
        return "sudo systemctl" if self.account else "systemctl --user"


def unit_file_of(environ: Mapping[str, str]) -> Path:
    """Return where a person's unit of the daemon is, if there is one."""
    return Path(home(environ), ".config/systemd/user/handoffd.service")


def installed(
    environ: Mapping[str, str], config: str | None = None, system_units: Path = SYSTEM_UNITS
) -> Service:
    """Return the unit that runs the daemon which commands with `environ` and the file `config` are for.

    Directories that are named there, and are not a unit's, belong to a daemon that is run in a terminal.
    """
    named = [environ[name] for name in _DIRECTORIES if environ.get(name)]
    for match in filter(None, map(_OF_ACCOUNT.fullmatch, named)):
        unit = f"{_UNIT}@{match[1]}"
        if (system_units / f"{unit}.service").exists():
            return Service(unit=unit, account=match[1])
    return Service(unit=_UNIT if _is_meant(unit_file_of(environ), environ, config) else None)


def of_machine(environ: Mapping[str, str], system_units: Path = SYSTEM_UNITS) -> Service | None:
    """Return the machine's service that a question was meant for; None if `environ` names directories.

    That is the service of the account that asks, and for root, under whom none runs, the first there is.
    """
    if any(environ.get(name) for name in _DIRECTORIES):
        return None
    accounts = sorted(path.stem.partition("@")[2] for path in system_units.glob(f"{_UNIT}@?*.service"))
    if os.geteuid() != 0:
        accounts = [account for account in accounts if account == _asker()]
    return Service(unit=f"{_UNIT}@{accounts[0]}", account=accounts[0]) if accounts else None


def _asker() -> str | None:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None


def _is_meant(unit_file: Path, environ: Mapping[str, str], config: str | None) -> bool:
    try:
        text = unit_file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    state, runtime = environ.get("HANDOFFD_STATE_DIR"), environ.get("HANDOFFD_RUNTIME_DIR")
    own_state = default_state_dir(environ)
    own_runtime = (default_runtime_dir(environ, own_state), f"/run/user/{os.getuid()}/handoffd")
    return (
        (not state or Path(state) == Path(own_state) or f'"HANDOFFD_STATE_DIR={state}"' in text)
        and (not runtime or Path(runtime) in map(Path, own_runtime))
        and (config is None or Path(config).absolute() in map(Path, default_files(environ)))
    )


def service_of(pid: int | None, there: Service) -> Service:
    """Return how the daemon of process `pid` is run; without one, the unit that is `there` would run it."""
    if pid is None:
        return there
    return unit_in(membership(pid))


def membership(pid: int) -> str:
    """Return the text of a process's `cgroup`; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cgroup").read_text(errors="replace")
    except OSError:
        return ""


def path_in(unit_file: Path) -> str | None:
    """Return the PATH that a unit gives its daemon; None without one."""
    try:
        text = unit_file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    found = re.findall(r'^Environment="PATH=(.*)"$', text, re.MULTILINE)
    return re.sub(r"\\(.)", r"\1", found[-1]).replace("%%", "%") if found else None


def unit_in(cgroup: str) -> Service:
    """Return the unit that is named in the text of a process's `cgroup`."""
    for line in cgroup.splitlines():
        name, dot, _ = os.path.basename(line).partition(".service")
        unit, at, account = name.partition("@")
        if dot and unit == _UNIT:
            return Service(unit=name, account=account if at else None)
    return Service(unit=None)
