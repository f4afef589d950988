"""What `handoffd service install` and `uninstall` will do, before they do anything.

A plan is files and commands. Every file that is written carries our mark, and only such files are replaced
or removed. The daemon's unit is fitted to this machine: systemd is asked, by a unit of no consequence,
which of the lines that harden the daemon it can do here; the others stay in the file as comments.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from handoffd.cli.service import unit_files
from handoffd.cli.service.scope import Scope
from handoffd.doctor.service import path_in, refusal, status_name
from handoffd.errors import NotFound, Refused

Command = tuple[str, ...]


class Installing(Struct, frozen=True, kw_only=True):
    """Files with whether each must be written, then commands. `fitted`: how the daemon's unit is hardened."""

    files: tuple[tuple[unit_files.UnitFile, bool], ...]
    commands: tuple[Command, ...]
    fitted: Fitted
    cautions: tuple[str, ...]

    @property
    def changed(self) -> list[unit_files.UnitFile]:
        """The files that must be written."""
        return [file for file, changed in self.files if changed]


class Uninstalling(Struct, frozen=True, kw_only=True):
    """Commands, then files to remove, then commands. `kept` is what handoffd did not write.

    `last` are commands that may fail: systemd refuses to forget a failure where there was none.
    `unanswered`: why systemd is asked for nothing, though units of it are there.
    """

    before: tuple[Command, ...]
    removed: tuple[Path, ...]
    after: tuple[Command, ...]
    last: tuple[Command, ...]
    kept: tuple[Path, ...]
    unanswered: str | None


def installing(
    scope: Scope, *, path: str | None, plain: Sequence[str], encrypted: Sequence[str], start: bool
) -> Installing:
    """Return how the service comes to be. Raises Refused and NotFound."""
    installation = scope.machine.installation or unit_files.this_installation(sys.argv[0])
    unit_files.require_permanent(installation)
    credentials = drop_in(scope, plain, encrypted)
    fresh = unit_files.search_path(_first_path(scope), installation.program)
    kept = None if path else _kept_path(scope)
    search = unit_files.search_path(path or kept or fresh, installation.program)
    launcher, daemon = _units(scope, installation, search)
    hardened = fitted(scope, daemon.text)
    wanted = [launcher, replace(daemon, text=hardened.text), *([credentials] if credentials else [])]
    files = tuple((file, differs(file)) for file in wanted)
    return Installing(
        files=files,
        commands=_start_commands(scope, files) if start else (),
        fitted=hardened,
        cautions=(
            *unit_files.cautions(installation),
            *about_credentials(credentials),
            *_about_sockets(scope),
            *(_about_path(scope, search, fresh) if kept else ()),
        ),
    )


def _first_path(scope: Scope) -> str:
    """Return the PATH of a service that is installed for the first time."""
    if scope.account is None:
        return scope.machine.environment.get("PATH", os.defpath)
    return unit_files.account_path(unit_files.find_account(scope.account))


def _kept_path(scope: Scope) -> str | None:
    """Return the PATH that the daemon's unit has; it may have been given, and agents are found by it."""
    unit = scope.folder / scope.names[1]
    return path_in(unit) if is_ours(unit) else None


def _about_path(scope: Scope, search: str, fresh: str) -> list[str]:
    if search == fresh:
        return []
    other = '"$PATH"' if scope.account is None else quote(fresh)
    return [f"PATH stays {search}; to change it: {scope.service.install} --path {other}"]


def _about_sockets(scope: Scope) -> list[str]:
    stray = scope.stray_sockets
    if stray is None:
        return []
    return [
        f"runtime_dir in the settings is {stray}, where no launcher listens (its unit has {scope.runtime}):"
        " agents would end with the daemon; take it out"
    ]


def _units(
    scope: Scope, installation: unit_files.Installation, search: str
) -> tuple[unit_files.UnitFile, ...]:
    if scope.account is None:
        known = {**scope.machine.environment, "PATH": search}
        return unit_files.user_units(scope.folder, installation, known)
    account = unit_files.find_account(scope.account)
    unit_files.require_usable_by(account, installation)
    return unit_files.system_units(scope.folder, installation, account, search)


def _start_commands(scope: Scope, files: Sequence[tuple[unit_files.UnitFile, bool]]) -> tuple[Command, ...]:
    """Return the commands that make systemd load the files; units with unchanged files are not restarted.

    The reload is always included: an earlier try may have stopped after writing the files.
    """
    argv = scope.systemctl.argv
    changed = list(dict.fromkeys(file.name for file, differs in files if differs))
    restart = [argv("try-restart", *changed)] if changed else []
    return (argv("daemon-reload"), *restart, argv("enable", "--now", *scope.names))


def activation(scope: Scope) -> str:
    """Return what to type to have units started that were only written."""
    systemctl = scope.service.systemctl
    return f"{systemctl} daemon-reload && {systemctl} enable --now {' '.join(scope.names)}"


def uninstalling(scope: Scope) -> Uninstalling:
    """Return how the service ceases to be: the daemon first, then its launcher.

    Where its manager does not answer, files are all there is of it; Refused when something of it runs.
    """
    units = [scope.folder / name for name in reversed(scope.names)]
    drop_in = path_of(scope)
    found = [path for path in (*units, drop_in) if path.exists()]
    ours = tuple(path for path in found if is_ours(path))
    argv = scope.systemctl.argv
    stopped = [path.name for path in ours if path != drop_in] if scope.machine.systemd.is_dir() else []
    unanswered = _unanswered(scope) if stopped else None
    links = _links(scope, stopped) if unanswered else ()
    stopped = [] if unanswered else stopped
    return Uninstalling(
        before=tuple(argv("disable", "--now", name) for name in stopped),
        removed=(*ours, *links),
        after=(argv("daemon-reload"),) if stopped else (),
        last=(argv("reset-failed", *stopped),) if stopped else (),  # else it is listed: not-found failed
        kept=tuple(path for path in dict.fromkeys((*found, *_drop_ins(units))) if path not in ours),
        unanswered=unanswered,
    )


def _unanswered(scope: Scope) -> str | None:
    """Return why the manager does not answer; Refused while the launcher does."""
    try:
        scope.systemctl.show(scope.names)
    except Refused as silent:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller, suppress(OSError):
            caller.connect(str(scope.runtime / "launcher.sock"))
            raise
        return silent.message
    return None


def _links(scope: Scope, names: Sequence[str]) -> tuple[Path, ...]:
    """Return the links by which units that are enabled are started."""
    found = (path for name in names for path in sorted(scope.folder.glob(f"*.wants/{name}")))
    return tuple(path for path in found if path.is_symlink())


def _drop_ins(units: Sequence[Path]) -> list[Path]:
    """Return every drop-in of these units, ours and the user's."""
    folders = (unit.with_name(f"{unit.name}.d") for unit in units)
    return [path for folder in folders for path in sorted(folder.glob("*.conf"))]


# --- files on the disk --------------------------------------------------------------------------------
def differs(file: unit_files.UnitFile) -> bool:
    """Return whether `file` must be written; Refused if a file that is not ours has its name."""
    if not file.path.exists() and not file.path.is_symlink():
        return True
    if not is_ours(file.path):
        raise Refused(
            f"{file.path} was not written by handoffd and is left alone",
            hint=f"mv {quote(str(file.path))} {quote(str(file.path))}.before  # then install again",
        )
    return file.path.read_text(encoding="utf-8") != file.text


def is_ours(path: Path) -> bool:
    """Return whether a file carries our mark."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return unit_files.MARK == file.readline(200).rstrip("\n")


def write(scope: Scope, files: Iterable[unit_files.UnitFile]) -> None:
    """Write files, each in full; Refused without permission."""
    try:
        for file in files:
            file.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = file.path.with_name(f".{file.path.name}.new")
            temporary.write_text(file.text, encoding="utf-8")
            temporary.chmod(0o644)
            temporary.replace(file.path)
    except OSError as error:
        hint = scope.remedy(scope.folder)
        raise Refused(f"{scope.folder} cannot be written: {error.strerror}", hint=hint) from error


def remove(scope: Scope, paths: Iterable[Path]) -> None:
    """Remove files, and the folders that become empty; Refused without permission."""
    try:
        for path in paths:
            path.unlink(missing_ok=True)
            if path.parent != scope.folder:
                _remove_empty(path.parent)
    except OSError as error:
        hint = scope.remedy(scope.folder)
        raise Refused(f"{scope.folder} cannot be changed: {error.strerror}", hint=hint) from error
    if scope.account is None:  # ~/.config/systemd/user, which `install` may have made
        for folder in (scope.folder, *scope.folder.parents[:2]):
            _remove_empty(folder)


def remove_sockets(scope: Scope) -> None:
    """Remove the sockets without a listener, and their folder with the last of them.

    An account's folder is in one shared by all accounts, which is removed when it becomes empty.
    """
    folder = scope.runtime
    for name in ("control.sock", "launcher.sock"):
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            with socket.socket(socket.AF_UNIX, kind) as caller, suppress(OSError):
                try:
                    caller.connect(str(folder / name))
                except ConnectionRefusedError:
                    (folder / name).unlink()
    _remove_empty(folder)
    if scope.account is not None:
        _remove_empty(folder.parent)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # there is something else in it


# --- what systemd can do here -------------------------------------------------------------------------
# A unit that asks for what systemd cannot do here does not start at all, and systemd starts it again and
# again. In containers and under some kernels that concerns a line or two; in a user's own systemd, most of
# them need a user namespace. So the kernel's settings are read, and where a manager runs it is given a
# unit that does nothing and asks for the same lines. Where that fails, the lines are tried in halves.
_SWITCHES = (
    ("kernel/unprivileged_userns_clone", "0"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ("user/max_user_namespaces", "0"),
)
"""Files below /proc/sys, and the value with which an account may make no user namespace."""

_HARDENING = re.compile(r"^# What hardens it.*?^\[Install\]", re.MULTILINE | re.DOTALL)
_NAMESPACED = re.compile(r"^# Only with a user namespace:.*?^# End of [^\n]*\n", re.MULTILINE | re.DOTALL)
_NAMESPACE = "PrivateUsers=yes"

_NOT_SPAWNED = range(200, 256)
"""Exit codes by which systemd says that it could not do what a unit asks for (systemd.exec(5)).

Also 255, of a program that was killed: `true` does nothing that it could be killed for.
"""


class Fitted(Struct, frozen=True, kw_only=True):
    """The text of a unit that systemd can start here, and what was left out for that.

    `obstacle`: why it does without a user namespace, and without all that needs one; `left_out`: single
    lines, with the exit code by which systemd refused them.
    """

    text: str
    obstacle: str | None
    left_out: Mapping[str, int]


def fitted(scope: Scope, text: str) -> Fitted:
    """Return the daemon's unit `text` without what systemd cannot do for `scope`."""
    obstacle = kernel_obstacle(scope.machine.kernel) if scope.account is None else None
    if obstacle is not None:
        text = without_namespaces(text)
    lines = hardening_lines(text)
    # If a unit without any of them fails as well, they are not the cause.
    if _refusal(scope, lines) is None or _refusal(scope, ()) is not None:
        return Fitted(text=text, obstacle=obstacle, left_out={})
    first = [line for line in lines if line == _NAMESPACE]  # all others need it
    if first and (code := _refusal(scope, first)) is not None:
        obstacle = f"your systemd could not make one (exit status {status_name(code)})"
        text = without_namespaces(text)
        first, lines = [], hardening_lines(text)
    left_out = _refused(scope, first, [line for line in lines if line not in first])
    for line, code in left_out.items():
        comment = f"# systemd cannot do this here ({refusal(code)}): {line}"
        text = text.replace(f"\n{line}\n", f"\n{comment}\n")
    return Fitted(text=text, obstacle=obstacle, left_out=left_out)


def kernel_obstacle(settings: Path) -> str | None:
    """Return which of the kernel's `settings` (/proc/sys) forbids user namespaces, as sysctl writes it."""
    for name, value in _SWITCHES:
        try:
            found = (settings / name).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if found == value:
            return f"{name.replace('/', '.')}={value}"
    return None


def hardening_lines(text: str) -> list[str]:
    """Return the hardening lines of the unit `text`, in order; none for a launcher's unit."""
    found = _HARDENING.search(text)
    lines = found.group().splitlines()[:-1] if found else []
    return [line for line in lines if line and not line.startswith("#")]


def without_namespaces(text: str) -> str:
    """Return the unit `text` without the lines for which a user's systemd needs a user namespace."""
    return _NAMESPACED.sub("", text)


def _refused(scope: Scope, sure: Sequence[str], lines: Sequence[str]) -> dict[str, int]:
    """Return which of `lines` systemd refuses beside the accepted lines `sure`, with its exit codes."""
    code = _refusal(scope, [*sure, *lines]) if lines else None
    if code is None:
        return {}
    if len(lines) == 1:
        return {lines[0]: code}
    half = len(lines) // 2
    refused = _refused(scope, sure, lines[:half])
    kept = [line for line in lines[:half] if line not in refused]
    return refused | _refused(scope, [*sure, *kept], lines[half:])


def _refusal(scope: Scope, lines: Sequence[str]) -> int | None:
    """Return the exit code with which systemd refuses a unit with `lines`; None if it accepts them.

    Anything else, a manager that does not answer among it, is for the commands that follow to find.
    """
    if not scope.machine.systemd.is_dir():
        return None
    account = ["--user"] if scope.account is None else [f"--property=User={scope.account}"]
    properties = [f"--property={line}" for line in lines]
    how = ("--quiet", "--no-ask-password", "--wait", "--collect")
    code = scope.commands.run(("systemd-run", *how, *account, *properties, "true")).code
    return code if code in _NOT_SPAWNED else None


# --- credentials --------------------------------------------------------------------------------------
# A drop-in beside the unit has systemd hand secrets to the daemon: `LoadCredential=`, one line each. It is a
# file of its own, so that installing again keeps what was given before. It says where a secret is, and never
# holds one.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_LINE = re.compile(r"(LoadCredential(?:Encrypted)?)=([^:]+):(.*)")
_PLAIN, _ENCRYPTED = "LoadCredential", "LoadCredentialEncrypted"

Given = Mapping[str, tuple[str, str]]
"""By name of the credential: the unit's key, and the file."""


def path_of(scope: Scope) -> Path:
    """Return where the drop-in of the daemon's unit is."""
    return scope.folder / f"{scope.names[1]}.d" / "credentials.conf"


def drop_in(scope: Scope, plain: Iterable[str], encrypted: Iterable[str]) -> unit_files.UnitFile | None:
    """Return the drop-in with the credentials kept and given; None if there are none.

    Each is NAME=FILE; NAME= takes one away. Raises Refused and NotFound.
    """
    path = path_of(scope)
    given = dict(_there(path))
    for key, texts in ((_PLAIN, plain), (_ENCRYPTED, encrypted)):
        for text in texts:
            name, file = _parsed(text)
            given.pop(name, None)
            if file is not None:
                given[name] = (key, str(file))
    if not given and not path.exists():
        return None
    return unit_files.UnitFile(name=scope.names[1], path=path, text=_text(given))


def _there(path: Path) -> Given:
    return _given(path.read_text(encoding="utf-8")) if is_ours(path) else {}


def _given(text: str) -> Given:
    found = (_LINE.fullmatch(line) for line in text.splitlines())
    return {match[2]: (match[1], match[3].replace("%%", "%")) for match in found if match}


def _parsed(text: str) -> tuple[str, Path | None]:
    name, equals, file = text.partition("=")
    if not equals or not _NAME.fullmatch(name) or not file.isprintable() or file != file.strip():
        raise Refused(f"{text[:80]!r} is not of the form NAME=FILE", hint="handoffd service install --help")
    if not file:
        return name, None
    path = Path(file).expanduser().absolute()
    if not path.is_file():
        raise NotFound(f"the credential {name}: there is no file {path}", hint=f"ls -l {path.parent}")
    return name, path


def _text(given: Given) -> str:
    lines = [unit_files.MARK, "[Service]"]
    lines += [f"{key}={name}:{file.replace('%', '%%')}" for name, (key, file) in sorted(given.items())]
    return "\n".join(lines) + "\n"


def about_credentials(file: unit_files.UnitFile | None) -> list[str]:
    """Return a warning for each secret of a drop-in that is missing or readable by other accounts."""
    given = {} if file is None else _given(file.text)
    found = []
    for name, (key, text) in given.items():
        path = Path(text)
        if not path.is_file():
            found.append(
                f"the credential {name}: there is no file {path}, and without it the daemon cannot start"
            )
        elif key == _PLAIN and path.stat().st_mode & 0o077:
            found.append(f"{path} can be read by other accounts: chmod 600 {path}")
    return found
