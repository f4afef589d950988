"""A control group for each run, if the service manager has delegated a part of the hierarchy to us.

One write kills every process in the group, whatever its session, parent or environment and however fast it
forks. It works even after shim and launcher were both killed, because the next launcher finds the group by
its name. The group is a second safety net beside the process tree (see `tree`), so a failure here has no
other effect.

A shim enters the group before it gets its run, so that entering does not delay the start, and leaves after
it has started the program there: the process that kills the group must not be in it.

    place (of the unit)         no process in it, so that it may have controllers
      handoffd-launcher         the launcher, the process in front of it, and the shims
      handoffd-run-PID-START    one run

If the unit allows it, the controllers `memory` and `pids` are switched on for the groups. They limit a run
and count its memory and tasks. systemd puts the main process of a starting unit into `place` itself, which
the kernel refuses while controllers are on there, as they are while an agent is left in its group. So the
unit switches them off whenever it has stopped (`launcher.py --stopped`), and the next launcher switches them
on again. Values that the kernel forgets in between (limits and peaks) are kept in an extended attribute of
each group's folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace

from handoffd.execute.runner import proc

CONTROLLERS = ("memory", "pids")
LAUNCHERS = "handoffd-launcher"
"""The group of the launcher and the shims, below the delegated one."""

_PREFIX = "handoffd-run-"
_KEPT = "user.handoffd"
_CONTROL = "/.control"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A run's limits and what it used; None: there is no limit, or nothing counts it.

    `memory_peak` and `memory_max` are bytes, `tasks_peak` and `tasks_max` processes and threads.
    """

    memory_peak: int | None = None
    memory_max: int | None = None
    memory_kills: int | None = None
    """How many processes the kernel killed for lack of memory; None: it did not count them by group."""
    memory_met: bool = False
    """Whether the run reached its own limit, as opposed to the machine's."""
    tasks_peak: int | None = None
    tasks_max: int | None = None
    tasks_refused: int = 0
    """How often the kernel refused to start a process or thread."""


def own() -> str | None:
    """Return the folder of the group that this process may divide; None if there is none (no cgroup v2).

    This is the group of this process, or the parent of it if the process is in the launchers' group.
    """
    inside = of("self")
    folder = inside.removesuffix(f"/{LAUNCHERS}") if inside is not None else None
    return folder if folder is not None and os.access(f"{folder}/cgroup.procs", os.W_OK) else None


def of(pid: int | str) -> str | None:
    """Return the folder of a process's group; None without cgroup v2."""
    memberships = (proc.read(f"/proc/{pid}/cgroup") or b"").decode().splitlines()
    inside = next((line[3:] for line in memberships if line.startswith("0::")), None)
    for line in (proc.read("/proc/self/mountinfo") or b"").decode().splitlines():
        where, _, what = line.partition(" - ")
        if inside is not None and what.startswith("cgroup2 "):
            return where.split()[4].rstrip("/") + inside
    return None


def switch_on(place: str, controllers: Collection[str] = CONTROLLERS) -> bool:
    """Switch on limits and counters for the groups in `place`; return False if a later call should retry.

    Moves every process in `place` itself, also one of an earlier launcher, to the launchers' group.
    """
    wanted = [name for name in controllers if name in _words(f"{place}/cgroup.controllers")]
    if set(wanted) <= set(_words(f"{place}/cgroup.subtree_control")):
        return True
    with suppress(OSError):
        os.makedirs(f"{place}/{LAUNCHERS}", 0o700, exist_ok=True)
        for pid in _words(f"{place}/cgroup.procs"):
            with suppress(ProcessLookupError):
                _write(f"{place}/{LAUNCHERS}/cgroup.procs", pid.encode())
        for name in wanted:
            _write(f"{place}/cgroup.subtree_control", f"+{name}".encode())
        for folder in _groups(place):
            _restore(folder)
        return True
    return False


def is_ours(folder: str) -> bool:
    """Return whether a launcher has divided this group or its parent; we must not change any other."""
    return os.path.isdir(f"{folder.removesuffix(_CONTROL)}/{LAUNCHERS}")


def switch_off(folder_of_ours: str, controllers: Collection[str] = CONTROLLERS) -> None:
    """Let processes into the unit's group again, and save the counters of the runs' groups.

    `folder_of_ours` is that group, or the child of it in which systemd runs commands of a stopped unit.
    """
    place = folder_of_ours.removesuffix(_CONTROL)
    for folder in _groups(place):
        with suppress(OSError):
            _keep(folder, _taken(folder))
    # From the leaves up: an agent may have divided its own group.
    for folder, _, _ in os.walk(place, topdown=False):
        for name in _words(f"{folder}/cgroup.subtree_control"):
            if name in controllers:
                with suppress(OSError):
                    _write(f"{folder}/cgroup.subtree_control", f"-{name}".encode())


class Group:
    """The group of one run, below the folder `place`, named after the run's shim."""

    def __init__(self, place: str, pid: int, started: int) -> None:
        self._place = place
        self._folder = f"{place}/{_PREFIX}{pid}-{started}"

    def enter(self) -> bool:
        """Create the group and move this process into it; return whether that worked."""
        try:
            os.mkdir(self._folder, 0o700)
            _write(f"{self._folder}/cgroup.procs", b"0")
        except OSError:
            self.remove()
            return False
        return True

    def leave(self) -> bool:
        """Move this process back to the launcher's group; return whether that worked."""
        for folder in (f"{self._place}/{LAUNCHERS}", self._place):
            with suppress(OSError):
                _write(f"{folder}/cgroup.procs", b"0")
                return True
        return False

    def limit(self, memory_max: int | None, tasks_max: int | None) -> None:
        """Limit the group to this number of bytes, and of processes and threads (None: no limit).

        Limits that cannot be set while the controllers are off are set when `switch_on` switches them on.
        """
        if memory_max is not None or tasks_max is not None:
            with suppress(OSError):
                _keep(self._folder, Taken(memory_max=memory_max, tasks_max=tasks_max))
            _restore(self._folder)

    @property
    def taken(self) -> Taken:
        """The group's limits and counters so far; only limits that apply are in it."""
        return _taken(self._folder)

    def kill(self) -> set[int]:
        """Kill every process in the group; return the processes that were in it just before."""
        members = {int(pid) for pid in (proc.read(f"{self._folder}/cgroup.procs") or b"").split()}
        if members and os.getpid() not in members:
            try:
                _write(f"{self._folder}/cgroup.kill", b"1")
            except OSError:  # a kernel before 5.14
                return set()
            return members
        return set()

    def remove(self) -> bool:
        """Remove the group if it is empty; return whether it is gone."""
        try:
            os.rmdir(self._folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def end_orphans(place: str) -> None:
    """Kill the groups below `place` whose shims are gone, and remove the empty ones.

    A killed process takes a moment to disappear, so the caller repeats this.
    """
    for folder in _groups(place):
        pid, _, started = os.path.basename(folder).removeprefix(_PREFIX).partition("-")
        if not (pid.isdigit() and started.isdigit()):
            continue
        if not proc.is_running(int(pid), int(started), proc.boot_id()):
            group = Group(place, int(pid), int(started))
            group.kill()
            group.remove()


def _groups(place: str) -> list[str]:
    """Return the folders of the runs' groups in `place`."""
    try:
        return [f"{place}/{name}" for name in os.listdir(place) if name.startswith(_PREFIX)]
    except OSError:
        return []


def _taken(folder: str) -> Taken:
    """Return a group's limits and counters, including the ones from before controllers were switched off."""
    before = _kept(folder)
    events = _counts(f"{folder}/memory.events")
    kills = events.get("oom_kill")
    own = _counts(f"{folder}/memory.events.local")  # without the groups that the run itself has made
    return Taken(
        memory_peak=_most(before.memory_peak, _number(f"{folder}/memory.peak")),
        memory_max=_number(f"{folder}/memory.max"),
        memory_kills=before.memory_kills if kills is None else kills + (before.memory_kills or 0),
        memory_met=before.memory_met or own.get("oom", 0) > 0,
        tasks_peak=_most(before.tasks_peak, _number(f"{folder}/pids.peak")),
        tasks_max=_number(f"{folder}/pids.max"),
        tasks_refused=before.tasks_refused + _counts(f"{folder}/pids.events").get("max", 0),
    )


def _most(*numbers: int | None) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


def _restore(folder: str) -> None:
    """Apply the saved limits of a group, as far as its controllers are on."""
    kept = _kept(folder)
    for name, limit in (("memory.max", kept.memory_max), ("pids.max", kept.tasks_max)):
        if limit is not None:
            with suppress(OSError):
                _write(f"{folder}/{name}", str(limit).encode())


def _keep(folder: str, taken: Taken) -> None:
    """Save limits and counters with a group; a limit that was set before stays set."""
    wanted = _kept(folder)
    kept = replace(
        taken,
        memory_max=taken.memory_max or wanted.memory_max,
        tasks_max=taken.tasks_max or wanted.tasks_max,
    )
    os.setxattr(folder, _KEPT, json.dumps(asdict(kept)).encode())


def _kept(folder: str) -> Taken:
    try:
        raw = json.loads(os.getxattr(folder, _KEPT))
        return Taken(**{field.name: raw[field.name] for field in fields(Taken) if field.name in raw})
    except (OSError, ValueError, TypeError):
        return Taken()


def _words(path: str) -> list[str]:
    return (proc.read(path) or b"").decode().split()


def _number(path: str) -> int | None:
    """Return the number in a file; None if it holds `max` or does not exist."""
    words = _words(path)
    return int(words[0]) if words and words[0].isdigit() else None


def _counts(path: str) -> dict[str, int]:
    words = _words(path)
    return {name: int(count) for name, count in zip(words[::2], words[1::2], strict=False) if count.isdigit()}


def _write(path: str, text: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)
