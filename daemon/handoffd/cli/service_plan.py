"""What `handoffd service install` and `uninstall` are going to do, before anything is done."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from handoffd.cli import credential_files, hardening, permanence, unitfiles
from handoffd.cli.service_files import differs, is_ours
from handoffd.cli.service_scope import Scope

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installing:
    """Files with whether each must be written, then commands. `fitted`: how the daemon's unit is hardened."""

    files: tuple[tuple[unitfiles.UnitFile, bool], ...]
    commands: tuple[Command, ...]
    fitted: hardening.Fitted
    cautions: tuple[str, ...]

    @property
    def changed(self) -> list[unitfiles.UnitFile]:
        """The files that must be written."""
        return [file for file, changed in self.files if changed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uninstalling:
    """Commands, then files to remove, then commands. `kept` is what somebody else wrote.

    `last` are commands that may fail: systemd refuses to forget a failure where there was none.
    """

    before: tuple[Command, ...]
    removed: tuple[Path, ...]
    after: tuple[Command, ...]
    last: tuple[Command, ...]
    kept: tuple[Path, ...]


def installing(
    scope: Scope, *, path: str | None, plain: Sequence[str], encrypted: Sequence[str], start: bool
) -> Installing:
    """Return how the service comes to be. Raises Refused and NotFound."""
    installation = scope.machine.installation or unitfiles.this_installation(sys.argv[0])
    permanence.require_permanent(installation)
    credentials = credential_files.drop_in(scope, plain, encrypted)
    launcher, daemon = _units(scope, installation, path)
    fitted = hardening.fitted(scope, daemon.text)
    wanted = [launcher, replace(daemon, text=fitted.text), *([credentials] if credentials else [])]
    files = tuple((file, differs(file)) for file in wanted)
    return Installing(
        files=files,
        commands=_start_commands(scope, files) if start else (),
        fitted=fitted,
        cautions=(
            *permanence.cautions(installation),
            *credential_files.readable_by_others(credentials),
            *_about_sockets(scope),
        ),
    )


def _about_sockets(scope: Scope) -> list[str]:
    stray = scope.stray_sockets
    if stray is None:
        return []
    return [
        f"runtime_dir in the settings is {stray}, where no launcher listens (its unit has {scope.runtime}):"
        " agents would end with the daemon; take it out"
    ]


def _units(
    scope: Scope, installation: unitfiles.Installation, path: str | None
) -> tuple[unitfiles.UnitFile, ...]:
    environment = scope.machine.environment
    if scope.account is None:
        search = unitfiles.search_path(path or environment.get("PATH", os.defpath), installation.program)
        known = {**environment, "PATH": search}
        return unitfiles.user_units(scope.folder, installation, known)
    account = unitfiles.find_account(scope.account)
    unitfiles.require_usable_by(account, installation)
    search = unitfiles.search_path(path or unitfiles.account_path(account), installation.program)
    return unitfiles.system_units(scope.folder, installation, account, search)


def _start_commands(scope: Scope, files: Sequence[tuple[unitfiles.UnitFile, bool]]) -> tuple[Command, ...]:
    """Return what makes systemd take up the files; a unit whose files are unchanged is not restarted.

    The reload is always there: an earlier try may have written the files and got no further.
    """
    argv = scope.systemctl.argv
    changed = list(dict.fromkeys(file.name for file, differs in files if differs))
    restart = [argv("try-restart", *changed)] if changed else []
    return (argv("daemon-reload"), *restart, argv("enable", "--now", *scope.names))


def activation(scope: Scope) -> str:
    """Return what to type to have units started that were only written."""
    argv = scope.systemctl.argv
    return f"{' '.join(argv('daemon-reload'))} && {' '.join(argv('enable', '--now', *scope.names))}"


def uninstalling(scope: Scope) -> Uninstalling:
    """Return how the service ceases to be: the daemon first, then its launcher."""
    units = [scope.folder / name for name in reversed(scope.names)]
    drop_in = credential_files.path_of(scope)
    found = [path for path in (*units, drop_in) if path.exists()]
    ours = tuple(path for path in found if is_ours(path))
    argv = scope.systemctl.argv
    stopped = [path.name for path in ours if path != drop_in] if scope.machine.systemd.is_dir() else []
    return Uninstalling(
        before=tuple(argv("disable", "--now", name) for name in stopped),
        removed=ours,
        after=(argv("daemon-reload"),) if stopped else (),
        last=(argv("reset-failed", *stopped),) if stopped else (),  # else it is listed: not-found failed
        kept=tuple(path for path in dict.fromkeys((*found, *_drop_ins(units))) if path not in ours),
    )


def _drop_ins(units: Sequence[Path]) -> list[Path]:
    """Return what changes units, whoever wrote it."""
    folders = (unit.with_name(f"{unit.name}.d") for unit in units)
    return [path for folder in folders for path in sorted(folder.glob("*.conf"))]
