"""`handoffd service`: the daemon as a systemd service, of a person or of an account.

Every verb first makes a plan (files, then commands) and then carries it out; `--dry-run` prints the
plan instead. Installing twice changes nothing the second time, and uninstalling touches
only files that carry our mark. State is never touched.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

import click

from handoffd.cli import service_report, unitfiles
from handoffd.cli.service_scope import Machine, Scope, enable_linger, lingers
from handoffd.errors import NoDaemon, Refused


def _scoped(command: Any) -> Any:
    """Add the options every verb of this group has."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--user", "account", metavar="ACCOUNT", help="With --system: the account it runs as."),
        click.option("--system", is_flag=True, help="Under the machine's systemd, for one account."),
    ):
        command = option(command)
    return command


@click.group()
def service() -> None:
    """Install, remove or show the daemon as a systemd service."""


@service.command()
@click.option("--dry-run", is_flag=True, help="Print what would be done; do nothing.")
@click.option("--no-start", is_flag=True, help="Write the unit files only.")
@click.option("--path", help="PATH of the daemon and its agents (default: yours, or the account's).")
@_scoped
@click.pass_context
def install(
    context: click.Context,
    /,
    *,
    system: bool,
    account: str | None,
    path: str | None,
    as_json: bool,
    **how: bool,
) -> None:
    """Write the unit files, then enable and start them."""
    scope = _scope(context, system=system, account=account)
    if not how["dry_run"] and not how["no_start"]:
        files_only = f"{scope.command('install')} --no-start"
        scope.require_systemd(f"handoffd run  # or write the files only: {files_only}")
    files = [(file, _differs(file)) for file in _wanted(scope, path)]
    commands = [] if how["no_start"] else _start_commands(scope, files)
    report: dict[str, Any] = {
        **service_report.heading(scope, dry_run=how["dry_run"]),
        "files": [{"path": str(file.path), "changed": changed, "text": file.text} for file, changed in files],
        "commands": [list(argv) for argv in commands],
        "next": _activation(scope) if how["no_start"] else scope.command("status"),
    }
    if not how["dry_run"]:
        _write(scope, [file for file, changed in files if changed])
        _run_all(scope, commands)
    if scope.account is None and not how["no_start"]:
        report["linger"] = enable_linger(scope, dry_run=how["dry_run"])
    _print(report, as_json, service_report.installed_text(report))


@service.command()
@click.option("--dry-run", is_flag=True, help="Print what would be done; do nothing.")
@_scoped
@click.pass_context
def uninstall(
    context: click.Context, *, system: bool, account: str | None, as_json: bool, dry_run: bool
) -> None:
    """Stop, disable and remove what `install` wrote; state stays."""
    scope = _scope(context, system=system, account=account)
    found = [name for name in reversed(scope.names) if (scope.folder / name).exists()]
    ours = [name for name in found if _is_ours(scope.folder / name)]
    commands: list[tuple[str, ...]] = []
    if ours and scope.machine.systemd.is_dir():
        commands = [scope.systemctl.argv("disable", "--now", name) for name in ours]
    if not dry_run:
        _run_all(scope, commands)
        _remove(scope, ours)
        if commands:
            _run_all(scope, [scope.systemctl.argv("daemon-reload")])
    report = {
        **service_report.heading(scope, dry_run=dry_run),
        "removed": [str(scope.folder / name) for name in ours],
        "kept": [str(scope.folder / name) for name in found if name not in ours],
        "commands": [list(argv) for argv in (*commands, *_reload_after(scope, commands))],
    }
    _print(report, as_json, service_report.uninstalled_text(report))


@service.command()
@_scoped
@click.pass_context
def status(context: click.Context, *, system: bool, account: str | None, as_json: bool) -> None:
    """Show whether both units run. Exit code 3: the daemon does not."""
    scope = _scope(context, system=system, account=account)
    scope.require_systemd("handoffd status  # asks a daemon that runs in a terminal")
    shown = scope.systemctl.show(scope.names)
    report = {
        **service_report.heading(scope, dry_run=False),
        "units": [service_report.summary(name, shown.get(name, {})) for name in reversed(scope.names)],
        "linger": lingers(scope) if scope.account is None else None,
    }
    daemon = report["units"][0]
    report["next"] = service_report.next_step(scope, daemon)
    _print(report, as_json, service_report.status_text(report))
    if daemon["active"] not in ("active", "reloading"):
        context.exit(NoDaemon.exit_code)


# --- planning -----------------------------------------------------------------------------------
def _scope(context: click.Context, *, system: bool, account: str | None) -> Scope:
    if system != (account is not None):
        raise click.UsageError("--system and --user ACCOUNT belong together; leave both out for yourself")
    machine = context.find_object(Machine) or Machine(environment=os.environ)
    return Scope(account=unitfiles.find_account(account) if account else None, machine=machine)


def _wanted(scope: Scope, path: str | None) -> tuple[unitfiles.UnitFile, ...]:
    installation = scope.machine.installation or unitfiles.this_installation(sys.argv[0])
    environment = scope.machine.environment
    if scope.account is None:
        search = unitfiles.search_path(path or environment.get("PATH", os.defpath), installation.program)
        return unitfiles.user_units(scope.folder, installation, {**environment, "PATH": search})
    unitfiles.require_usable_by(scope.account, installation)
    search = unitfiles.search_path(path or unitfiles.account_path(scope.account), installation.program)
    return unitfiles.system_units(scope.folder, installation, scope.account, search)


def _differs(file: unitfiles.UnitFile) -> bool:
    """Return whether `file` must be written; Refused when somebody else's file is in its place."""
    if not file.path.exists() and not file.path.is_symlink():
        return True
    if not _is_ours(file.path):
        raise Refused(
            f"{file.path} was not written by handoffd and is left alone",
            hint=f"mv {quote(str(file.path))} {quote(str(file.path))}.before  # then install again",
        )
    return file.path.read_text(encoding="utf-8") != file.text


def _is_ours(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return unitfiles.MARK == file.readline(200).rstrip("\n")


def _start_commands(scope: Scope, files: list[tuple[unitfiles.UnitFile, bool]]) -> list[tuple[str, ...]]:
    """Return what makes systemd take up the files; a unit whose file is unchanged is not restarted.

    The reload is always there: an earlier try may have written the files and got no further.
    """
    argv = scope.systemctl.argv
    changed = [file.name for file, differs in files if differs]
    restart = [argv("try-restart", *changed)] if changed else []
    return [argv("daemon-reload"), *restart, argv("enable", "--now", *scope.names)]


def _activation(scope: Scope) -> str:
    argv = scope.systemctl.argv
    return f"{' '.join(argv('daemon-reload'))} && {' '.join(argv('enable', '--now', *scope.names))}"


def _reload_after(scope: Scope, commands: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [scope.systemctl.argv("daemon-reload")] if commands else []


# --- acting -------------------------------------------------------------------------------------
def _write(scope: Scope, files: list[unitfiles.UnitFile]) -> None:
    try:
        scope.folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            temporary = file.path.with_name(f".{file.name}.new")
            temporary.write_text(file.text, encoding="utf-8")
            temporary.chmod(0o644)
            temporary.replace(file.path)
    except OSError as error:
        hint = _as_root(scope, "install")
        raise Refused(f"{scope.folder} cannot be written: {error.strerror}", hint=hint) from error


def _remove(scope: Scope, names: list[str]) -> None:
    try:
        for name in names:
            (scope.folder / name).unlink(missing_ok=True)
    except OSError as error:
        hint = _as_root(scope, "uninstall")
        raise Refused(f"{scope.folder} cannot be changed: {error.strerror}", hint=hint) from error


def _as_root(scope: Scope, verb: str) -> str:
    """Return the verb for whoever may write there; a folder of one's own is looked at first."""
    if scope.account is None:
        return f"ls -ld {quote(str(scope.folder))}"
    return f"sudo {scope.command(verb)}"


def _run_all(scope: Scope, commands: list[tuple[str, ...]]) -> None:
    for argv in commands:
        done = scope.commands.run(argv)
        if done.code != 0:
            raise Refused(
                f"`{' '.join(argv)}` failed: {done.why}", hint=scope.systemctl.hint(done) or scope.journal
            )


def _print(report: Mapping[str, Any], as_json: bool, lines: list[str]) -> None:
    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else "\n".join(lines))
