"""How the daemon is run here: the commands that start it and show its log, and what systemd says of it.

systemd says `status=243/CREDENTIALS` in a log; what that means for handoffd, and what to type about it,
is known here. systemctl and loginctl are run as programs, and only if no daemon answers, or by `doctor` and
`service`. Nothing here speaks D-Bus: the programs exist on every system with systemd, and their `show` output
is made for machines.
"""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import join, quote

from msgspec import Struct

from handoffd.engine.wording import counted
from handoffd.errors import Refused
from handoffd.settings.paths import default_files, default_runtime_dir, default_state_dir, home

_DIRECTORIES = ("HANDOFFD_STATE_DIR", "HANDOFFD_RUNTIME_DIR")
SYSTEM_UNITS = Path("/etc/systemd/system")

_UNIT = "handoffd"
_OF_ACCOUNT = re.compile(r"/(?:run|var/lib)/handoffd/([^/]+)/?")
"""Where the unit of an account has its sockets and its state."""


class Service(Struct, frozen=True, kw_only=True):
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
    def is_orphaned(self) -> bool:
        """Whether its account was deleted."""
        return self.account is not None and not _is_account(self.account)

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

    @property
    def analyze(self) -> str:
        """What a command begins with that judges its units."""
        return "systemd-analyze" if self.account else "systemd-analyze --user"


def unit_file_of(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's unit of the daemon, if there is one."""
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
    """Return the first of the machine's services that a question may have been meant for."""
    return next(iter(all_of_machine(environ, system_units)), None)


def all_of_machine(environ: Mapping[str, str], system_units: Path = SYSTEM_UNITS) -> tuple[Service, ...]:
    """Return the machine's services that a question may have been meant for.

    Root, under whom none runs, may have meant each that there is, others that of their account, and
    who names directories in `environ` none.
    """
    if any(environ.get(name) for name in _DIRECTORIES):
        return ()
    accounts = sorted(path.stem.partition("@")[2] for path in system_units.glob(f"{_UNIT}@?*.service"))
    if os.geteuid() != 0:
        accounts = [account for account in accounts if account == _asker()]
    return tuple(Service(unit=f"{_UNIT}@{account}", account=account) for account in accounts)


def _asker() -> str | None:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None


def _is_account(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


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


# --- the units, by their manager's word ---------------------------------------------------------------
ASK_S = 3.0
"""How long a manager may take to answer."""

_EXITED = 1
_TOO_OFTEN = "start-limit-hit"
_OUR_DROP_IN = "credentials.conf"
_CREDENTIAL = re.compile(r"^LoadCredential(?:Encrypted)?=([^:\n]+):(.*)$", re.MULTILINE)
_RESULTS = {
    "oom-kill": "the kernel ended it for want of memory",
    "protocol": "it ended before it was ready",
    "resources": "systemd lacked what it needs to start it",
    _TOO_OFTEN: "it was started too often in a short time",
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
    238: ("STATE_DIRECTORY", "systemd cannot create its state directory"),
    243: ("CREDENTIALS", "systemd cannot read a credential"),
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


class Trouble(Struct, frozen=True, kw_only=True):
    """What is wrong, why (empty where no unit tells), and what to type."""

    what: str
    why: str
    action: str


class Unit(Struct, frozen=True, kw_only=True):
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
    def hindrance(self) -> Trouble | None:
        """Why its daemon need not be asked: what keeps it from running, or that its account is gone."""
        if not self.runs and (trouble := self.trouble):
            return trouble
        if not self.service.is_orphaned:
            return None
        why, look = self._without_account()
        return Trouble(what=f"{self.name} cannot be asked", why=why, action=f"{look}  # then: {self.start}")

    @property
    def stopped(self) -> bool:
        """Whether a person has stopped it, or not started it yet."""
        return self.shown.get("ActiveState") == "inactive" and self.trouble is None

    @property
    def refuses_settings(self) -> bool:
        """Whether it has failed because its settings cannot be used."""
        return self.shown.get("ActiveState") == "failed" and self.shown.get("ExecMainStatus") == str(
            _SETTINGS
        )

    def deaf(self, socket: str) -> str:
        """Return what is so where its daemon runs and does not listen at its socket."""
        return f"{self.name} runs, and nothing answers at {socket}, as after that was removed"

    @property
    def main_pid(self) -> int | None:
        """Its main process."""
        text = self.shown.get("MainPID", "")
        return int(text) or None if text.isdigit() else None

    @property
    def _drop_ins(self) -> list[str]:
        return self.shown.get("DropInPaths", "").split()

    @property
    def _waits(self) -> bool:
        """Whether it has ended, and systemd lets some time pass before it counts a restart."""
        return self.shown.get("SubState") == "auto-restart"

    @property
    def _restarts(self) -> int:
        text = self.shown.get("NRestarts", "")
        return int(text) if text.isdigit() else 0

    @property
    def start(self) -> str:
        """The command that starts it; after many starts systemd refuses it until they are forgotten."""
        systemctl = self.service.systemctl
        refused = self._restarts or self.shown.get("Result") == _TOO_OFTEN  # by a person it counts no restart
        forgotten = f"{systemctl} reset-failed {self.name} && " if refused else ""
        return f"{forgotten}{systemctl} start {self.name}"

    def _told(self, what: str) -> Trouble:
        why, look = self._cause()
        starts = look in (self.service.install, self.start)  # without another command
        return Trouble(what=what, why=why, action=look if starts else f"{look}  # then: {self.start}")

    def _unloaded(self, how: str) -> Trouble:
        again = "runs, and cannot be started again" if self.runs else "cannot be started"
        why, repair = f"systemd cannot use its file ({how})", self.service.install
        if how == "masked":
            repair = f"{self.service.systemctl} unmask {self.name}"
        elif how != "not-found" and (others := self._drop_ins_of_others()):
            why = f"systemd cannot use its files ({how}), and handoffd did not write {' and '.join(others)}"
            repair = f"{self.service.analyze} verify {self.name}.service  # then: {self._edited(others)}"
        return Trouble(what=f"{self.name} {again}", why=why, action=repair)

    def _drop_ins_of_others(self) -> list[str]:
        """Return the drop-ins that `service install` has not written, and leaves alone."""
        return [path for path in self._drop_ins if os.path.basename(path) != _OUR_DROP_IN]

    def _edited(self, drop_ins: Sequence[str]) -> str:
        """Return the commands that open drop-ins and reload systemd."""
        systemctl, names = self.service.systemctl, " ".join(map(quote, drop_ins))
        editor = "sudoedit" if self.service.account else "${EDITOR:-vi}"
        edit = f"{editor} {names} && {systemctl} daemon-reload"
        if [os.path.basename(path) for path in drop_ins] == ["override.conf"]:
            edit = f"{systemctl} edit {self.name}"
        return f"{edit} && {systemctl} {'restart' if self.runs else 'start'} {self.name}"

    def _cause(self) -> tuple[str, str]:
        """Return why it ended, and what to look at."""
        result, status = self.shown.get("Result", ""), self.shown.get("ExecMainStatus", "")
        number = int(status) if status.isdigit() else 0
        log = self.service.log.replace(f"-u {self.service.unit}", f"-u {self.name}")
        if result in _RESULTS:
            meant = result == _TOO_OFTEN and not self._restarts  # a person started it each time
            return _RESULTS[result], self.start if meant else log
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

    def _without_account(self) -> tuple[str, str]:
        """Return that its account is gone, and what to look at."""
        account = self.service.account or str(os.getuid())
        return f"the account {account} does not exist", f"getent passwd {quote(account)}"

    def _detailed(self, number: int, why: str) -> str:
        if number == 217 and self.service.account:
            return self._without_account()[0]
        if number == 243 and (missing := [one for one in self._credentials() if _is_missing(one[1])]):
            return "; ".join(
                f"the credential {name} is missing: there is no {file}" for name, file in missing
            )
        return why

    def _remedy(self, number: int) -> str | None:
        if number in (203, 226):
            return self.service.install
        if number == 217:
            return self._without_account()[1]
        if number == 243 and (files := [quote(str(file)) for _, file in self._credentials()]):
            return f"{'sudo ' if self.service.account else ''}ls -l {' '.join(files)}"
        return None

    def _credentials(self) -> list[tuple[str, Path]]:
        """Return the credentials that its files name, and where each comes from."""
        found: dict[str, Path] = {}
        for path in (self.shown.get("FragmentPath", ""), *self._drop_ins):
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


def elsewhere(environ: Mapping[str, str], system_units: Path = SYSTEM_UNITS) -> tuple[Unit, ...]:
    """Return the daemons' units of the machine's services, as `all_of_machine` has them."""
    services = all_of_machine(environ, system_units)
    found = [(service, units_of(service, environ)) for service in services]
    return tuple(
        Unit(name=service.unit or _UNIT, service=service, shown={}) if units is None else units[0]
        for service, units in found
    )


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


# --- systemctl and loginctl ---------------------------------------------------------------------------
# A unit of Type=notify makes `systemctl start` wait; the units allow 120 s for that.
LIMIT_S = 150.0

_SHOWN = (
    "Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID", "StatusText", "NRestarts",
    "Result", "ExecMainCode", "ExecMainStatus", "FragmentPath", "DropInPaths", "TasksCurrent",
    "MemoryCurrent",
)  # fmt: skip


class Completed(Struct, frozen=True, kw_only=True):
    """How a program ended. `code` 127: it is not there, 124: it took too long."""

    argv: tuple[str, ...]
    code: int
    output: str = ""
    error: str = ""

    @property
    def why(self) -> str:
        """The last line of what it complained about, for people."""
        lines = (self.error.strip() or self.output.strip()).splitlines()
        return lines[-1] if lines else f"exit code {self.code}"


class Commands:
    """Runs programs with the environment it was given, each for at most `limit_s` seconds.

    They are found on the PATH of that, and a failure of theirs comes back as a value: what it means is for
    the verb to say.
    """

    def __init__(self, environment: Mapping[str, str], limit_s: float = LIMIT_S) -> None:
        self._environment = dict(environment)
        self._limit_s = limit_s

    def run(self, argv: tuple[str, ...]) -> Completed:
        """Return how `argv` ended."""
        try:
            done = subprocess.run(
                argv, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", timeout=self._limit_s, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            return Completed(argv=argv, code=127, error=f"{argv[0]}: not found")
        except subprocess.TimeoutExpired:
            return Completed(argv=argv, code=124, error=f"{argv[0]}: no answer in {self._limit_s:.0f} s")
        return Completed(argv=argv, code=done.returncode, output=done.stdout, error=done.stderr)


class Systemctl:
    """One service manager: the machine's, or (`user`) the user's own."""

    def __init__(self, commands: Commands, *, user: bool) -> None:
        self._commands = commands
        self._prefix = ("systemctl", "--user") if user else ("systemctl",)

    def argv(self, *words: str) -> tuple[str, ...]:
        """Return the whole command for `words`."""
        return (*self._prefix, *words)

    def show(self, units: tuple[str, ...]) -> dict[str, dict[str, str]]:
        """Return the properties of `units` by name; Refused when the manager does not answer."""
        done = self._commands.run(self.argv("show", f"--property={','.join(_SHOWN)}", *units))
        if done.code != 0:
            raise Refused(f"systemd does not answer: {done.why}", hint=self.hint(done))
        blocks = [dict(_pairs(block)) for block in done.output.strip().split("\n\n")]
        return {block["Id"]: block for block in blocks if "Id" in block}

    def hint(self, failed: Completed) -> str | None:
        """Return the next command to type after a failure of the manager itself."""
        if "connect to bus" in failed.error.lower():
            # Typical of `su` and `sudo -u`: a shell without a session of its own.
            return 'sudo loginctl enable-linger "$USER" && export XDG_RUNTIME_DIR=/run/user/$(id -u)'
        refused = "denied" in failed.error.lower() or "authentication" in failed.error.lower()
        if refused and "--user" not in failed.argv:  # root has another manager of that kind
            return f"sudo {join(failed.argv)}"
        return None


def lingers(commands: Commands, person: str) -> bool | None:
    """Return whether the units of a user (name or uid) outlive the last logout; None if unknown."""
    done = commands.run(("loginctl", "show-user", person, "--property=Linger", "--value"))
    return done.output.strip() == "yes" if done.code == 0 else None


def _pairs(block: str) -> list[tuple[str, str]]:
    lines = (line.partition("=") for line in block.splitlines())
    return [(name, value) for name, equals, value in lines if equals]
