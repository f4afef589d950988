"""`handoffd service`: the daemon as a systemd service, of a person or of an account.

Every verb first makes a plan (files, then commands) and then carries it out; `--dry-run` prints the
plan instead. Installing twice changes nothing the second time, and uninstalling touches
only files that carry our mark. State is not touched without --purge.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import click

from handoffd.cli import purging, service_files, service_plan, service_report, unitfiles
from handoffd.cli.service_scope import Machine, Scope, enable_linger, lingers
from handoffd.errors import NoDaemon, NotFound, Refused


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
@click.option(
    "--credential",
    "plain",
    metavar="NAME=FILE",
    multiple=True,
    help="A secret for the settings ({credential: NAME}), read by systemd; NAME= takes it away.",
)
@click.option(
    "--encrypted-credential",
    "encrypted",
    metavar="NAME=FILE",
    multiple=True,
    help="The same, of a file made by systemd-creds.",
)
@_scoped
@click.pass_context
def install(
    context: click.Context, /, *, system: bool, account: str | None, as_json: bool, dry_run: bool, **how: Any
) -> None:
    """Write the unit files, then enable and start them."""
    scope = _scope(context, system=system, account=account)
    start = not how["no_start"]
    if start and not dry_run:
        files_only = f"{scope.command('install')} --no-start"
        scope.require_systemd(f"handoffd run  # or write the files only: {files_only}")
    plan = service_plan.installing(
        scope, path=how["path"], plain=how["plain"], encrypted=how["encrypted"], start=start
    )
    report: dict[str, Any] = {
        **service_report.heading(scope, dry_run=dry_run),
        **service_report.planned(plan),
        "next": scope.command("status") if start else service_plan.activation(scope),
    }
    if not dry_run:
        service_files.write(scope, plan.changed)
        _run_all(scope, plan.commands)
    if scope.account is None and start:
        report["linger"] = enable_linger(scope, dry_run=dry_run)
    _print(report, as_json, service_report.installed_text(report))


@service.command()
@click.option("--dry-run", is_flag=True, help="Print what would be done; do nothing.")
@click.option("--purge", is_flag=True, help="Remove the journal, records of runs and settings, too.")
@_scoped
@click.pass_context
def uninstall(
    context: click.Context, /, *, system: bool, account: str | None, as_json: bool, dry_run: bool, purge: bool
) -> None:
    """Stop, disable and remove what `install` wrote; state stays, unless --purge."""
    scope = _scope(context, system=system, account=account)
    plan = service_plan.uninstalling(scope)
    data = purging.folders(scope) if purge else []
    if purge:
        purging.require_idle(scope)
    if not dry_run:
        _run_all(scope, plan.before)
        with purging.alone(scope) if purge else nullcontext():
            if purge:  # the daemon may have started one until it was stopped
                purging.require_idle(scope, stopped=bool(plan.before))
            service_files.remove(scope, plan.removed)
            _run_all(scope, plan.after)
            for argv in plan.last:
                scope.commands.run(argv)
            service_files.remove_sockets(scope)
            purging.remove(scope, data)
    report = {
        **service_report.heading(scope, dry_run=dry_run),
        "removed": [str(path) for path in plan.removed],
        "kept": [str(path) for path in plan.kept],
        "commands": [list(argv) for argv in (*plan.before, *plan.after, *plan.last)],
        "purged": [str(path) for path in data],
        "state_exists": purging.exists(scope.state),
        "linger": lingers(scope) if scope.account is None and plan.after and not dry_run else None,
    }
    _print(report, as_json, service_report.uninstalled_text(report))


@service.command()
@_scoped
@click.pass_context
def status(context: click.Context, *, system: bool, account: str | None, as_json: bool) -> None:
    """Show whether both units run. Exit code 3: the daemon does not."""
    scope = _scope(context, system=system, account=account)
    scope.require_systemd("handoffd status  # asks a daemon that runs in a terminal")
    scope.require_own("status")
    shown = scope.systemctl.show(scope.names)
    report = {
        **service_report.heading(scope, dry_run=False),
        "units": [
            service_report.summary(scope.service, name, shown.get(name, {})) for name in reversed(scope.names)
        ],
        "linger": lingers(scope) if scope.account is None else None,
    }
    daemon = report["units"][0]
    report["next"] = service_report.next_step(scope, *report["units"])
    _print(report, as_json, service_report.status_text(report))
    if daemon["active"] not in ("active", "reloading"):
        context.exit(NoDaemon.exit_code)


# --- for whom -----------------------------------------------------------------------------------
def _scope(context: click.Context, *, system: bool, account: str | None) -> Scope:
    if system != (account is not None):
        raise click.UsageError("--system and --user ACCOUNT belong together; leave both out for yourself")
    machine = context.find_object(Machine) or Machine(environment=os.environ)
    scope = Scope(account=account, machine=machine)
    if account is not None:
        try:
            unitfiles.find_account(account)
        except NotFound:
            if not scope.has_units:  # those of an account that is gone can be looked at and removed
                raise
    return scope


# --- acting -------------------------------------------------------------------------------------
def _run_all(scope: Scope, commands: Sequence[tuple[str, ...]]) -> None:
    for argv in commands:
        done = scope.commands.run(argv)
        if done.code != 0:
            raise Refused(
                f"`{' '.join(argv)}` failed: {done.why}", hint=scope.systemctl.hint(done) or scope.service.log
            )


def _print(report: Mapping[str, Any], as_json: bool, lines: list[str]) -> None:
    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else "\n".join(lines))
