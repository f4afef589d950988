"""A box: a Debian of its own with a real systemd as PID 1, in a container on this machine.

An overlay keeps what is written apart from the system below it, so that a box is new when it is made and
keeps its disk over a reboot. It has a PID namespace, a mount namespace and a branch of the cgroup tree of its
own; the network is this machine's. It ends with the process that made it, however that ends.

The mount namespace has cgroup2 at /sys/fs/cgroup, so that systemd finds one hierarchy also where the machine
has another layout. Controllers that the machine has bound to version 1 are not in it: nothing here limits
memory.
"""

from __future__ import annotations

import contextlib
import enum
import os
import shutil
import signal
import subprocess
import zlib
from pathlib import Path

from tests.support.eventually import eventually_sync
from tests.systemd.root import CHECKOUT, NoBox

Done = subprocess.CompletedProcess[str]

_LIMIT_S = 600
"""How long a script may take: the walks install programs, on a machine that may be busy."""

HOLDER = """\
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
mount -t cgroup2 cgroup2 /sys/fs/cgroup
group=/sys/fs/cgroup/$3
tidy() {
    [ -d "$group" ] || return 0
    echo 1 > "$group/cgroup.kill"
    until find "$group" -depth -type d -exec rmdir {} + 2> /dev/null; do sleep 0.05; done
}
boot() {
    echo "$BASHPID" > "$group/payload/cgroup.procs"
    exec systemd-nspawn --quiet --boot --register=no --keep-unit --directory "$1/root" --machine "$2" \\
        --console=passive --resolv-conf=copy-host --link-journal=no --notify-ready=no
}
while read -r line; do
    tidy
    mkdir -p "$group/payload"
    { (boot "$2" "$3") < /dev/null >> "$2/console.log" 2>&1 || :; touch "$2/ended"; } &
done
tidy
wait
"""
"""What keeps the mounts of a box, boots it for each line that it reads, and ends it with the last."""


_PACK = """\
git ls-files -z --cached --others --exclude-standard |
    while IFS= read -rd '' file; do [ ! -e "$file" ] || printf '%s\\0' "$file"; done |
    tar --null -T - -cf - | tar -C "$1" -xf - --no-same-owner
"""


class Mode(enum.StrEnum):
    """What a box is like."""

    MACHINE = "machine"
    CONTAINER = "container"
    """As LXC, Incus and Proxmox have them: with a boot id of its own, and a /proc/kmsg that is a mount."""


class Box:
    """A booted box."""

    def __init__(self, mode: Mode, system: Path, disk: Path) -> None:
        """Boot the folder `system` with `disk` for what is written. Raises NoBox."""
        self.mode = mode
        self._disk = disk
        for name in ("upper/etc", "work", "root"):
            (disk / name).mkdir(parents=True)
        (disk / "upper/etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 box\n", encoding="utf-8")
        if mode is Mode.MACHINE:
            (disk / "upper/etc/like-a-machine").touch()
        with (disk / "console.log").open("wb") as console:
            self._holder = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "bash", "-euc", HOLDER, "bash",
                 system, disk, f"handoffd-{mode}-{zlib.crc32(bytes(disk)):x}"],
                stdin=subprocess.PIPE, stderr=console, start_new_session=True, text=True,
            )  # fmt: skip
        self._boot()

    # --- its life -------------------------------------------------------------------------------------
    def _boot(self) -> None:
        self._ended.unlink(missing_ok=True)
        assert self._holder.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the mounts were refused: it has ended
            self._holder.stdin.write("boot\n")
            self._holder.stdin.flush()
        if eventually_sync(self._state, within_s=120) == "ended":
            said = (self._disk / "console.log").read_text(encoding="utf-8", errors="replace")
            self.close()
            raise NoBox(f"a box does not boot here: {said.strip()[-1000:]}")

    @property
    def _ended(self) -> Path:
        return self._disk / "ended"

    def _state(self) -> str | None:
        if self._holder.poll() is not None or self._ended.exists():
            return "ended"
        with contextlib.suppress(ChildProcessError):
            state = self._inside("systemctl", "is-system-running", "--wait").stdout.strip()
            return state if state in ("running", "degraded") else None
        return None

    def reboot(self) -> None:
        """Reboot it as a person does."""
        self.run("systemctl reboot")
        eventually_sync(self._ended.exists, within_s=120)
        self._boot()

    def cut_power(self) -> None:
        """End everything in it at once, and boot it again."""
        os.kill(self.leader, signal.SIGKILL)
        eventually_sync(self._ended.exists)
        self._boot()

    def close(self) -> None:
        """Remove it, its processes, its cgroups and its disk."""
        assert self._holder.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._holder.stdin.close()
        self._holder.wait(60)
        shutil.rmtree(self._disk)

    @property
    def leader(self) -> int:
        """Its PID 1, as this machine counts. Raises ChildProcessError when there is none."""
        for pid in (pid for shell in _children(self._holder.pid) for pid in _children(shell)):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"systemd-nspawn\0"):
                    for child in _children(pid):
                        return child
        raise ChildProcessError("the box does not run")

    # --- what is typed in it --------------------------------------------------------------------------
    def run(self, script: str, *, user: str | None = None) -> Done:
        """Return what came of a shell script: of root, or in a login session of `user`."""
        who, home = [], "/root"
        programs = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        if user:
            who = [f"--property=User={user}", "--property=PAMName=login", "--property=WorkingDirectory=~"]
            home = f"/home/{user}"
            programs = f"{home}/.local/bin:/usr/local/bin:/usr/bin:/bin"
        return self._inside(
            "systemd-run", "--quiet", "--pipe", "--wait", "--collect", *who, "--setenv=LANG=C.UTF-8",
            f"--setenv=HOME={home}", f"--setenv=PATH={programs}", "--", "bash", "-c", script,
        )  # fmt: skip

    def must(self, script: str, *, user: str | None = None) -> str:
        """Return what a script that has to succeed printed."""
        done = self.run(script, user=user)
        assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def _inside(self, *argv: str) -> Done:
        entering = ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-p", "-C", "--"]
        return subprocess.run(
            [*entering, *argv], capture_output=True, text=True, errors="replace", check=False,
            stdin=subprocess.DEVNULL, timeout=_LIMIT_S,
        )  # fmt: skip

    # --- its files ------------------------------------------------------------------------------------
    def path(self, name: str) -> Path:
        """Return the path outside the box of a file inside it, while the box runs."""
        return Path(f"/proc/{self.leader}/root/{name.lstrip('/')}")

    def environment(self, pid: int) -> list[str]:
        """Return the environment of a process, by its pid in the box; nothing of one that has ended."""
        try:
            return self.path(f"/proc/{pid}/environ").read_text("utf-8", "replace").split("\0")
        except OSError:
            return []

    def put_checkout(self, folder: str, owner: str) -> None:
        """Put this checkout, including uncommitted changes, into a folder of the box."""
        target = self.path(folder)
        target.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", _PACK, "bash", target], cwd=CHECKOUT, check=True, timeout=60
        )
        self.must(f"chown -R {owner}: {folder}")


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    except OSError:
        return []
