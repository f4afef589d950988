"""What `handoffd service` tells: values for `--json`, and the same values as lines for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handoffd.cli.service_plan import Installing
from handoffd.cli.service_scope import Scope
from handoffd.doctor.service import Service
from handoffd.doctor.unit import Unit, refusal, status_name
from handoffd.engine.usage import counted

# systemd shows a number it does not have as the largest one it can write.
_UNKNOWN_FROM = 2**63


def heading(scope: Scope, *, dry_run: bool) -> dict[str, Any]:
    """Return what every report starts with."""
    return {"form": scope.form, "account": scope.account, "dry_run": dry_run, "state": str(scope.state)}


def planned(plan: Installing) -> dict[str, Any]:
    """Return what `service install` is about to do, or has done."""
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
    unit = Unit(name=name.removesuffix(".service"), service=service, shown=properties)
    trouble = unit.trouble if installed else None
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
        return scope.command("install")
    if daemon["active"] == "active":
        mending = launcher["action"] if launcher is not None else None
        return str(mending or scope.as_account("handoffd status"))
    if daemon["action"]:
        return str(daemon["action"])
    if daemon["restarts"]:
        return scope.service.log
    if daemon["active"] == "activating":
        return scope.command("status")  # it will run in a moment
    return " ".join(scope.systemctl.argv("start", scope.names[1]))


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
    if not report["removed"] and not report["purged"]:
        lines.append("nothing to remove")
    elif report["removed"] and not report["dry_run"]:
        lines.append(_line("agents", "those that were running go on to their end or their deadline"))
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
    restarts = f", restarted {counted(unit['restarts'], 'time')}" if unit["restarts"] else ""
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
