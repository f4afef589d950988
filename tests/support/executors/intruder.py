"""An agent that tries to get out: `intruder.py FACTS`, the places to try as JSON. Its loot is in the project.

Each attempt that succeeds leaves its name there; then the agent hands over. `only`: nothing else is tried.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

FACTS = json.loads(sys.argv[1])
LIBC = ctypes.CDLL(None, use_errno=True)
_PTRACE_ATTACH = 16


def writes(path: str) -> Callable[[], object]:
    """Return an attempt to write a file."""

    def attempt() -> None:
        with open(path, "a") as file:
            file.write("evil\n")

    return attempt


def reads(path: str) -> Callable[[], object]:
    """Return an attempt to read a file, or a folder that is not empty."""

    def attempt() -> None:
        if os.path.isdir(path):
            if not os.listdir(path):
                raise OSError("empty")
        else:
            with open(path, "rb") as file:
                if not file.read(1):
                    raise OSError("empty")

    return attempt


def approves() -> None:
    """Open the gate through the daemon's socket, as a person would."""
    body = json.dumps({"project": FACTS["other"], "by": "a person"})
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.connect(FACTS["socket"])
        head = f"POST /v1/verbs/approve HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        daemon.sendall((head + body).encode())
        daemon.recv(100)


def connects(address: str) -> Callable[[], object]:
    """Return an attempt to reach a socket."""

    def attempt() -> None:
        with socket.socket(socket.AF_UNIX) as there:
            there.connect(address)

    return attempt


def kills() -> None:
    """End the daemon."""
    os.kill(FACTS["pid"], signal.SIGKILL)


def traces() -> None:
    """Take hold of the process that keeps the sandbox, or of the daemon."""
    for pid in (FACTS["pid"], os.getppid()):
        if LIBC.ptrace(_PTRACE_ATTACH, pid, 0, 0) == 0 and pid != os.getppid():
            return
    raise OSError("not permitted")


def runs(*command: str) -> Callable[[], object]:
    """Return an attempt by a command."""
    return lambda: subprocess.run(command, check=True, capture_output=True, timeout=20)


ATTEMPTS: dict[str, Callable[[], object]] = {
    "write outside": writes(FACTS["outside"]),
    "write a program": writes("/usr/local/bin/handoffd-evil"),
    "read the journal": reads(FACTS["state"] + "/journal.db"),
    "list the state directory": reads(FACTS["state"]),
    "list the runtime directory": reads(os.path.dirname(FACTS["socket"])),
    "read the settings": reads(FACTS["settings"]),
    "read another project": reads(FACTS["other"] + "/PROJECT_CONTEXT.md"),
    "write another project": writes(FACTS["other"] + "/PROJECT_CONTEXT.md"),
    "read a key": reads(FACTS["home"] + "/.ssh/id"),
    "read the passwords": reads("/etc/shadow"),
    "move .ai": lambda: os.rename(".ai", "moved"),
    "move .git": lambda: os.rename(".git", "moved"),
    "write a hook": writes(".git/hooks/post-commit"),
    "write git's settings": writes(".git/config"),
    "kill the daemon": kills,
    "see the daemon": lambda: os.stat(f"/proc/{FACTS['pid']}"),
    "read the daemon's environment": reads(f"/proc/{FACTS['pid']}/environ"),
    "walk through another root": reads("/proc/1/root" + FACTS["state"]),
    "trace": traces,
    "approve": approves,
    "reach an abstract socket": connects("\0" + FACTS["abstract"]),
    "unmount": runs("umount", FACTS["home"]),
    "mount in namespaces of its own": runs("unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt"),
    "unmount in namespaces of its own": runs("unshare", "-Urm", "umount", ".git/config"),
    "remount": runs("mount", "-o", "remount,rw,bind", "/"),
    "set the kernel": writes("/proc/sys/kernel/printk"),
    "read a disk": lambda: os.mknod("disk", 0o60600, os.makedev(8, 0)),
}


def main() -> None:
    """Try everything; then hand over like an honest agent."""
    sys.stdin.read()
    loot = []
    for name in FACTS["only"] or ATTEMPTS:
        try:
            ATTEMPTS[name]()
        except (OSError, subprocess.SubprocessError):
            continue
        loot.append(name)
    with open("loot.json", "w") as file:
        json.dump(loot, file)
    step, dispatch = os.environ["HANDOFFD_STEP"], os.environ["HANDOFFD_RUN"]
    text = f"---\nstep: {step}\ndispatch: {dispatch}\nstatus: pass\n---\n"
    with open(".ai/new", "w") as file:
        file.write(text)
    os.rename(".ai/new", ".ai/HANDOFF.md")


main()
