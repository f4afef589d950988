"""The kernel's limits of file watches, and who of this account holds how many of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")

_INOTIFY = "anon_inode:inotify"
_WATCH = "inotify wd:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit of the kernel, by the name under which `sysctl` knows it."""

    key: str
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one account may have; `events` is for each instance. None where the kernel does not tell."""

    watches: Limit | None
    instances: Limit | None
    events: Limit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that watches files."""

    pid: int
    command: str
    watches: int
    instances: int


def limits(proc: Path = PROC) -> Limits:
    """Return the limits that are in force here: in a user namespace its own, where they are lower."""
    kernel = proc / "sys/fs/inotify"
    return Limits(
        watches=_lower(
            _limit("fs.inotify.max_user_watches", kernel / "max_user_watches"),
            _limit("user.max_inotify_watches", proc / "sys/user/max_inotify_watches"),
        ),
        instances=_lower(
            _limit("fs.inotify.max_user_instances", kernel / "max_user_instances"),
            _limit("user.max_inotify_instances", proc / "sys/user/max_inotify_instances"),
        ),
        events=_limit("fs.inotify.max_queued_events", kernel / "max_queued_events"),
    )


def holders(uid: int, proc: Path = PROC) -> tuple[Holder, ...]:
    """Return the processes of an account that watch files, as far as they can be seen; most first."""
    found = (_holder(process, uid) for process in proc.iterdir() if process.name.isdecimal())
    return tuple(sorted(filter(None, found), key=lambda holder: -holder.watches))


def _holder(process: Path, uid: int) -> Holder | None:
    try:
        if process.stat().st_uid != uid:
            return None
        counts = [_watches(process / "fdinfo" / name) for name in _instances(process / "fd")]
        command = (process / "comm").read_text(errors="replace").strip()
    except OSError:  # it has ended, or does not let itself be looked at
        return None
    if not counts:
        return None
    return Holder(pid=int(process.name), command=command, watches=sum(counts), instances=len(counts))


def _instances(descriptors: Path) -> Iterator[str]:
    for name in os.listdir(descriptors):
        try:
            if os.readlink(descriptors / name) == _INOTIFY:
                yield name
        except OSError:
            continue


def _watches(info: Path) -> int:
    with info.open(errors="replace") as lines:
        return sum(line.startswith(_WATCH) for line in lines)


def _limit(key: str, file: Path) -> Limit | None:
    try:
        return Limit(key=key, value=int(file.read_text()))
    except (OSError, ValueError):
        return None


def _lower(usual: Limit | None, inner: Limit | None) -> Limit | None:
    if usual is None or inner is None:
        return usual or inner
    return inner if inner.value < usual.value else usual
