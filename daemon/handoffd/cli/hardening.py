"""Whether a person's systemd can put the daemon into a user namespace of its own.

Most of what hardens the daemon's unit needs one, and a unit that asks for it where it cannot be had does
not start at all. So the kernel's settings are read, and where a manager runs it is asked by a unit
that does nothing. The machine's own systemd needs no user namespace for the same.
"""

from __future__ import annotations

from pathlib import Path

from handoffd.cli.service_scope import Scope

_SWITCHES = (
    ("kernel/unprivileged_userns_clone", "0"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ("user/max_user_namespaces", "0"),
)
"""Files below /proc/sys, and the value with which an account may make no user namespace."""

_TRIAL = ("PrivateUsers=yes", "CapabilityBoundingSet=", "ProtectSystem=full", "PrivateDevices=yes")

_NOT_SPAWNED = range(200, 244)
"""Exit codes by which systemd says that it could not do what a unit asks for (systemd.exec(5))."""


def obstacle(scope: Scope) -> str | None:
    """Return why the units of `scope` have to do without a user namespace; None when they need not."""
    if scope.account is not None:
        return None
    return kernel_obstacle(scope.machine.kernel) or _manager_obstacle(scope)


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


def _manager_obstacle(scope: Scope) -> str | None:
    if not scope.machine.systemd.is_dir():
        return None
    properties = [f"--property={line}" for line in _TRIAL]
    done = scope.commands.run(
        ("systemd-run", "--user", "--quiet", "--wait", "--collect", *properties, "true")
    )
    # Anything else, a manager that does not answer among it, is for the commands that follow to find.
    return f"your systemd could not make one (exit code {done.code})" if done.code in _NOT_SPAWNED else None
