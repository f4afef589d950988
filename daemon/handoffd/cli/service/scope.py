"""For whom a service is: the user who runs the command, or an account of this machine.

All that differs between the two (the unit's names, the folders, which systemd is asked, whether lingering
matters) is decided here, so that the verbs need not ask.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from handoffd.cli.service import unit_files
from handoffd.doctor.service import Commands, Service, Systemctl, of_machine
from handoffd.doctor.service import lingers as manager_lingers
from handoffd.errors import InvalidFile, Refused

if TYPE_CHECKING:
    from handoffd.settings.loading import Loaded


class Machine(Struct, frozen=True, kw_only=True):
    """What the verbs take from the machine; `installation` None: the one that is running.

    `root`: whether it is root who asks.
    """

    environment: Mapping[str, str]
    systemd: Path = Path("/run/systemd/system")
    system_units: Path = Path("/etc/systemd/system")
    system_state: Path = Path("/var/lib/handoffd")
    system_settings: Path = Path("/etc/handoffd")
    system_runtime: Path = Path("/run/handoffd")
    kernel: Path = Path("/proc/sys")
    installation: unit_files.Installation | None = None
    root: bool = field(default_factory=lambda: os.geteuid() == 0)


class Scope(Struct, frozen=True, kw_only=True):
    """For whom: the user who runs the command (`account` None), or an account of this machine."""

    account: str | None
    machine: Machine
    typed: str = "handoffd service"
    """The whole command line that asks."""

    @property
    def form(self) -> str:
        """`user` or `system`."""
        return "user" if self.account is None else "system"

    @property
    def names(self) -> tuple[str, str]:
        """The launcher's and the daemon's unit."""
        instance = "" if self.account is None else f"@{self.account}"
        return f"handoffd-launcher{instance}.service", f"handoffd{instance}.service"

    @property
    def service(self) -> Service:
        """The daemon's unit, for what people type about it."""
        return Service(unit=self.names[1].removesuffix(".service"), account=self.account)

    @property
    def folder(self) -> Path:
        """Where the unit files belong."""
        if self.account is not None:
            return self.machine.system_units
        return _home(self.machine.environment) / ".config/systemd/user"

    @property
    def state(self) -> Path:
        """The daemon's state directory: from the account's unit, or from the user's settings."""
        if self.account is not None:
            return self.machine.system_state / self.account
        from handoffd.settings.paths import default_state_dir

        loaded, environment = self._loaded(), self._environment
        if loaded is not None:
            return loaded.settings.state_dir
        named = environment.get("HANDOFFD_STATE_DIR")
        return Path(named or default_state_dir(environment))

    @property
    def stray_sockets(self) -> Path | None:
        """The socket folder in the user's settings, if the launcher's unit listens in another one."""
        loaded = None if self.account is not None else self._loaded()
        given = None if loaded is None else loaded.sources.get("runtime_dir")
        if loaded is None or given is None or given.kind != "file":
            return None
        return loaded.settings.runtime_dir if loaded.settings.runtime_dir != self.runtime else None

    def _loaded(self) -> Loaded | None:
        """Return the user's settings; None if they are invalid, which other commands report."""
        from handoffd.settings.loading import load

        try:
            return load({}, self._environment)
        except InvalidFile:
            return None

    @property
    def _environment(self) -> Mapping[str, str]:
        return {"HOME": str(_home(self.machine.environment)), **self.machine.environment}

    @property
    def runtime(self) -> Path:
        """Where systemd has made a folder for the sockets."""
        if self.account is not None:
            return self.machine.system_runtime / self.account
        base = self.machine.environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
        return Path(base, "handoffd")

    @property
    def settings(self) -> tuple[Path, ...]:
        """What is configured for this daemon alone."""
        if self.account is not None:
            return (self.machine.system_settings / f"{self.account}.env",)
        base = self.machine.environment.get("XDG_CONFIG_HOME") or _home(self.machine.environment) / ".config"
        return (Path(base, "handoffd"),)

    @property
    def commands(self) -> Commands:
        """Runs programs with the variables that `systemctl --user` needs to find the user's manager."""
        environment = dict(self.machine.environment)
        runtime = Path(f"/run/user/{os.getuid()}")
        if self.account is None and "XDG_RUNTIME_DIR" not in environment and runtime.is_dir():
            environment["XDG_RUNTIME_DIR"] = str(runtime)
        return Commands(environment)

    @property
    def systemctl(self) -> Systemctl:
        """The service manager that runs the units."""
        return Systemctl(self.commands, user=self.account is None)

    def command(self, verb: str) -> str:
        """Return the `handoffd service` command line for `verb` in this scope."""
        end = "" if self.account is None else f" --system --user {self.account}"
        return f"handoffd service {verb}{end}"

    @property
    def by_root(self) -> str:
        """The command that the user typed, with sudo."""
        return f"sudo {self.typed}"

    def remedy(self, path: Path | str) -> str:
        """Return the command to type if a path cannot be changed: first look at one's own path."""
        return f"ls -ld {quote(str(path))}" if self.account is None else self.by_root

    def as_account(self, command: str) -> str:
        """Return how a person types a command for the daemon of this scope."""
        return command if self.account is None else self.service.ask(command)

    @property
    def has_units(self) -> bool:
        """Whether a unit of it is written."""
        return any((self.folder / name).exists() for name in self.names)

    def require_own(self, verb: str) -> None:
        """Refuse if the user has no unit and the machine has a service that was probably meant."""
        if self.account is not None or self.has_units:
            return
        if (other := of_machine(self.machine.environment, self.machine.system_units)) is not None:
            hint = f"sudo handoffd service {verb} --system --user {other.account}"
            raise Refused(f"you have no service of your own; {other.unit} is the machine's", hint=hint)

    def require_person(self) -> None:
        """Refuse a service of root's own."""
        if self.account is None and self.machine.root:
            other = of_machine(self.machine.environment, self.machine.system_units)
            account = "ACCOUNT" if other is None else other.account
            raise Refused(
                "agents would run as root, and could do anything to this machine",
                hint=f"sudo handoffd service install --system --user {account}",
            )

    def require_systemd(self, hint: str | None) -> None:
        """Refuse where no systemd runs."""
        if not self.machine.systemd.is_dir():
            raise Refused(f"no systemd runs here ({self.machine.systemd} is missing)", hint=hint)


def enable_linger(scope: Scope, *, dry_run: bool) -> dict[str, Any]:
    """Let the user's units run without a login, or report why they cannot."""
    name = _person(scope)
    argv = ("loginctl", "enable-linger", name)
    if dry_run:
        return {"enabled": None, "command": list(argv)}
    if lingers(scope):
        return {"enabled": True, "command": None}
    done = scope.commands.run(argv)
    if done.code == 0:
        return {"enabled": True, "command": list(argv)}
    return {"enabled": False, "command": list(argv), "why": done.why, "hint": f"sudo {' '.join(argv)}"}


def lingers(scope: Scope) -> bool | None:
    """Return whether the user's units outlive the last logout; None if unknown."""
    return manager_lingers(scope.commands, _person(scope))


def _person(scope: Scope) -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return scope.machine.environment.get("USER", str(os.getuid()))


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment["HOME"]) if environment.get("HOME") else Path.home()
