"""How the daemon is run here, and so which commands start it, start it again, and show its log."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from handoffd.directories import default_files

_UNIT = "handoffd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The unit that runs the daemon, of the machine if it has an `account`; none: it is run in a terminal."""

    unit: str | None
    account: str | None = None

    @property
    def start(self) -> str:
        """The command that starts the daemon."""
        return "handoffd run" if self.unit is None else f"{self._systemctl} start {self.unit}"

    @property
    def restart(self) -> str:
        """The command that replaces the daemon and its launcher by the program that is installed now."""
        if self.unit is None:
            return "handoffd stop && handoffd run"
        launcher = self.unit.replace(_UNIT, f"{_UNIT}-launcher", 1)
        return f"{self._systemctl} restart {launcher} {self.unit}"

    @property
    def mend_path(self) -> str:
        """The command that gives the daemon the PATH of the terminal it is typed in."""
        if self.unit is None:
            return self.restart
        system = f"--system --user {self.account} " if self.account else ""
        sudo = "sudo " if self.account else ""
        return f'{sudo}handoffd service install {system}--path "$PATH"'

    def allow_files(self, pid: int | None) -> str:
        """Return the command that lets the daemon have more files open."""
        if self.unit is not None:
            return f"{self._systemctl} edit {self.unit}  # [Service] LimitNOFILE=65536, then {self.restart}"
        return f"sudo prlimit --nofile=65536:65536 --pid {'$$' if pid is None else pid}"

    @property
    def _systemctl(self) -> str:
        return "sudo systemctl" if self.account else "systemctl --user"


def unit_file_of(environ: Mapping[str, str]) -> Path:
    """Return where a person's unit of the daemon is, if there is one."""
    return default_files(environ)[0].parents[1] / "systemd/user/handoffd.service"


def service_of(pid: int | None, unit_file: Path) -> Service:
    """Return how the daemon of process `pid` is run; without one, by whether `unit_file` is there."""
    if pid is None:
        return Service(unit=_UNIT if unit_file.exists() else None)
    try:
        return unit_in(Path(f"/proc/{pid}/cgroup").read_text(errors="replace"))
    except OSError:
        return Service(unit=None)


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
