"""What keeps a machine from making a sandbox, and the command that changes that.

The same words for a start that was refused and for `handoffd doctor`. Needs the standard library alone: the
shim says why it started nothing.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import NamedTuple

from handoffd.execute.runner import proc
from handoffd.execute.sandbox import kernel

_SYSCTL = "/proc/sys/"
_APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
_CLONE = "kernel/unprivileged_userns_clone"
_MOST = "user/max_user_namespaces"
_FORBIDDEN = (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS)

SETTING = "sandbox: {level: landlock}"
"""What a person writes who does without namespaces."""


class Found(NamedTuple):
    """What the machine says; None: it has no such setting."""

    apparmor: int | None
    """1: a profile must allow user namespaces (Ubuntu since 23.10)."""
    clone: int | None
    """0: only root makes user namespaces (Debian before 11, hardened kernels)."""
    most: int | None
    """How many user namespaces there may be."""
    landlock: int
    """The version of its interface; 0: none."""
    root: bool
    program: str
    """What a profile would name: the interpreter of the launcher."""


def look(sysctl: str = _SYSCTL) -> Found:
    """Return what this machine says, without trying anything."""
    return Found(
        apparmor=_number(sysctl + _APPARMOR),
        clone=_number(sysctl + _CLONE),
        most=_number(sysctl + _MOST),
        landlock=kernel.landlock_version(),
        root=os.geteuid() == 0,
        program=os.path.realpath(sys.executable),
    )


def _number(path: str) -> int | None:
    # As bytes: a codec that is loaded now may be out of sight by now.
    text = proc.read(path)
    return int(text) if text and text.strip().isdigit() else None


def explain(error: OSError, found: Found) -> str:
    """Return one line: what could not be made, why, and what to type."""
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    what = error.filename if isinstance(error.filename, str) else "a sandbox"
    why, command = remedy(error.errno, found)
    return f"{name}: no sandbox: {what}: {error.strerror}{f'; {why}' if why else ''}; next: {command}"


def remedy(number: int | None, found: Found) -> tuple[str, str]:
    """Return what forbids a sandbox (empty if unknown), and the command that permits it."""
    if number in _FORBIDDEN and not found.root:
        if found.most == 0:
            return "user.max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=10000"
        if found.clone == 0:
            why = "kernel.unprivileged_userns_clone is 0"
            return why, "sudo sysctl -w kernel.unprivileged_userns_clone=1"
        if found.apparmor:
            why = "AppArmor lets only programs with a profile make user namespaces"
            return why, profile_command(found.program)
    if number == errno.ENOSYS:
        why = "the kernel is older than 5.12, or a container forbids the system call"
        return why, f"write `{SETTING}` into the settings, or `sandbox: {{level: off}}`"
    if number in _FORBIDDEN:
        why = "a container without the right to make namespaces, or a service manager that forbids them"
        return why, f"write `{SETTING}` into the settings, or `sandbox: {{level: off}}`"
    return "", "handoffd doctor"


def profile_command(program: str) -> str:
    """Return the command that lets AppArmor give `program` its user namespaces, now and after a restart."""
    rule = f"profile handoffd {program} flags=(unconfined) {{ userns, }}"
    profile = f"abi <abi/4.0>,\\ninclude <tunables/global>\\n{rule}"
    place = "/etc/apparmor.d/handoffd"
    return f"printf '{profile}\\n' | sudo tee {place} && sudo apparmor_parser -r {place}"
