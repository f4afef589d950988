"""Landlock: the kernel's own limit on what a process, and all that it starts, may do with files.

Beside namespaces it is a second wall: it forbids writes that a mistake in the view would allow, mounts of any
kind, tracing of processes outside, abstract sockets and signals to the outside. Alone it cannot hide
processes, and nothing inside a folder that may be written; so it is the weakest level.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from handoffd.execute.sandbox import kernel
from handoffd.execute.sandbox.plan import LANDLOCK, STRICT, Plan
from handoffd.execute.sandbox.view import DEVICES

SCOPES_SINCE = 6
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2

_WRITE_FILE, _READ_FILE, _READ_FOLDER, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 14
_REFER = 1 << 13
_CHANGES = 0b1111111110000 | _WRITE_FILE
"""Making and removing entries of a folder, and writing files: what the first version knows."""
_READS = _READ_FILE | _READ_FOLDER
_OF_A_FILE = _WRITE_FILE | _READ_FILE | _TRUNCATE

_READABLE = (
    "/bin", "/dev", "/etc", "/gnu", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/opt", "/proc", "/sbin",
    "/snap", "/sys", "/usr", "/var/cache", "/var/lib",
)  # fmt: skip
_SHARED = ("/tmp",)  # noqa: S108
"""Without a view of its own, a run shares this with every account."""


def writes_known(version: int) -> int:
    """Return the rights to write that this version of Landlock can withhold."""
    return _CHANGES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)


def scopes_known(version: int) -> int:
    """Return the scopes of this version: abstract sockets and signals, or none."""
    return _ABSTRACT_SOCKETS | _SIGNALS if version >= SCOPES_SINCE else 0


def restrict(plan: Plan, version: int) -> None:
    """Put this process under the plan's rules, permanently; raises OSError.

    Does nothing where the kernel has no Landlock and the plan does not ask for it.
    """
    if version < (SCOPES_SINCE if plan.level == STRICT else 1):
        if plan.level in (STRICT, LANDLOCK):
            raise OSError(95, f"this kernel's Landlock has version {version}", "Landlock")
        return
    alone = plan.level == LANDLOCK
    writes = writes_known(version)
    ruleset = kernel.create_ruleset(writes | (_READS if alone else 0), scopes_known(version))
    _allow(ruleset, writes | _READS * alone, (plan.workspace, *_repository(plan), *plan.writable))
    _allow(ruleset, writes | _READS * alone, ("/dev/pts", "/dev/shm", *(_SHARED if alone else plan.private)))  # noqa: S108
    _allow(ruleset, writes | _READS * alone, (f"/dev/{name}" for name in (*DEVICES, "ptmx")))
    if alone:
        _allow(ruleset, _READS, (*_READABLE, *plan.readable))
    kernel.restrict_self(ruleset)
    os.close(ruleset)


def _allow(ruleset: int, rights: int, paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            folder = stat.S_ISDIR(os.fstat(fd).st_mode)
            kernel.add_rule(ruleset, rights if folder else rights & _OF_A_FILE, fd, path)
            os.close(fd)


def _repository(plan: Plan) -> tuple[str, ...]:
    return () if plan.repository is None else (plan.repository,)
