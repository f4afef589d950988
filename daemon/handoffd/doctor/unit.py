"""How the units of the service are, by their manager's word, in plain English and with the next command.

systemd says `status=243/CREDENTIALS` in a log; what that means for handoffd, and what to type about it,
is known here. Asked only where no daemon answers, or by `doctor` and `service status`.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from handoffd.doctor.service import Service
from handoffd.doctor.systemctl import Commands, Systemctl, lingers
from handoffd.engine.usage import counted
from handoffd.errors import Refused

ASK_S = 3.0
"""How long a manager may take to answer."""

_EXITED = 1
_CREDENTIAL = re.compile(r"^LoadCredential(?:Encrypted)?=([^:\n]+):(.*)$", re.MULTILINE)
_RESULTS = {
    "oom-kill": "the kernel ended it for want of memory",
    "protocol": "it ended before it was ready",
    "resources": "systemd lacked what it needs to start it",
    "start-limit-hit": "it was started too often in a short time",
    "timeout": "it took longer than its unit allows",
    "watchdog": "it hung, and systemd ended it",
}
_BY_SYSTEMD = {
    200: ("CHDIR", "its working directory cannot be entered"),
    203: ("EXEC", "its program cannot be executed: it was moved or removed, or its Python was"),
    216: ("GROUP", "its group cannot be used"),
    217: ("USER", "its account does not exist"),
    218: ("CAPABILITIES", "capabilities cannot be dropped as its unit asks"),
    219: ("CGROUP", "its control group cannot be used"),
    226: ("NAMESPACE", "this machine cannot shut it off from the rest of the system as its unit asks"),
    227: ("NO_NEW_PRIVILEGES", "new privileges cannot be ruled out as its unit asks"),
    228: ("SECCOMP", "system calls cannot be filtered as its unit asks"),
    232: ("ADDRESS_FAMILIES", "the kinds of its sockets cannot be restricted as its unit asks"),
    233: ("RUNTIME_DIRECTORY", "the folder for its sockets cannot be made"),
    237: ("KEYRING", "it cannot be given a keyring as its unit asks"),
    238: ("STATE_DIRECTORY", "the folder for its state cannot be made"),
    243: ("CREDENTIALS", "a credential cannot be had"),
}
"""Exit statuses by which systemd says that it could not start a program (systemd.exec(5))."""

_SETTINGS = 78


def status_name(number: int) -> str:
    """Return an exit status as systemd writes it: with its name where systemd gave it, `226/NAMESPACE`."""
    return f"{number}/{_BY_SYSTEMD[number][0]}" if number in _BY_SYSTEMD else str(number)


def refusal(number: int) -> str:
    """Return why systemd could not start a program, by the exit status that it gave: `226/NAMESPACE: ...`."""
    if number not in _BY_SYSTEMD:
        return f"exit status {number}"
    return f"{status_name(number)}: {_BY_SYSTEMD[number][1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What is wrong with a unit, why, and what to type."""

    what: str
    why: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One unit as `systemctl show` has it. `name` has no `.service`, `service` is the one it belongs to."""

    name: str
    service: Service
    shown: Mapping[str, str]

    @property
    def runs(self) -> bool:
        """Whether its program runs, for all that systemd knows."""
        return self.shown.get("ActiveState") in ("active", "reloading")

    @property
    def enabled(self) -> bool:
        """Whether it comes back after a reboot."""
        return self.shown.get("UnitFileState") == "enabled"

    @property
    def starts(self) -> bool:
        """Whether it is just being started, for the first time."""
        return self.shown.get("ActiveState") == "activating" and not (self._restarts or self._waits)

    @property
    def trouble(self) -> Trouble | None:
        """What keeps it from running; None when it runs, or was stopped by a person."""
        state, times = self.shown.get("ActiveState"), self._restarts
        if self.shown.get("LoadState") not in ("loaded", None):
            return self._unloaded(self.shown["LoadState"])
        if state == "failed":
            tries = f" after {counted(times, 'restart')}, and systemd has given up" if times else ""
            return self._told(f"{self.name} failed{tries}")
        if state == "activating" and times:
            return self._told(
                f"systemd starts {self.name} again and again, {counted(times, 'restart')} so far"
            )
        if self._waits:
            return self._told(f"{self.name} failed, and systemd will start it again")
        return None

    @property
    def _waits(self) -> bool:
        """Whether it has ended, and systemd lets some time pass before it counts a restart."""
        return self.shown.get("SubState") == "auto-restart"

    @property
    def _restarts(self) -> int:
        text = self.shown.get("NRestarts", "")
        return int(text) if text.isdigit() else 0

    @property
    def _start(self) -> str:
        """The command that starts it; after many failures systemd refuses it until they are forgotten."""
        systemctl = self.service.systemctl
        forgotten = f"{systemctl} reset-failed {self.name} && " if self._restarts else ""
        return f"{forgotten}{systemctl} start {self.name}"

    def _told(self, what: str) -> Trouble:
        why, look = self._cause()
        starts = look == self.service.install  # by itself
        return Trouble(what=what, why=why, action=look if starts else f"{look}  # then: {self._start}")

    def _unloaded(self, how: str) -> Trouble:
        why = f"systemd cannot use its file ({how})"
        mend = f"{self.service.systemctl} unmask {self.name}" if how == "masked" else self.service.install
        return Trouble(what=f"{self.name} cannot be started", why=why, action=mend)

    def _cause(self) -> tuple[str, str]:
        """Return why it ended, and what to look at."""
        result, status = self.shown.get("Result", ""), self.shown.get("ExecMainStatus", "")
        number = int(status) if status.isdigit() else 0
        log = self.service.log.replace(f"-u {self.service.unit}", f"-u {self.name}")
        if result in _RESULTS:
            return _RESULTS[result], log
        if not number:  # it is being started again, and so how it ended last is forgotten
            return "the log says why", log
        if self.shown.get("ExecMainCode") not in (None, "", str(_EXITED)):
            return f"{_signal(number)} ended it", log
        if number == _SETTINGS:
            return f"its settings cannot be used (exit status {number}); the log says which", log
        if number not in _BY_SYSTEMD:
            return f"it ended with exit status {number}; the log says why", log
        why = self._detailed(number, _BY_SYSTEMD[number][1])
        return f"{why} (exit status {status_name(number)})", self._remedy(number) or log

    def _detailed(self, number: int, why: str) -> str:
        if number == 217 and self.service.account:
            return f"the account {self.service.account} does not exist"
        if number == 243 and (missing := [one for one in self._credentials() if _is_missing(one[1])]):
            return "; ".join(
                f"the credential {name} is missing: there is no {file}" for name, file in missing
            )
        return why

    def _remedy(self, number: int) -> str | None:
        if number in (203, 226):
            return self.service.install
        if number == 217:
            return f"getent passwd {quote(self.service.account or str(os.getuid()))}"
        if number == 243 and (files := [quote(str(file)) for _, file in self._credentials()]):
            return f"{'sudo ' if self.service.account else ''}ls -l {' '.join(files)}"
        return None

    def _credentials(self) -> list[tuple[str, Path]]:
        """Return the credentials that its files name, and where each comes from."""
        found: dict[str, Path] = {}
        for path in (self.shown.get("FragmentPath", ""), *self.shown.get("DropInPaths", "").split()):
            try:
                text = Path(path).read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            found |= {name: Path(file.replace("%%", "%")) for name, file in _CREDENTIAL.findall(text)}
        return list(found.items())


def units_of(service: Service, environ: Mapping[str, str]) -> tuple[Unit, Unit] | None:
    """Return the daemon's and the launcher's unit; None without a service or an answer."""
    if service.unit is None:
        return None
    names = (service.unit, service.launcher)
    runtime = f"/run/user/{os.getuid()}"  # also from a shell that has no session of its own
    there = {"XDG_RUNTIME_DIR": runtime} if os.path.isdir(runtime) else {}
    manager = Systemctl(Commands({**there, **environ}, ASK_S), user=service.account is None)
    try:
        shown = manager.show(tuple(f"{name}.service" for name in names))
    except Refused:
        return None
    daemon, launcher = (
        Unit(name=name, service=service, shown=shown.get(f"{name}.service", {})) for name in names
    )
    return daemon, launcher


def ends_at_logout(service: Service, environ: Mapping[str, str]) -> bool:
    """Tell whether the last logout of the person who asks ends the units, as far as can be known."""
    if service.unit is None or service.account is not None:
        return False
    return lingers(Commands(environ, ASK_S), str(os.getuid())) is False


def _is_missing(file: Path) -> bool:
    """Tell whether there is no such file, as far as this account may see that."""
    try:
        file.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def _signal(number: int) -> str:
    try:
        return f"the signal {signal.Signals(number).name}"
    except ValueError:
        return f"the signal {number}"
