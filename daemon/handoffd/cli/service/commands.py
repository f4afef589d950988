"""`handoffd service`: the daemon as a systemd service, for you or for an account of this machine.

Every verb first makes a plan (files, then commands) and then carries it out; `--dry-run` prints the
plan instead. Installing twice changes nothing the second time, and uninstalling touches
only files that carry our mark. State is not touched without --purge.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from handoffd.cli.service import plan, unit_files
from handoffd.cli.service.plan import Installing
from handoffd.cli.service.scope import Machine, Scope, enable_linger, lingers
from handoffd.doctor.service import Service, Trouble, Unit, refusal, status_name
from handoffd.engine.wording import counted
from handoffd.errors import Locked, NoDaemon, NotFound, Refused


def _scoped(command: Any) -> Any:
    """Add the options every verb of this group has."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--user", "account", metavar="ACCOUNT", help="With --system: the account it runs as."),
        click.option("--system", is_flag=True, help="Under the machine's systemd, for one account."),
    ):
        command = option(command)
    return command


class _Verb(click.Command):
    """A verb of this group. Where the account that types it may not look, it names the command that may."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; Refused where something is closed to this account."""
        try:
            return super().invoke(ctx)
        except PermissionError as error:
            path = error.filename or "."
            hint = f"sudo {_typed(ctx)}" if ctx.params["account"] else f"ls -ld {shlex.quote(str(path))}"
            raise Refused(f"{path} is closed to this account", hint=hint) from error


def _typed(context: click.Context) -> str:
    """Return the command line of a verb with all its options."""
    words = ["handoffd", "service", str(context.info_name)]
    # For whom comes first, as everywhere.
    for option in sorted(context.command.params, key=lambda one: one.name not in ("system", "account")):
        given = context.params.get(str(option.name))
        for value in given if isinstance(given, tuple) else (given,):
            if value:
                words += [option.opts[0]] if value is True else [option.opts[0], value]
    return shlex.join(words)


@click.group()
def service() -> None:
    """Install, remove or show the daemon as a systemd service."""


@service.command(cls=_Verb)
@click.option("--dry-run", is_flag=True, help="Print what would be done; do nothing.")
@click.option("--no-start", is_flag=True, help="Write the unit files only.")
@click.option(
    "--path", help="PATH of the daemon and its agents (default: as it is; at first yours, or the account's)."
)
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
    scope.require_person()
    start = not how["no_start"]
    if start and not dry_run:
        files_only = f"{scope.command('install')} --no-start"
        scope.require_systemd(f"handoffd run  # or write the files only: {files_only}")
        scope.systemctl.show(scope.names)  # a manager that does not answer could do nothing with files
    todo = plan.installing(
        scope, path=how["path"], plain=how["plain"], encrypted=how["encrypted"], start=start
    )
    report: dict[str, Any] = {
        **heading(scope, dry_run=dry_run),
        **planned(todo),
        "next": scope.command("status") if start else plan.activation(scope),
    }
    if not dry_run:
        plan.write(scope, todo.changed)
        _start_all(scope, report, as_json=as_json)
    if scope.account is None and start:
        report["linger"] = enable_linger(scope, dry_run=dry_run)
    _print(report, as_json, installed_text(report))


@service.command(cls=_Verb)
@click.option("--dry-run", is_flag=True, help="Print what would be done; do nothing.")
@click.option("--purge", is_flag=True, help="Remove the journal, records of runs and settings, too.")
@_scoped
@click.pass_context
def uninstall(
    context: click.Context, /, *, system: bool, account: str | None, as_json: bool, dry_run: bool, purge: bool
) -> None:
    """Stop, disable and remove what `install` wrote; state stays, unless --purge."""
    scope = _scope(context, system=system, account=account)
    todo = plan.uninstalling(scope)
    data = folders(scope) if purge else []
    if purge:
        require_idle(scope)
    if not dry_run:
        _run_all(scope, todo.before)
        with alone(scope) if purge or todo.unanswered else nullcontext():
            if purge:  # the daemon may have started one until it was stopped
                require_idle(scope, stopped=bool(todo.before))
            plan.remove(scope, todo.removed)
            _run_all(scope, todo.after)
            for argv in todo.last:
                scope.commands.run(argv)
            plan.remove_sockets(scope)
            remove(scope, data)
    report = {
        **heading(scope, dry_run=dry_run),
        "removed": [str(path) for path in todo.removed],
        "kept": [str(path) for path in todo.kept],
        "commands": [list(argv) for argv in (*todo.before, *todo.after, *todo.last)],
        "unanswered": todo.unanswered,
        "purge": purge,
        "purged": [str(path) for path in data],
        "state_exists": exists(scope.state),
        "linger": lingers(scope) if scope.account is None and todo.after and not dry_run else None,
    }
    _print(report, as_json, uninstalled_text(report))


@service.command(cls=_Verb)
@_scoped
@click.pass_context
def status(context: click.Context, *, system: bool, account: str | None, as_json: bool) -> None:
    """Show whether both units run. Exit code 3: the daemon does not."""
    scope = _scope(context, system=system, account=account)
    scope.require_systemd("handoffd status  # asks a daemon that runs in a terminal")
    scope.require_own("status")
    shown = scope.systemctl.show(scope.names)
    report = {
        **heading(scope, dry_run=False),
        "units": [summary(scope.service, name, shown.get(name, {})) for name in reversed(scope.names)],
        "linger": lingers(scope) if scope.account is None else None,
    }
    daemon = report["units"][0]
    report["next"] = next_step(scope, *report["units"])
    _print(report, as_json, status_text(report))
    if daemon["active"] not in _RUNNING:
        context.exit(NoDaemon.exit_code)


# --- for whom -----------------------------------------------------------------------------------
def _scope(context: click.Context, *, system: bool, account: str | None) -> Scope:
    if system != (account is not None):
        raise click.UsageError("--system and --user ACCOUNT belong together; leave both out for yourself")
    machine = context.find_object(Machine) or Machine(environment=os.environ)
    scope = Scope(account=account, machine=machine, typed=_typed(context))
    if account is not None:
        try:
            unit_files.find_account(account)
        except NotFound:
            # If the account is gone, `status` and `uninstall` still work on its units.
            if not scope.has_units and context.command is not uninstall:
                raise
    return scope


# --- acting -------------------------------------------------------------------------------------
def _run_all(scope: Scope, commands: Sequence[tuple[str, ...]], *, starting: bool = False) -> None:
    """Run commands up to the first failure; `starting`: report what keeps the units from running."""
    for argv in commands:
        done = scope.commands.run(argv)
        if done.code == 0:
            continue
        what, hint = f"`{' '.join(argv)}` failed", scope.systemctl.hint(done)
        if hint is not None and scope.account is not None:
            hint = scope.by_root  # what comes after it is for root, too
        trouble = _trouble(scope) if starting and hint is None else None
        if trouble is not None:
            raise Refused(f"{what}\n{trouble.what}: {trouble.why}", hint=trouble.action)
        raise Refused(f"{what}: {done.why}", hint=hint or scope.service.log)


def _start_all(scope: Scope, report: dict[str, Any], *, as_json: bool) -> None:
    """Run the commands of a report; if one fails, report what was done before."""
    ran: list[list[str]] = []
    try:
        for argv in report["commands"]:
            _run_all(scope, [tuple(argv)], starting=True)
            ran.append(argv)
    except Refused as failed:
        done = {**report, "commands": ran, "next": failed.hint}
        failed.details = done
        if not as_json:
            click.echo("\n".join(installed_text(done)[:-1]))
        raise


def _trouble(scope: Scope) -> Trouble | None:
    """Return what keeps a unit from running, the daemon's before its launcher's."""
    try:
        shown = scope.systemctl.show(scope.names)
    except Refused:
        return None
    found = (_unit(scope.service, name, shown.get(name, {})).trouble for name in reversed(scope.names))
    return next(filter(None, found), None)


def _unit(service: Service, name: str, properties: Mapping[str, str]) -> Unit:
    return Unit(name=name.removesuffix(".service"), service=service, shown=properties)


def _print(report: Mapping[str, Any], as_json: bool, lines: list[str]) -> None:
    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else "\n".join(lines))


# --- reports, and their text ----------------------------------------------------------------------
# systemd shows a number it does not have as the largest one it can write.
_UNKNOWN_FROM = 2**63
_RUNNING = ("active", "reloading")


def heading(scope: Scope, *, dry_run: bool) -> dict[str, Any]:
    """Return the fields that every report starts with."""
    return {"form": scope.form, "account": scope.account, "dry_run": dry_run, "state": str(scope.state)}


def planned(plan: Installing) -> dict[str, Any]:
    """Return what `service install` will do, or has done."""
    return {
        "files": [
            {"path": str(file.path), "changed": changed, "text": file.text} for file, changed in plan.files
        ],
        "commands": [list(argv) for argv in plan.commands],
        "namespaces": plan.fitted.obstacle is None,
        "obstacle": plan.fitted.obstacle,
        "left_out": [{"line": line, "exit_code": code} for line, code in plan.fitted.left_out.items()],
        "cautions": list(plan.cautions),
    }


def summary(service: Service, name: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return what matters of `systemctl show` for a unit of `service`; no properties: it is not installed."""
    installed = properties.get("LoadState", "not-found") != "not-found"
    trouble = _unit(service, name, properties).trouble if installed else None
    number = {key: int(value) for key, value in properties.items() if value.isdigit()}
    known = {key: value for key, value in number.items() if value < _UNKNOWN_FROM}
    return {
        "name": name,
        "installed": installed,
        "enabled": properties.get("UnitFileState") == "enabled",
        "active": properties.get("ActiveState", "unknown"),
        "sub": properties.get("SubState", ""),
        "pid": known.get("MainPID") or None,
        # systemd keeps what a process said last also when it is gone.
        "status": properties.get("StatusText", "") if known.get("MainPID") else "",
        "restarts": known.get("NRestarts", 0),
        "result": properties.get("Result", ""),
        "exit_code": known.get("ExecMainStatus"),
        "file": properties.get("FragmentPath") or None,
        "tasks": known.get("TasksCurrent"),
        "memory_bytes": known.get("MemoryCurrent"),
        "why": trouble.why if trouble else None,
        "action": trouble.action if trouble else None,
    }


def next_step(scope: Scope, daemon: Mapping[str, Any], launcher: Mapping[str, Any] | None = None) -> str:
    """Return the next command to type, given the summaries of the units."""
    if not daemon["installed"]:
        return scope.service.install
    if daemon["active"] in _RUNNING:
        action = launcher["action"] if launcher is not None else None
        return str(action or scope.as_account("handoffd status"))
    if daemon["action"]:
        return str(daemon["action"])
    if daemon["active"] in ("activating", "deactivating"):
        return scope.command("status")  # the state changes in a moment
    return scope.service.start


def installed_text(report: Mapping[str, Any]) -> list[str]:
    """Return the lines of `service install`."""
    written, ran = ("would write", "would run") if report["dry_run"] else ("written", "ran")
    lines = [_line(written if file["changed"] else "unchanged", file["path"]) for file in report["files"]]
    lines += [_line(ran, " ".join(argv)) for argv in report["commands"]]
    if "linger" in report:
        lines += _linger_text(report["linger"])
    if report["obstacle"]:
        lines.append(_line("hardening", f"without a user namespace: {report['obstacle']}"))
    lines += [
        _line("hardening", f"without {one['line']}, systemd cannot do it here ({refusal(one['exit_code'])})")
        for one in report["left_out"]
    ]
    lines += [_line("caution", caution) for caution in report["cautions"]]
    return [*lines, _line("state", report["state"]), _line("next", report["next"])]


def uninstalled_text(report: Mapping[str, Any]) -> list[str]:
    """Return the lines of `service uninstall`."""
    removed, ran = ("would remove", "would run") if report["dry_run"] else ("removed", "ran")
    lines = [_line(ran, " ".join(argv)) for argv in report["commands"]]
    lines += [_line(removed, path) for path in report["removed"]]
    lines += [_line("kept", f"{path} (not written by handoffd)") for path in report["kept"]]
    if report["unanswered"]:
        lines.append(_line("caution", report["unanswered"]))
    if not report["removed"] and not report["purged"]:
        lines.append("nothing to remove")
    elif report["removed"] and not report["dry_run"] and not report["purge"]:  # which none outlives
        lines.append(_line("agents", "running ones go on to their end or their deadline"))
    if report["linger"]:
        lines.append(_line("lingering", "stays on, for your other services (loginctl disable-linger)"))
    gone = "would remove" if report["dry_run"] else "removed"
    lines += [_line(gone, path) for path in report["purged"]]
    if report["state"] not in report["purged"]:
        lines.append(
            _line("state", f"{report['state']} ({'untouched' if report['state_exists'] else 'not there'})")
        )
    return lines


def status_text(report: Mapping[str, Any]) -> list[str]:
    """Return the lines of `service status`."""
    lines = [line for unit in report["units"] for line in _unit_text(unit)]
    if report["linger"] is False:
        lines.append("lingering is off: both end at your last logout   (loginctl enable-linger)")
    return [*lines, _line("state", report["state"]), _line("next", report["next"])]


def _unit_text(unit: Mapping[str, Any]) -> list[str]:
    if not unit["installed"]:
        return [f"{unit['name']}: not installed"]
    pid = f", pid {unit['pid']}" if unit["pid"] else ""
    again = unit["restarts"] and unit["active"] != "inactive"  # what was stopped keeps its number
    restarts = f", restarted {counted(unit['restarts'], 'time')}" if again else ""
    enabled = "" if unit["enabled"] else ", not enabled"
    lines = [f"{unit['name']}: {unit['active']} ({unit['sub']}){pid}{restarts}{enabled}"]
    if unit["status"]:
        lines.append(f"    {unit['status']}")
    if unit["result"] not in ("", "success"):
        lines.append(f"    ended: {unit['result']}, exit code {status_name(unit['exit_code'])}")
    if unit["why"]:
        lines.append(f"    why: {unit['why']}")
    return lines


def _linger_text(linger: Mapping[str, Any]) -> list[str]:
    if linger["enabled"] is None:
        return [_line("would run", " ".join(linger["command"]))]
    if linger["enabled"]:
        return [_line("lingering", "yes: the daemon runs without a login")]
    return [
        _line("lingering", f"no: {linger['why']}"),
        _line("", "the daemon and its agents end at your last logout, unless an administrator runs"),
        _line("", linger["hint"]),
    ]


def _line(word: str, text: str) -> str:
    return f"{word:<12} {text}"


# --- what --purge removes -------------------------------------------------------------------------
# This is the only verb that removes a journal, so it looks twice, before the daemon is stopped and when no
# other can begin: nothing is removed while an executor or a daemon is there, and no folder that holds
# anything but what a daemon puts into it. Projects and what is in their .ai folders are never touched.
_STATE = frozenset({
    "journal.db", "journal.db-wal", "journal.db-shm", "runs", "locks", "snapshots", "workspaces", "hooks",
    "run", "agents", "daemon.lock", "control.token",
})  # fmt: skip
_ALSO = re.compile(
    r"journal\.db\.before-.+|handoffd\.trusted-[0-9a-f]{64}\.yaml|\..+\.[0-9a-f]{16}\.tmp.*", re.DOTALL
)
"""Journals that a restore put aside, trusted settings, and files that a crash left half-written."""
_CONFIGURATION = frozenset({"handoffd.yaml", "environment"})


def folders(scope: Scope) -> list[Path]:
    """Return the paths to remove, state first; Refused if one is a link or holds foreign files."""
    found = [path for path in (scope.state, *scope.settings) if exists(path)]
    for path in found:
        stranger = _stranger(path, scope)
        if stranger is not None:
            raise Refused(
                f"{path} is left alone: {stranger} was not put there by handoffd",
                hint=f"ls -la {shlex.quote(str(path))}",
            )
    return found


def exists(path: Path) -> bool:
    """Return whether a path exists, also as a dangling link."""
    return path.exists() or path.is_symlink()


def require_idle(scope: Scope, *, stopped: bool = False) -> None:
    """Refuse while an executor runs: no daemon could judge its work any more.

    `stopped`: the units were stopped just now, so the daemon that ends executors must be started first.
    """
    from handoffd.execute.run import living

    start = f"{scope.service.systemctl} start {' '.join(scope.names)} && " if stopped else ""
    hint = start + scope.as_account("handoffd stop --executors")
    for run in living(scope.state / "runs"):
        raise Refused(f"the executor of {run.run_dir.name} is running", hint=hint)


@contextmanager
def alone(scope: Scope) -> Iterator[None]:
    """Keep daemons away from the state while it is removed; Refused while one runs."""
    from handoffd.files.locks import acquire, daemon_lock_path

    if not scope.state.is_dir():
        yield
        return
    try:
        lock = acquire(daemon_lock_path(scope.state), f"the state directory {scope.state}")
    except Locked as locked:
        raise Refused(locked.message, hint=scope.as_account("handoffd stop")) from locked
    with lock:
        yield


def remove(scope: Scope, paths: list[Path]) -> None:
    """Remove them; Refused without permission."""
    try:
        for path in paths:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if scope.account is not None:
            with suppress(OSError):  # that of another account is still in there
                scope.state.parent.rmdir()
    except OSError as error:
        hint = scope.remedy(error.filename)
        raise Refused(f"cannot remove {error.filename}: {error.strerror}", hint=hint) from error


def _stranger(path: Path, scope: Scope) -> str | None:
    """Return the first file that `handoffd` did not write, which prevents removing a path."""
    if path.is_symlink():
        return "the link"
    if not path.is_dir():
        return None
    is_state = path == scope.state
    known = _STATE if is_state else _CONFIGURATION
    for entry in sorted(path.iterdir()):
        if entry.name not in known and not (is_state and _ALSO.fullmatch(entry.name)):
            return entry.name
    return None
