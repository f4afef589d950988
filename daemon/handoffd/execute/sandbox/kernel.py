"""The system calls of a sandbox, as functions that raise OSError, and what keeps a machine from them.

Loaded by the launcher once, before it forks: a run then pays for the calls alone. Their numbers are the same
on every architecture; `clone3` behaves like `fork` as long as it gets no stack. The words for what is missing
are the same for a start that was refused and for `handoffd doctor`. Needs the standard library alone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import sys
from typing import NamedTuple

from handoffd.execute.runner import proc

# With the interpreter's lock held: no other thread of a new process could give it back.
_LIBC = ctypes.PyDLL(None, use_errno=True)

NEW_USER, NEW_MOUNTS, NEW_PIDS, NEW_IPC, NEW_NETWORK = 0x10000000, 0x20000, 0x20000000, 0x08000000, 0x40000000

READ_ONLY, NO_SUID, NO_DEV, NO_EXEC = 1, 2, 4, 8
_PRIVATE = 1 << 18
_EMPTY_PATH, _RECURSIVE = 0x1000, 0x8000
_OPEN_CLONE, _OPEN_CLOEXEC = 1, os.O_CLOEXEC
_FROM_EMPTY, _TO_EMPTY = 0x4, 0x40

_CLONE3, _OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 435, 428, 429, 442
_CLONE_ARGS = struct.Struct("=8Q")
_MOUNT_ATTR = struct.Struct("=4Q")

_SET_PDEATHSIG, _SET_NO_NEW_PRIVS, _CAPBSET_DROP, _SET_DUMPABLE, _CAP_AMBIENT = 1, 38, 24, 4, 47
_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_MOST_CAPABILITIES = 64

_SYSCTL = "/proc/sys/"
_APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
_USER_CLONE = "kernel/unprivileged_userns_clone"
_MOST_NAMESPACES = "user/max_user_namespaces"
_FORBIDDEN = (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS)

SETTING = "sandbox: {level: landlock}"
"""What a person writes who does without namespaces."""


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def _syscall(what: str, number: int, *arguments: object) -> int:
    return _checked(_LIBC.syscall(ctypes.c_long(number), *arguments), what)


def _prctl(what: str, option: int, *arguments: int) -> int:
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    return _checked(_LIBC.prctl(option, *words), what)


# --- processes ----------------------------------------------------------------------------------------
def fork_into(namespaces: int) -> int:
    """Fork a child that begins in new `namespaces`; return its pid, and 0 in the child."""
    arguments = _CLONE_ARGS.pack(namespaces, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    return _syscall("new namespaces", _CLONE3, arguments, ctypes.c_size_t(len(arguments)))


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent has ended."""
    _prctl("PR_SET_PDEATHSIG", _SET_PDEATHSIG, signal.SIGKILL)


def own_maps(user: int, group: int) -> None:
    """Keep these ids, and no others, in the user namespace that this process has begun."""
    # A process that has changed its account may not write its own maps otherwise.
    _prctl("PR_SET_DUMPABLE", _SET_DUMPABLE, 1)
    maps = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"))
    for name, text in maps:
        write(f"/proc/self/{name}", text)


def write(path: str, text: str) -> None:
    """Write a whole small file of the kernel's."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def give_up_privileges() -> None:
    """Drop every capability, also for programs that are executed later."""
    _prctl("PR_SET_NO_NEW_PRIVS", _SET_NO_NEW_PRIVS, 1)
    for number in range(_MOST_CAPABILITIES):
        # EINVAL: past the last one. EPERM: there was none to lose, outside of a user namespace.
        if _LIBC.prctl(_CAPBSET_DROP, ctypes.c_ulong(number), *[ctypes.c_ulong(0)] * 3) < 0:
            break
    _prctl("PR_CAP_AMBIENT", _CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("=II", _CAPABILITY_VERSION_3, 0)
    _checked(_LIBC.capset(header, bytes(24)), "capset")


# --- mounts -------------------------------------------------------------------------------------------
def mount(kind: str, place: str, flags: int, options: str = "") -> None:
    """Mount a new file system of a `kind` at `place`."""
    name = kind.encode()
    result = _LIBC.mount(name, os.fsencode(place), name, ctypes.c_ulong(flags), options.encode() or None)
    _checked(result, f"{kind} at {place}")


def make_read_only(fd: int, place: str, *, private: bool = False) -> None:
    """Make a mount and all below it read-only; `place` says in errors which. `private`: and ours alone."""
    attributes = _MOUNT_ATTR.pack(READ_ONLY, 0, _PRIVATE if private else 0, 0)
    flags = ctypes.c_uint(_EMPTY_PATH | _RECURSIVE)
    size = ctypes.c_size_t(len(attributes))
    _syscall(f"{place} read-only", _MOUNT_SETATTR, ctypes.c_int(fd), b"", flags, attributes, size)


def copy_of(fd: int, place: str) -> int:
    """Return a copy of the mount at an open file or folder, with all below it, which is nowhere yet."""
    flags = ctypes.c_uint(_OPEN_CLONE | _OPEN_CLOEXEC | _EMPTY_PATH | _RECURSIVE)
    return _syscall(f"a view of {place}", _OPEN_TREE, ctypes.c_int(fd), b"", flags)


def attach(tree: int, target: int, place: str) -> None:
    """Mount the copy `tree` over the open file or folder `target`."""
    flags = ctypes.c_uint(_FROM_EMPTY | _TO_EMPTY)
    _syscall(f"a mount at {place}", _MOVE_MOUNT, ctypes.c_int(tree), b"", ctypes.c_int(target), b"", flags)


# --- Landlock -----------------------------------------------------------------------------------------
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0 without it."""
    found: int = _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))
    return max(found, 0)


def create_ruleset(rights: int, scopes: int) -> int:
    """Return a descriptor of a ruleset that handles `rights` on files, with `scopes` (0 for old kernels)."""
    attributes = struct.pack("=3Q", rights, 0, scopes) if scopes else struct.pack("=Q", rights)
    size = ctypes.c_size_t(len(attributes))
    return _syscall("a Landlock ruleset", _CREATE_RULESET, attributes, size, ctypes.c_uint(0))


def add_rule(ruleset: int, rights: int, fd: int, place: str) -> None:
    """Allow `rights` below an open file or folder."""
    attributes = struct.pack("=Qi", rights, fd)
    number, flags = ctypes.c_int(_PATH_BENEATH), ctypes.c_uint(0)
    _syscall(f"a Landlock rule for {place}", _ADD_RULE, ctypes.c_int(ruleset), number, attributes, flags)


def restrict_self(ruleset: int) -> None:
    """Put this process permanently under the ruleset; it must have given up privileges."""
    _syscall("Landlock", _RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))


# --- what keeps a machine from making a sandbox -------------------------------------------------------
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
        clone=_number(sysctl + _USER_CLONE),
        most=_number(sysctl + _MOST_NAMESPACES),
        landlock=landlock_version(),
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
