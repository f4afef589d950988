"""Which of the lines that harden the daemon's unit can be had here.

A unit that asks for what systemd cannot do here does not start at all, and systemd starts it again and
again. In containers and under some kernels that is so for a line or two; in a person's own systemd, most
of them need a user namespace. So the kernel's settings are read, and where a manager runs it is given a
unit that does nothing and asks for the same lines. Where that fails, the lines are tried in halves, and
those that cannot be had are left out of the daemon's unit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from handoffd.cli.service_scope import Scope
from handoffd.doctor.unit import refusal, status_name

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
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
    first = [line for line in lines if line == _NAMESPACE]  # others can only be had with it
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
    """Return the lines that harden the unit `text`, in its order; those of a launcher's unit are none."""
    found = _HARDENING.search(text)
    lines = found.group().splitlines()[:-1] if found else []
    return [line for line in lines if line and not line.startswith("#")]


def without_namespaces(text: str) -> str:
    """Return the unit `text` without what a person's systemd can only do in a user namespace."""
    return _NAMESPACED.sub("", text)


def _refused(scope: Scope, sure: Sequence[str], lines: Sequence[str]) -> dict[str, int]:
    """Return which of `lines` cannot be had beside those that are `sure`, each with systemd's exit code."""
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
    """Return the exit code by which systemd refuses a unit with `lines`; None when it can be had.

    Anything else, a manager that does not answer among it, is for the commands that follow to find.
    """
    if not scope.machine.systemd.is_dir():
        return None
    account = ["--user"] if scope.account is None else [f"--property=User={scope.account}"]
    properties = [f"--property={line}" for line in lines]
    how = ("--quiet", "--no-ask-password", "--wait", "--collect")
    code = scope.commands.run(("systemd-run", *how, *account, *properties, "true")).code
    return code if code in _NOT_SPAWNED else None
