"""A control group for each run, where the service manager has left us a part of the hierarchy.

One write ends everybody in it: whatever session, parent or environment they gave themselves, however
fast they fork, and also when shim and launcher were both killed, for the next launcher finds the
group by its name. It is one more net beside the tree (see `tree`), so what fails here costs nothing
but the net.

A shim is in the group from before its run is known until the program has been started there, which
takes no time from the start. Then it leaves: who ends the group must not be in it.
"""

from __future__ import annotations

import os

from handoffd.execute.runner import proc

_PREFIX = "handoffd-run-"


def own() -> str | None:
    """Return the folder of the group this process is in; None without cgroup v2, or when it is not ours."""
    memberships = (proc.read("/proc/self/cgroup") or b"").decode().splitlines()
    inside = next((line[3:] for line in memberships if line.startswith("0::")), None)
    for line in (proc.read("/proc/self/mountinfo") or b"").decode().splitlines():
        where, _, what = line.partition(" - ")
        if inside is not None and what.startswith("cgroup2 "):
            folder = where.split()[4].rstrip("/") + inside
            return folder if os.access(f"{folder}/cgroup.procs", os.W_OK) else None
    return None


class Group:
    """The group of one run, below the folder `place`, named after the process that looks after it."""

    def __init__(self, place: str, pid: int, started: int) -> None:
        self._place = place
        self._folder = f"{place}/{_PREFIX}{pid}-{started}"

    def enter(self) -> bool:
        """Make the group and move this process there; tell whether that went well."""
        try:
            os.mkdir(self._folder, 0o700)
            _write(f"{self._folder}/cgroup.procs", b"0")
        except OSError:
            self.remove()
            return False
        return True

    def leave(self) -> bool:
        """Move this process back to where the groups are; tell whether that went well."""
        try:
            _write(f"{self._place}/cgroup.procs", b"0")
        except OSError:
            return False
        return True

    def kill(self) -> set[int]:
        """Kill everybody in the group; return who was there a moment before."""
        members = {int(pid) for pid in (proc.read(f"{self._folder}/cgroup.procs") or b"").split()}
        if members and os.getpid() not in members:
            try:
                _write(f"{self._folder}/cgroup.kill", b"1")
            except OSError:  # a kernel before 5.14
                return set()
            return members
        return set()

    def remove(self) -> None:
        """Remove the group if nobody is in it any more."""
        try:
            os.rmdir(self._folder)
        except OSError:
            return


def end_orphans(place: str) -> None:
    """End the groups below `place` whose shims are gone, and remove those that are empty.

    Who was killed takes a moment to be gone, so it has to be done again and again.
    """
    try:
        names = os.listdir(place)
    except OSError:
        return
    for name in names:
        pid, _, started = name.removeprefix(_PREFIX).partition("-")
        if not name.startswith(_PREFIX) or not (pid.isdigit() and started.isdigit()):
            continue
        if not proc.is_running(int(pid), int(started), proc.boot_id()):
            group = Group(place, int(pid), int(started))
            group.kill()
            group.remove()


def _write(path: str, text: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)
